//! Commands and options that people bring from docker and kubectl.

use std::ffi::OsString;
use std::time::Duration;

use clap::CommandFactory as _;
use proto::cri::{Container, ContainerMetadata, ContainerState, ImageSpec, PodSandbox, PodSandboxMetadata};
use tonic::Status;

use super::fake::{Fake, Handle, serve};
use super::{ctl, exit_codes, ok};
use crate::cli::Cli;
use crate::client::Client;
use crate::error::CtlError;
use crate::ready::{self, Guest};

/// A machine `web` of an image with a user, and one `db` that is off.
pub(super) async fn two(fake: Fake) -> (tempfile::TempDir, Handle, std::path::PathBuf) {
    let (dir, fake, socket) = serve(fake);
    let logs = dir.path().join("logs");
    let logs = logs.to_str().expect("UTF-8");
    for (name, more) in [("web", &["--handler", "lab", "-l", "app=web"][..]), ("db", &["-n", "prod"])] {
        let args = [&["run", "x/debian.img", "--name", name, "--log-dir", logs][..], more].concat();
        assert_eq!(ctl(&socket, &args).await.1, [""; 0]);
    }
    assert_eq!(ctl(&socket, &["stop", "db"]).await.1, [""; 0]);
    fake.forget_calls();
    (dir, fake, socket)
}

#[tokio::test]
async fn a_pod_is_named_as_by_kubectl() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for args in
        [&["pause", "pod/web"][..], &["pause", "vmi/web"], &["pause", "pod", "web"], &["pause", "pod/default/web"]]
    {
        fake.forget_calls();
        ok(&socket, args).await;
        assert_eq!(fake.calls(), ["Pause c0000000000000000000000000000001"], "{args:?}");
    }
    let none = "no pod is named; `virtletctl ps -a` lists all";
    for args in [&["pause", "pods"][..], &["wait", "pod"], &["describe", "pods"], &["inspect", "pod"]] {
        assert_eq!(ctl(&socket, args).await.1, [none], "{args:?}");
        assert_eq!(exit_codes(&socket, args).await, [2], "{args:?}");
    }
}

#[tokio::test]
async fn lists_are_as_by_kubectl_and_docker() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    for (args, wanted) in [
        (&["get", "pod", "db", "-o", "name"][..], "prod/db\n"),
        (&["get", "pod/web", "vmi/db", "-o", "name"], "default/web\nprod/db\n"),
        (&["ls", "-a", "--filter", "name=d", "-o", "name"], "prod/db\n"),
        (&["ls", "--filter", "status=exited", "-o", "name"], "prod/db\n"),
        (&["ps", "-a", "-f", "ancestor=x/debian.img", "-f", "name=w", "-o", "name"], "default/web\n"),
        (&["ps", "-a", "-f", "ancestor=debian", "-o", "name"], ""),
        (&["ps", "-f", "label=app=web", "-q"], "5a000000000000000000000000000001\n"),
        (&["ps", "-a", "--format", "{{.Names}} {{.Status}}"], "web Running\ndb Exited\n"),
        (&["ps", "-a", "--sort-by", ".metadata.name", "-o", "name"], "prod/db\ndefault/web\n"),
        (&["ps", "-a", "--sort-by", "state", "-o", "name"], "prod/db\ndefault/web\n"),
        (&["ps", "-A", "-o", "jsonpath={.items[*].status.podIP}"], "10.1.0.1"),
        (&["get", "pods", "-o", "name"], "default/web\nprod/db\n"),
        (&["list", "-o", "name"], "default/web\nprod/db\n"),
        (&["get", "pod", "db", "-o", "jsonpath={.status.containerStatuses[0].ready}"], "false"),
        (&["ps", "-a", "-f", "name=^db$", "-o", "name"], "prod/db\n"),
        (&["get", "pods", "--field-selector", "status.phase=Running", "-o", "name"], "default/web\n"),
        (&["ps", "--field-selector", "status.phase=Succeeded,metadata.namespace=prod", "-o", "name"], "prod/db\n"),
        (&["get", "pods", "--field-selector", "status.phase=Failed", "-o", "name"], ""),
        (&["get", "pod", "db", "-o", "jsonpath={.status.phase}"], "Succeeded"),
        (&["get", "pod", "web", "-o", "jsonpath={.spec.runtimeClassName}"], "lab"),
    ] {
        assert_eq!(ok(&socket, args).await, wanted, "{args:?}");
    }
    let table = ok(&socket, &["ps", "--no-trunc"]).await;
    assert!(table.contains("5a000000000000000000000000000001"), "{table}");
    let (out, errors) = ctl(&socket, &["ps", "web", "nobody", "-o", "name"]).await;
    assert_eq!((out.as_str(), errors.len()), ("default/web\n", 1), "{errors:?}");
    let lost = ctl(&socket, &["get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}"]).await.1;
    assert_eq!(lost, ["`nodeName` is not known here; `virtletctl inspect POD` tells what is"]);
    let fifth = ctl(&socket, &["ps", "-n", "5"]).await.1;
    assert!(fifth[0].starts_with("no pod in namespace `5`; the newest pods are the last of"), "{fifth:?}");
    assert!(ctl(&socket, &["ps", "--sort-by", "colour"]).await.1[0].starts_with("a row has no field `colour`"));
}

