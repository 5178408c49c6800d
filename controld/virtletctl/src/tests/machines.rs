//! Commands that look at machines, and those that stop and start them.

use std::os::unix::fs::PermissionsExt as _;

use clap::Parser as _;
use proto::cri::{ContainerEventResponse, ContainerEventType, ContainerStatus, PodSandboxMetadata, PodSandboxStatus};
use serde_json::{Value, json};
use tonic::Status;

use super::fake::{Fake, Handle, serve};
use super::{ctl, exit_codes, exit_codes_until, ok};
use crate::cli::Cli;
use crate::error::CtlError;
use crate::interrupt::Interrupt;
use crate::run;

/// Two machines in two namespaces.
async fn two(fake: Fake) -> (tempfile::TempDir, Handle, std::path::PathBuf) {
    let (dir, fake, socket) = serve(fake);
    let logs = dir.path().join("logs");
    let logs = logs.to_str().expect("UTF-8");
    for (name, namespace) in [("web", "default"), ("db", "prod")] {
        let args = ["run", "x/a.img", "--name", name, "-n", namespace, "-m", "512Mi", "--log-dir", logs];
        assert_eq!(ctl(&socket, &args).await.1, [""; 0]);
    }
    fake.forget_calls();
    (dir, fake, socket)
}

#[tokio::test]
async fn lists_are_narrowed_and_printed_as_by_kubectl_and_docker() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    for (args, wanted) in [
        (&["ps", "-o", "name"][..], "default/web\nprod/db\n"),
        (&["ps", "-n", "prod", "-o", "name"], "prod/db\n"),
        (&["ps", "-A", "-o", "name", "-l", "virtlet.cloud/log-dir"], "default/web\nprod/db\n"),
        (&["ps", "-o", "name", "-l", "!virtlet.cloud/log-dir"], ""),
        (&["ps", "-o", "name", "--field-selector", "metadata.name!=web"], "prod/db\n"),
        (&["ps", "-o", "name", "--field-selector", "state=Exited"], ""),
        (&["ps", "-q"], "5a000000000000000000000000000001\n5a000000000000000000000000000002\n"),
        (&["get", "-n", "none", "-q"], ""),
        (&["get", "pods", "-o", "name"], "default/web\nprod/db\n"),
        (&["get", "po", "-n", "prod", "-o", "name"], "prod/db\n"),
    ] {
        assert_eq!(ok(&socket, args).await, wanted, "{args:?}");
    }
    ok(&socket, &["stop", "db", "-t", "1"]).await;
    assert_eq!(ok(&socket, &["ps", "-o", "name"]).await, "default/web\n");
    // Who asks for a state means it, also without `-a`.
    assert_eq!(ok(&socket, &["ps", "-o", "name", "--field-selector", "state=Exited"]).await, "prod/db\n");
    insta::assert_snapshot!(ok(&socket, &["ps", "-a", "-o", "wide"]).await);
    let yaml = ok(&socket, &["ps", "-n", "prod", "-a", "-o", "yaml"]).await;
    assert!(yaml.contains("state: Exited") && yaml.contains("name: db"), "{yaml}");
}

#[tokio::test]
async fn a_namespace_says_which_of_two_pods_is_meant() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let logs = dir.path().join("logs");
    ok(&socket, &["run", "x/a.img", "--name", "web", "-n", "prod", "--log-dir", logs.to_str().expect("UTF-8")]).await;
    for (args, wanted) in [
        (&["inspect", "-n", "prod", "web"][..], "5a000000000000000000000000000003"),
        (&["top", "-n", "prod", "web", "-o", "json"], "5a000000000000000000000000000003"),
        (&["top", "-n", "default", "web", "-o", "json"], "5a000000000000000000000000000001"),
    ] {
        assert!(ok(&socket, args).await.contains(wanted), "{args:?}");
    }
    fake.forget_calls();
    ok(&socket, &["pause", "--namespace", "prod", "web"]).await;
    ok(&socket, &["resume", "web", "-n", "prod"]).await;
    let id = "c0000000000000000000000000000003";
    assert_eq!(fake.calls(), [format!("Pause {id}"), format!("Resume {id}")]);
    for args in [
        &["exec", "-n", "test", "web", "true"][..],
        &["cp", "-n", "test", "web:/x", "."],
        &["ssh", "-n", "test", "web"],
        &["console", "-n", "test", "web"],
        &["attach", "-it", "-n", "test", "web"],
        &["attach", "--stdin", "--tty", "-n", "test", "web"],
        &["port-forward", "-n", "test", "web", "80"],
        &["logs", "-n", "test", "web"],
        &["restart", "-n", "test", "web"],
        &["kill", "-n", "test", "web"],
        &["rm", "-n", "test", "web"],
    ] {
        let none = "no pod or container `web` in namespace `test`; `virtletctl ps -a` lists all";
        assert_eq!(ctl(&socket, args).await.1, [none], "{args:?}");
    }
    let lines = "no pod `web` in namespace `5`; for so many of the last lines write --tail 5";
    assert_eq!(ctl(&socket, &["logs", "-n", "5", "web"]).await.1, [lines]);
    for args in [&["logs", "prod/web", "-c", "db"][..], &["console", "prod/web", "-c", "db"], &["logs", "prod/web/db"]]
    {
        assert_eq!(ctl(&socket, args).await.1, ["pod `web` has no container `db`; it has web"], "{args:?}");
    }
    ok(&socket, &["stop", "-n", "prod", "web"]).await;
    assert_eq!(ok(&socket, &["ps", "-o", "name"]).await, "default/web\nprod/db\n");
}

#[tokio::test]
async fn machines_are_paused_and_resumed() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    assert_eq!(ok(&socket, &["pause", "web"]).await, "web\n");
    let calls = fake.calls();
    assert_eq!(calls.len(), 1);
    let id = calls[0].strip_prefix("Pause ").expect("one call").to_owned();
    for verb in ["resume", "unpause"] {
        fake.forget_calls();
        assert_eq!(ok(&socket, &[verb, "default/web"]).await, "default/web\n");
        assert_eq!(fake.calls(), [format!("Resume {id}")]);
    }
    let (_, errors) = ctl(&socket, &["pause", "none"]).await;
    assert!(errors[0].starts_with("no pod or container `none`"), "{errors:?}");
}

#[tokio::test]
async fn a_pod_of_a_checkpoint_is_made_as_one_of_an_image_and_undone_as_that() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let at = dir.path().join("checkpoint").display().to_string();
    let logs = dir.path().join("logs").display().to_string();
    let words = ["restore", &at, "tiny", "--name", "copy", "--log-dir", &logs];
    assert!(ok(&socket, &words).await.starts_with("copy "));
    let calls = fake.calls();
    assert!(calls.contains(&format!("RestorePod {at}")), "{calls:?}");
    assert!(calls.iter().any(|call| call.starts_with("StartContainer")), "{calls:?}");
}

#[tokio::test]
async fn a_machine_is_written_to_a_directory_that_is_made() {
    let (dir, fake, socket) = two(Fake::default()).await;
    let at = dir.path().join("checkpoint");
    let path = at.display().to_string();
    assert_eq!(ok(&socket, &["checkpoint", "web", &path]).await, format!("{path}\n"));
    let calls = fake.calls();
    assert!(calls.len() == 1 && calls[0].starts_with("CheckpointPod ") && calls[0].ends_with(&path), "{calls:?}");
    assert_eq!(std::fs::metadata(&at).expect("made").permissions().mode() & 0o777, 0o700);
    let (_, errors) = ctl(&socket, &["checkpoint", "none", &path]).await;
    assert!(errors[0].starts_with("no pod or container `none`"), "{errors:?}");
}

#[tokio::test]
async fn a_machine_that_was_stopped_starts_as_its_next_attempt() {
    let (dir, fake, socket) = two(Fake::default()).await;
    assert_eq!(ok(&socket, &["start", "web"]).await, "web\n");
    assert_eq!(fake.calls(), [""; 0], "it runs");
    assert_eq!(ok(&socket, &["stop", "--time", "7", "web", "prod/db"]).await, "web\nprod/db\n");
    assert_eq!(fake.calls(), ["StopContainer 7", "StopContainer 7"]);
    assert_eq!(ok(&socket, &["stop", "web"]).await, "web\n");
    assert_eq!(fake.calls().len(), 2, "it is off");
    fake.forget_calls();
    assert_eq!(ok(&socket, &["start", "web"]).await, "web\n");
    assert_eq!(fake.calls(), ["CreateContainer", "StartContainer", "RemoveContainer"]);
    let made = fake.newest_container();
    let metadata = made.metadata.expect("metadata");
    assert_eq!((metadata.name.as_str(), metadata.attempt, made.log_path.as_str()), ("web", 1, "web/1.log"));
    let image = made.image.expect("image");
    assert_eq!((image.image.as_str(), image.user_specified_image.as_str()), ("sha256:1", "x/a.img"));
    let memory = made.linux.and_then(|linux| linux.resources).map(|resources| resources.memory_limit_in_bytes);
    assert_eq!((memory, made.tty), (Some(512 << 20), true));
    fake.forget_calls();
    assert_eq!(ok(&socket, &["restart", "web", "-t", "0"]).await, "web\n");
    assert_eq!(fake.calls(), ["StopContainer 0", "CreateContainer", "StartContainer", "RemoveContainer"]);
    fake.forget_calls();
    assert_eq!(ok(&socket, &["kill", "web"]).await, "web\n");
    assert_eq!(fake.calls(), ["StopContainer 0"]);
    drop(dir);
}