#[tokio::test]
async fn a_machine_that_ended_with_an_error_has_failed() {
    let mut fake = Fake::default();
    fake.exit_code = Some(3);
    let (dir, _fake, socket) = serve(fake);
    let logs = dir.path().join("logs");
    ok(&socket, &["run", "--name", "web", "--log-dir", logs.to_str().expect("UTF-8"), "x/a.img"]).await;
    for (phase, wanted) in [("Failed", "default/web\n"), ("Succeeded", ""), ("Pending", "")] {
        let selector = format!("--field-selector=status.phase={phase}");
        assert_eq!(ok(&socket, &["get", "pods", &selector, "-o", "name"]).await, wanted, "{phase}");
    }
    assert_eq!(ok(&socket, &["get", "pod", "web", "-o", "jsonpath={.status.phase}"]).await, "Failed");
}

#[tokio::test]
async fn containers_behind_controld_are_listed_if_they_are_asked_for() {
    let pod = PodSandboxMetadata { name: "coredns-x1".into(), namespace: "kube-system".into(), ..Default::default() };
    let sandbox = PodSandbox { id: "4f".repeat(32), metadata: Some(pod), state: 1, ..Default::default() };
    let image =
        ImageSpec { image: "sha256:ab".into(), user_specified_image: "x/coredns:1".into(), ..Default::default() };
    let container = Container {
        id: "5e".repeat(32),
        pod_sandbox_id: sandbox.id.clone(),
        metadata: Some(ContainerMetadata { name: "dns".into(), attempt: 2 }),
        image: Some(image),
        state: ContainerState::ContainerRunning.into(),
        ..Default::default()
    };
    let mut fake = Fake::default();
    fake.behind = vec![(sandbox, container)];
    let (_dir, _fake, socket) = two(fake).await;
    assert_eq!(ok(&socket, &["ps", "-o", "name"]).await, "default/web\n");
    assert_eq!(ok(&socket, &["ps", "--containers", "-o", "name"]).await, "default/web\nkube-system/coredns-x1\n");
    let table = ok(&socket, &["ps", "--containers", "-n", "kube-system"]).await;
    let words: Vec<_> = table.lines().nth(1).unwrap_or_default().split_whitespace().take(7).collect();
    assert_eq!(words, ["coredns-x1", "kube-system", "container", "dns", "Running", "-", "x/coredns:1"], "{table}");
    let json =
        ok(&socket, &["ps", "--containers", "coredns-x1", "-o", "jsonpath={.vm} {.containerName} {.attempt}"]).await;
    assert_eq!(json, "false dns 2");
}

#[tokio::test]
async fn a_list_that_is_watched_ends_with_the_events() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    assert_eq!(ok(&socket, &["ps", "-w", "-o", "name"]).await, "default/web\n");
}