#[tokio::test]
async fn a_machine_that_kubelet_made_is_not_started_again_nor_stopped_for_that() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    fake.forget_labels();
    let (_, errors) = ctl(&socket, &["restart", "web"]).await;
    insta::assert_snapshot!(errors.join("\n"));
    assert_eq!(fake.calls(), [""; 0]);
    ok(&socket, &["stop", "web"]).await;
    assert_eq!(ctl(&socket, &["start", "web"]).await.1, errors);
}

#[tokio::test]
async fn a_next_attempt_that_does_not_start_keeps_the_last_one_and_says_why() {
    let mut fake = Fake::default();
    fake.fail("RemoveContainer", Status::internal("it burns"));
    let (_dir, fake, socket) = two(fake).await;
    ok(&socket, &["stop", "web"]).await;
    fake.now_fails("StartContainer", Status::unavailable("libvirt is away"));
    fake.forget_calls();
    let (out, errors) = ctl(&socket, &["start", "web"]).await;
    assert_eq!((out.as_str(), errors), ("", vec!["failed to start the machine: libvirt is away".into()]));
    assert_eq!(fake.calls(), ["CreateContainer", "StartContainer"]);
}

#[tokio::test]
async fn what_machines_use_is_shown_as_by_docker_and_kubectl() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    insta::assert_snapshot!(ok(&socket, &["stats", "--no-stream"]).await);
    insta::assert_snapshot!(ok(&socket, &["top", "-n", "prod"]).await);
    let json: Value = serde_json::from_str(&ok(&socket, &["top", "web", "-o", "json"]).await).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(1));
    assert_eq!((&json[0]["milliCpus"], &json[0]["memoryLimitBytes"]), (&json!(250), &json!(512 << 20)));
    assert_eq!((&json[0]["networkReceivedBytes"], &json[0]["networkSentBytes"]), (&json!(2048), &json!(30)));
    let (_, errors) = ctl(&socket, &["top", "nobody"]).await;
    assert!(errors[0].starts_with("no pod or container `nobody`"), "{errors:?}");
}

#[tokio::test]
async fn a_machine_that_does_not_run_is_told_and_the_others_are_shown() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    ok(&socket, &["stop", "web"]).await;
    let off = "machine of pod `web` does not run; `virtletctl ps -a` shows how it is";
    for args in [&["top", "web"][..], &["stats", "web"], &["stats", "web", "--no-stream"]] {
        assert_eq!(ctl(&socket, args).await, (String::new(), vec![off.into()]), "{args:?}");
    }
    for args in [&["top", "-o", "name", "web", "db"][..], &["stats", "-o", "name", "web", "db", "--no-stream"]] {
        assert_eq!(ctl(&socket, args).await, ("prod/db\n".into(), vec![off.into()]), "{args:?}");
    }
    fake.end_machines_at_look(fake.looks() + 3);
    let (out, errors) = ctl(&socket, &["stats", "-o", "name", "db"]).await;
    assert_eq!((out.as_str(), errors), ("prod/db\n", vec![off.replace("web", "db")]), "it ends with its last machine");
}

#[tokio::test]
async fn a_pod_whose_status_fails_does_not_hide_the_others() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    fake.now_fails("PodSandboxStatus", Status::unavailable("tapmanager is away"));
    let (table, errors) = ctl(&socket, &["ps"]).await;
    let ips: Vec<_> = table.lines().skip(1).map(|row| row.split_whitespace().nth(3)).collect();
    assert_eq!(ips, [Some("-"), Some("-")], "{table}");
    assert!(errors.len() == 2 && errors[0].ends_with("tapmanager is away"), "{errors:?}");
}

#[tokio::test]
async fn events_are_told_as_they_come() {
    let pod = |name: &str, namespace: &str| PodSandboxStatus {
        id: format!("5a{name}"),
        metadata: Some(PodSandboxMetadata { name: name.into(), namespace: namespace.into(), ..Default::default() }),
        ..Default::default()
    };
    let event = |id: &str, kind: ContainerEventType, pod| ContainerEventResponse {
        container_id: id.into(),
        container_event_type: kind.into(),
        created_at: 1_700_000_000_000_000_000,
        pod_sandbox_status: Some(pod),
        containers_statuses: vec![ContainerStatus {
            id: "c0".into(),
            reason: "Completed".into(),
            ..Default::default()
        }],
    };
    let events = vec![
        event("5aweb", ContainerEventType::ContainerCreatedEvent, pod("web", "default")),
        event("c0", ContainerEventType::ContainerStartedEvent, pod("web", "default")),
        event("5adb", ContainerEventType::ContainerDeletedEvent, pod("db", "prod")),
        event("c0", ContainerEventType::ContainerStoppedEvent, pod("web\u{1b}[2J", "default")),
    ];
    let mut told = Vec::new();
    for args in [&["events"][..], &["events", "-n", "prod", "-o", "json"], &["events", "-o", "name"]] {
        let (_dir, _fake, socket) = serve(Fake::telling(events.clone()));
        told.push(ok(&socket, args).await);
    }
    insta::assert_snapshot!(told.join("\n"));
}

#[tokio::test]
async fn a_pod_is_described_in_full() {
    let (dir, _fake, socket) = two(Fake::default()).await;
    let (json, errors) = ctl(&socket, &["inspect", "nobody", "web"]).await;
    assert!(errors[0].starts_with("no pod or container `nobody`") && errors.len() == 1, "{errors:?}");
    let json = json.replace(dir.path().to_str().expect("UTF-8"), "DIR");
    let mut json: Value = serde_json::from_str(&json).expect("JSON");
    let uid = json[0]["uid"].take();
    insta::assert_snapshot!(format!("{json:#}").replace(uid.as_str().expect("uid"), "UID"));
    assert!(ok(&socket, &["inspect", "web", "-o", "yaml"]).await.contains("namespace: default"));
}

#[tokio::test]
async fn a_command_that_is_waited_for_gives_its_output_and_its_exit_code() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for (args, call) in [
        (&["exec", "-s", "web", "true"][..], "ExecSync c0 0 true"),
        (&["exec", "-s", "--timeout", "9", "-c", "web", "default/web", "--", "true"], "ExecSync c0 9 true"),
        (&["exec", "-s", "web/web", "sh", "-c", "exit 3"], "ExecSync c0 0 sh|-c|exit 3"),
        (&["exec", "web", "-s", "--", "-it"], "ExecSync c0 0 -it"),
    ] {
        fake.forget_calls();
        let cli = Cli::try_parse_from(["virtletctl", "--socket", socket.to_str().expect("UTF-8")].iter().chain(args));
        let mut out = Vec::new();
        let errors = run(cli.expect("arguments"), &mut out, Interrupt::default()).await.expect_err("exit code");
        assert_eq!(out, b"raw\x1b[m\xff", "as it is");
        assert_eq!(fake.calls(), [call]);
        let words = u8::try_from(call.split('|').count()).expect("few");
        assert_eq!(errors.iter().map(CtlError::exit_code).collect::<Vec<_>>(), [words], "{args:?}");
    }
    let (_, errors) = ctl(&socket, &["exec", "-s", "web", "-c", "db", "--", "true"]).await;
    assert_eq!(errors, ["pod `web` has no container `db`; it has web"]);
}

#[tokio::test]
async fn what_cri_cannot_say_of_a_command_is_said_by_our_own_call() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for (args, call) in [
        (
            &["-e", "A=b c", "--env", "EMPTY=", "-e", "NOT_IN_OUR_ENVIRONMENT"][..],
            "Exec c0000000000000000000000000000001 env A=b c|EMPTY=",
        ),
        (&["-w", "/srv", "-u", "1000:users"], "Exec c0000000000000000000000000000001 env  /srv 1000:users"),
    ] {
        fake.forget_calls();
        let words = [&["exec"], args, &["web", "env"]].concat();
        assert_eq!(ctl(&socket, &words).await.1.len(), 1, "nobody listens at the URL");
        assert_eq!(fake.calls(), [call]);
    }
    for refused in [&["-e", "=x"][..], &["-e", ""], &["-s", "-u", "root"], &["-w", ""]] {
        let words = [&["virtletctl", "exec"], refused, &["web", "env"]].concat();
        assert!(Cli::try_parse_from(&words).is_err(), "{words:?}");
    }
}

#[tokio::test]
async fn a_command_that_is_waited_for_and_not_started_ends_as_in_a_shell() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for (why, code) in [
        ("the guest's agent did not start the command: failed to start `x`: No such file or directory", 127),
        ("QEMU's guest agent refused `guest-exec`: Failed to execute child process (No such file or directory)", 127),
        ("QEMU's guest agent refused `guest-exec`: the command is not allowed", 126),
        ("no agent answers", 1),
    ] {
        fake.now_fails("ExecSync", Status::invalid_argument(why));
        assert_eq!(exit_codes(&socket, &["exec", "-s", "web", "x"]).await, [code], "{why}");
    }
}

#[tokio::test]
async fn who_leaves_a_port_forward_by_ctrl_c_has_not_failed() {
    for (signal, codes) in [(2, &[][..]), (15, &[143])] {
        let interrupt = Interrupt::default();
        let mut fake = Fake::default();
        fake.interrupt_at("PortForward", interrupt.clone(), signal);
        let (_dir, _fake, socket) = two(fake).await;
        assert_eq!(exit_codes_until(&socket, &["port-forward", "web", "80"], interrupt).await, codes, "{signal}");
    }
}