#[tokio::test]
async fn a_machine_that_is_started_again_is_as_old_as_its_pod() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    let created = ok(&socket, &["ps", "web", "--format", "{{.CreatedAt}}"]).await;
    ok(&socket, &["restart", "web"]).await;
    assert_eq!(ok(&socket, &["ps", "web", "--format", "{{.CreatedAt}}"]).await, created);
}

#[tokio::test]
async fn run_takes_the_options_of_dockers() {
    let (dir, fake, socket) = serve(Fake::default());
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    let (key, public) = (path("id"), path("id.pub"));
    let (key, public) = (key.as_str(), public.as_str());
    std::fs::write(key, "-----BEGIN OPENSSH PRIVATE KEY-----\n").expect("file");
    std::fs::write(public, "ssh-ed25519 AAAA\n").expect("file");
    let (logs, share) = (path("logs"), format!("{}:/srv:ro", path("")));
    let (logs, share) = (logs.as_str(), share.as_str());
    let args = [
        "run",
        "-d",
        "-m",
        "1g",
        "-p",
        "127.0.0.1:8080:80",
        "-p",
        "53:53/udp",
        "-v",
        share,
        "--network",
        "lab",
        "--network",
        "net@net7",
        "--handler",
        "gpu",
        "-e",
        "A=b",
        "-l",
        "app=web",
        "--ssh-key",
        public,
        "--log-dir",
        logs,
        "x/a.img",
    ];
    ok(&socket, &args).await;
    assert_eq!(fake.pulls()[0].handler, "gpu");
    assert!(fake.calls().contains(&"RunPodSandbox gpu".to_owned()), "{:?}", fake.calls());
    let (pod, container) = fake.made();
    let ports: Vec<_> = pod.port_mappings.iter().map(|port| (port.host_ip.as_str(), port.host_port)).collect();
    assert_eq!(ports, [("127.0.0.1", 8080), ("", 53)]);
    assert_eq!(pod.annotations["virtlet.cloud/networks"], "lab, net@net7");
    assert_eq!(pod.annotations["virtlet.cloud/shared-fs"], "virtiofs");
    assert_eq!((pod.labels["app"].as_str(), pod.labels["virtlet.cloud/ssh-identity"].as_str()), ("web", key));
    assert!(container.mounts[0].readonly && container.mounts[0].container_path == "/srv", "{container:?}");
    assert_eq!(container.envs[0].value, b"b");
    let memory = container.linux.and_then(|linux| linux.resources).map(|resources| resources.memory_limit_in_bytes);
    assert_eq!(memory, Some(1 << 30));

    fake.forget_calls();
    for (args, why) in [
        (&["run", "-d", "--rm", "x/a.img"][..], "with -d nobody is left to remove the pod"),
        (&["run", "-it", "x/a.img", "bash"], "a machine runs what its image holds"),
        (&["run", "--ssh-key", key, "x/a.img"], "is a private key"),
    ] {
        let (_, errors) = ctl(&socket, args).await;
        assert!(errors[0].contains(why), "{errors:?}");
        assert_eq!(exit_codes(&socket, args).await, [2], "{args:?}");
    }
    assert_eq!(fake.calls(), [""; 0]);
}

#[tokio::test]
async fn a_pod_that_is_to_be_removed_goes_with_its_machines_end() {
    let mut fake = Fake::default();
    fake.exit_code = Some(3);
    let (dir, fake, socket) = serve(fake);
    let logs = dir.path().join("logs");
    let args = ["run", "--rm", "--name", "web", "--log-dir", logs.to_str().expect("UTF-8"), "x/a.img"];
    let (out, errors) = ctl(&socket, &args).await;
    assert_eq!((out.as_str(), errors), ("web 10.1.0.1\n", vec!["command terminated with exit code 3".to_owned()]));
    assert!(fake.is_empty() && super::entries(&logs).is_empty());
}

#[tokio::test]
async fn what_is_off_is_told_at_once() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    let off = "machine of pod `db` does not run; `virtletctl ps -a` shows how it is";
    for args in
        [&["kill", "db"][..], &["port-forward", "db", "80"], &["ssh", "debian@db"], &["wait", "--for", "ready", "db"]]
    {
        assert_eq!(ctl(&socket, args).await, (String::new(), vec![off.to_owned()]), "{args:?}");
    }
    let changes: Vec<_> = fake.calls().into_iter().filter(|call| !call.starts_with("PodSandboxStatus")).collect();
    assert_eq!(changes, [""; 0]);
}

#[tokio::test]
async fn delete_lets_a_guest_shut_down_first() {
    for (args, seconds) in [
        (&["delete", "pod", "web"][..], 30),
        (&["delete", "web", "--now"], 0),
        (&["delete", "web", "--force", "--grace-period=0"], 0),
        (&["delete", "web", "-t", "7"], 7),
    ] {
        let (_dir, fake, socket) = two(Fake::default()).await;
        assert_eq!(ok(&socket, args).await, "web\n");
        let stop = format!("StopContainer {seconds}");
        assert_eq!(fake.calls(), [stop.as_str(), "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"], "{args:?}");
    }
    let (_dir, fake, socket) = two(Fake::default()).await;
    let both = ["delete", "web", "--force", "--grace-period=9"];
    assert_eq!(exit_codes(&socket, &both).await, [2]);
    assert_eq!(fake.calls(), [""; 0]);
}

#[tokio::test]
async fn a_machine_that_is_started_again_has_its_variables() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().join("logs");
    let args = ["run", "-e", "A=b", "--name", "web", "--log-dir", logs.to_str().expect("UTF-8"), "x/a.img"];
    ok(&socket, &args).await;
    let first = fake.made().1;
    ok(&socket, &["restart", "web"]).await;
    let next = fake.made().1;
    assert_eq!(next.metadata.expect("metadata").attempt, 1);
    assert_eq!(next.envs, first.envs);
}

#[tokio::test]
async fn values_of_variables_are_nowhere_in_what_is_shown() {
    let (dir, _fake, socket) = serve(Fake::default());
    let logs = dir.path().join("logs");
    let args = ["run", "-e", "KEY=sesame", "--name", "web", "--log-dir", logs.to_str().expect("UTF-8"), "x/a.img"];
    ok(&socket, &args).await;
    for (args, names) in [
        (&["inspect", "web"][..], true),
        (&["inspect", "web", "-o", "yaml"], true),
        (&["describe", "web"], true),
        (&["get", "web", "-o", "json"], false),
        (&["get", "web", "-o", "yaml"], false),
        (&["get", "web", "-o", "jsonpath={.status}"], false),
        (&["ps", "--format", "json"], false),
    ] {
        let told = ok(&socket, args).await;
        assert!(!told.contains("sesame"), "{args:?}: {told}");
        assert_eq!(told.contains("KEY"), names, "{args:?}: {told}");
    }
}

#[tokio::test]
async fn machines_are_reset_and_rebooted() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    for (args, seconds) in [(&["reset", "web"][..], 0), (&["reboot", "web", "-t", "9"], 9)] {
        fake.forget_calls();
        assert_eq!(ok(&socket, args).await, "web\n");
        let stop = format!("StopContainer {seconds}");
        assert_eq!(fake.calls(), [stop.as_str(), "CreateContainer", "StartContainer", "RemoveContainer"], "{args:?}");
    }
}

#[tokio::test]
async fn what_has_come_already_is_not_waited_for() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    for (args, wanted) in [
        (&["wait", "db"][..], "0\n"),
        (&["wait", "--for", "running", "web"], "web\n"),
        (&["wait", "--for", "ready", "--timeout=0", "web"], "web\n"),
        (&["wait", "--for=delete", "nobody"], "nobody\n"),
    ] {
        assert_eq!(ok(&socket, args).await, wanted, "{args:?}");
    }
    for (args, wanted) in [
        (&["wait", "--timeout", "0", "db"][..], "0\n"),
        (&["wait", "--for", "running", "--timeout=0s", "web"], "web\n"),
        (&["wait", "--for", "removed", "--timeout=0", "nobody"], "nobody\n"),
    ] {
        assert_eq!(ok(&socket, args).await, wanted, "{args:?}");
    }
    let late = ctl(&socket, &["wait", "--for", "delete", "web", "--timeout", "1s"]).await.1;
    assert!(late[0].starts_with("the removal of pod `web` did not come within 1 s"), "{late:?}");
}

#[tokio::test]
async fn who_does_not_wait_is_told_what_is_not_so() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    fake.now_fails("ExecSync", Status::failed_precondition("no agent answers in the guest"));
    fake.take_addresses();
    for (args, what) in [
        (&["wait", "web"][..], "the end of the machine of pod `web` has not come"),
        (&["wait", "--for", "removed", "web"], "the removal of pod `web` has not come"),
        (&["wait", "--for", "running", "db"], "the start of the machine of pod `db` has not come"),
        (&["wait", "--for", "ready", "web"], "an answer of the guest of `web` has not come"),
    ] {
        let args = [args, &["--timeout", "0"]].concat();
        let told = format!("{what}; `virtletctl ps -a` shows how it is");
        assert_eq!(ctl(&socket, &args).await, (String::new(), vec![told]), "{args:?}");
    }
    assert_eq!(fake.streams(), 0, "nobody listens to events");
}

#[tokio::test]
async fn a_guest_is_ready_when_an_agent_says_anything() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    let client = Client::connect(&socket).await.expect("connected");
    let guest = Guest { pod: "web", container: "c0000000000000000000000000000001", address: None };
    ready::wait(&client, guest, Duration::from_secs(20)).await.expect("it answers");
    let said = "the guest's agent did not start the command: No such file or directory";
    fake.now_fails("ExecSync", Status::invalid_argument(said));
    ready::wait(&client, guest, Duration::from_secs(20)).await.expect("it answers, too");
    fake.now_fails("ExecSync", Status::failed_precondition("no agent answers in the guest"));
    let error = ready::wait(&client, guest, Duration::from_millis(100)).await.expect_err("nobody answers");
    assert!(matches!(error, CtlError::Late { .. }), "{error}");
}

#[tokio::test]
async fn a_pod_is_told_to_people() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    let (told, errors) = ctl(&socket, &["describe", "pod", "web", "nobody"]).await;
    assert!(errors.len() == 1 && errors[0].contains("`nobody`"), "{errors:?}");
    let lines: Vec<String> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in ["Name: web", "IPs: 10.1.0.1", "Machines:", "- Name: web", "State: Running"] {
        assert!(lines.iter().any(|told| told == line), "{line}: {told}");
    }
}

#[tokio::test]
async fn a_shell_is_a_command_in_the_guest() {
    let (_dir, fake, socket) = two(Fake::default()).await;
    assert_eq!(ctl(&socket, &["shell", "-u", "root", "pod/web"]).await.1.len(), 1, "nobody listens at the URL");
    let calls = fake.calls();
    assert!(
        calls[0].starts_with("Exec c0000000000000000000000000000001 sh|-c|") && calls[0].ends_with("root"),
        "{calls:?}"
    );
}

#[tokio::test]
async fn one_end_of_a_copy_is_in_a_guest() {
    let (_dir, _fake, socket) = two(Fake::default()).await;
    for args in [["cp", "-", "-"], ["cp", "-", "/x"], ["cp", "web:/x", "web:/y"]] {
        let (_, errors) = ctl(&socket, &args).await;
        assert!(errors[0].starts_with("one of the two paths must be in a guest"), "{errors:?}");
    }
}

#[test]
fn commands_are_completed() {
    let words = ["virtletctl", "port-f"].map(OsString::from).to_vec();
    let found = clap_complete::engine::complete(&mut Cli::command(), words, 1, None).expect("completed");
    let found: Vec<_> = found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect();
    assert_eq!(found, ["port-forward"]);
}
