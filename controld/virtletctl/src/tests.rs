//! Commands against a CRI server of our own on a real socket.

pub(super) mod fake;
mod images;
mod kinds;
mod machines;
mod orphans;
mod typed;
mod verbs;
mod words;

use std::path::Path;

use clap::Parser as _;
use proto::cri::{RuntimeCondition, RuntimeStatus, StatusResponse};
use tonic::Status;

use self::fake::{Fake, serve};
use super::error::Line;
use super::*;

/// What a command printed, and its errors as the user sees them.
pub(crate) async fn ctl(socket: &Path, args: &[&str]) -> (String, Vec<String>) {
    ctl_until(socket, args, Interrupt::default()).await
}

async fn ctl_until(socket: &Path, args: &[&str], interrupt: Interrupt) -> (String, Vec<String>) {
    let socket = socket.to_str().expect("UTF-8");
    let cli = Cli::try_parse_from(["virtletctl", "--socket", socket].iter().chain(args)).expect("arguments");
    let mut out = Vec::new();
    let errors = run(cli, &mut out, interrupt).await.err().unwrap_or_default();
    let lines = errors.iter().map(|error| Line(error).to_string()).collect();
    (String::from_utf8(out).expect("UTF-8"), lines)
}

/// What a command printed that fails in nothing.
pub(crate) async fn ok(socket: &Path, args: &[&str]) -> String {
    let (out, errors) = ctl(socket, args).await;
    assert_eq!(errors, [""; 0], "{args:?}");
    out
}

/// What the errors of a command have the process end with.
pub(crate) async fn exit_codes(socket: &Path, args: &[&str]) -> Vec<u8> {
    exit_codes_until(socket, args, Interrupt::default()).await
}

async fn exit_codes_until(socket: &Path, args: &[&str], interrupt: Interrupt) -> Vec<u8> {
    let cli = Cli::try_parse_from(["virtletctl", "--socket", socket.to_str().expect("UTF-8")].iter().chain(args));
    let done = run(cli.expect("arguments"), &mut Vec::new(), interrupt).await;
    done.err().unwrap_or_default().iter().map(CtlError::exit_code).collect()
}

/// Help of the commands of a command.
pub(crate) fn help_below(name: &str) -> String {
    let mut command = Cli::command();
    command.build();
    let command = command.find_subcommand_mut(name).expect("a command");
    let below = command.get_subcommands().filter(|command| command.get_name() != "help");
    let help = |command: &clap::Command| command.clone().term_width(100).render_long_help();
    below.map(|command| format!("=== {}\n\n{}\n", command.get_name(), help(command))).collect()
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_pod_is_made_listed_and_removed() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().join("logs");
    let logs_arg = logs.to_str().expect("UTF-8");
    let keys = dir.path().join("keys");
    std::fs::write(&keys, "ssh-ed25519 AAAA\n").expect("file");
    let keys = keys.to_str().expect("UTF-8");
    let args = [
        "run",
        "x/tiny.qcow2",
        "--name",
        "web",
        "--memory",
        "512Mi",
        "--cpus",
        "1.5",
        "--ssh-key",
        keys,
        "--user-data",
        keys,
        "--annotation",
        "a=b",
        "--log-dir",
        logs_arg,
    ];
    assert_eq!(ctl(&socket, &args).await, ("web 10.1.0.1\n".into(), vec![]));
    let (pod, container) = fake.made();
    let metadata = pod.metadata.expect("metadata");
    assert_eq!((metadata.name.as_str(), metadata.namespace.as_str()), ("web", "default"));
    assert_eq!(pod.hostname, "web");
    assert_eq!(pod.log_directory, format!("{logs_arg}/default_web_{}", metadata.uid));
    assert_eq!(pod.annotations["a"], "b");
    assert_eq!(pod.annotations["VirtletSSHKeys"], "ssh-ed25519 AAAA\n");
    assert_eq!(pod.annotations["VirtletCloudInitUserData"], "ssh-ed25519 AAAA\n");
    assert_eq!(container.log_path, "web/0.log");
    assert!(Path::new(&pod.log_directory).join("web").is_dir());
    let resources = container.linux.and_then(|linux| linux.resources).expect("resources");
    assert_eq!((resources.cpu_quota, resources.cpu_period), (150_000, 100_000));
    assert_eq!(resources.memory_limit_in_bytes, 512 << 20);

    let (table, errors) = ctl(&socket, &["ps"]).await;
    assert_eq!(errors, [""; 0]);
    insta::assert_snapshot!(table, @"
    NAME   NAMESPACE   STATE     IP         IMAGE          AGE   POD-ID          CONTAINER-ID
    web    default     Running   10.1.0.1   x/tiny.qcow2   90m   5a00000000000   c000000000000
    ");
    let (json, _) = ctl(&socket, &["ps", "-a", "--json"]).await;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json[0]["podId"], "5a000000000000000000000000000001");

    let again = ctl(&socket, &["run", "x/tiny.qcow2", "--name", "web", "--log-dir", logs_arg]).await;
    assert!(again.1[0].starts_with("pod `default/web` is there already; choose"), "{again:?}");

    fake.forget_calls();
    for args in [&["rm", "web"][..], &["rm", "web", "--timeout", "7"]] {
        let (out, errors) = ctl(&socket, args).await;
        let told = errors[0].starts_with("machine of pod `web` runs; stop it first by `virtletctl stop`; or");
        assert!(out.is_empty() && told, "{errors:?}");
        assert_eq!(fake.calls(), [""; 0]);
    }
    // What may be the name of a pod that is gone is no beginning of an id.
    let short = ctl(&socket, &["rm", "5a", "-f"]).await;
    assert!(short.1[0].starts_with("no pod `5a`; the id of pod `web` begins so"), "{short:?}");
    assert_eq!(fake.calls(), [""; 0]);
    // Named twice, and once more by its id: removed once.
    assert_eq!(
        ctl(&socket, &["rm", "web", "default/web", "5a000000", "-f", "--timeout", "7"]).await,
        ("web\n".into(), vec![])
    );
    assert_eq!(fake.calls(), ["StopContainer 7", "RemoveContainer", "StopPodSandbox", "RemovePodSandbox"]);
    assert_eq!(entries(&logs), [""; 0], "its logs are gone too");
    assert_eq!(ctl(&socket, &["ps", "--all", "--json"]).await.0, "[]\n");
}

#[tokio::test]
async fn a_machine_that_is_paused_is_listed_with_the_reason() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    assert_eq!(ctl(&socket, &["run", "x/tiny.qcow2", "--name", "web", "--log-dir", logs]).await.1, [""; 0]);
    for (reason, state) in [("PausedDiskFull", "PausedDiskFull"), ("Paused", "Paused"), ("SomethingElse", "Running")] {
        fake.give_reason(reason);
        let table = ctl(&socket, &["ps"]).await.0;
        let row: Vec<_> = table.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(row[2], state, "a machine that runs, with reason {reason}");
    }
}

#[tokio::test]
async fn an_image_that_is_absent_is_pulled_and_one_that_is_there_is_not() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    for (image, pulls) in [("x/a.img", 1), ("x/a.img", 1)] {
        let (out, errors) = ctl(&socket, &["run", image, "--log-dir", logs]).await;
        assert_eq!(errors, [""; 0]);
        assert!(out.starts_with("a-"), "{out}");
        assert_eq!(fake.calls().iter().filter(|call| call.starts_with("PullWithProgress")).count(), pulls);
    }
}

#[tokio::test]
async fn a_pod_is_made_of_a_file_and_of_a_url() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    let disk = dir.path().join("My_Disk.qcow2");
    std::fs::write(&disk, "bytes").expect("written");
    let disk = disk.to_str().expect("UTF-8");
    for (image, pod, brought) in [
        (disk, "my-disk-", "Import localhost/my_disk.qcow2:latest"),
        // It may have changed.
        (disk, "my-disk-", "Import localhost/my_disk.qcow2:latest"),
        ("https://h.example/Dir/Web.img?x", "web-", "PullWithProgress h.example/dir/web.img:url-"),
    ] {
        fake.forget_calls();
        let (out, errors) = ctl(&socket, &["run", image, "--log-dir", logs]).await;
        assert_eq!(errors, [""; 0], "{image}");
        assert!(out.starts_with(pod), "{out}");
        let calls = fake.calls();
        assert!(calls.iter().any(|call| call.starts_with(brought)), "{image}: {calls:?}");
    }
    let (_, errors) = ctl(&socket, &["run", "ftp://h/x", "--log-dir", logs]).await;
    assert!(errors[0].starts_with("`ftp://h/x` cannot be asked for an image: scheme `ftp`"), "{errors:?}");
    let (_, errors) = ctl(&socket, &["run", "./no-such-file", "--log-dir", logs]).await;
    assert!(errors[0].starts_with("failed to open `./no-such-file`"), "{errors:?}");
}

#[tokio::test]
async fn a_step_that_fails_undoes_those_before_it() {
    let undo = ["StopPodSandbox", "RemovePodSandbox"];
    for (step, undone) in [
        ("PullWithProgress", &[][..]),
        ("RunPodSandbox", &[]),
        ("CreateContainer", &undo),
        ("StartContainer", &undo),
        ("PodSandboxStatus", &undo),
    ] {
        let (dir, fake, socket) = serve(Fake::failing(step, Status::internal("it\nburns")));
        let logs = dir.path().join("logs");
        let args = ["run", "x/a.img", "--log-dir", logs.to_str().expect("UTF-8")];
        let (out, errors) = ctl(&socket, &args).await;
        assert_eq!(out, "");
        assert!(errors[0].starts_with("failed to ") && errors[0].ends_with(": it\\nburns"), "{step}: {errors:?}");
        let calls = fake.calls();
        let after = calls.iter().position(|call| call.starts_with(step)).expect(step) + 1;
        assert_eq!(calls[after..], *undone, "{step}");
        assert!(fake.is_empty(), "{step}");
        assert!(!logs.exists() || entries(&logs).is_empty(), "{step}");
    }
}

#[tokio::test]
async fn an_undo_that_fails_is_told_with_its_cause() {
    let mut failing = Fake::failing("StartContainer", Status::internal("it burns"));
    failing.fail("RemovePodSandbox", Status::unavailable("tapmanager is away"));
    let (dir, _fake, socket) = serve(failing);
    let args = ["run", "x/a.img", "--name", "web", "--log-dir", dir.path().to_str().expect("UTF-8")];
    let (_, errors) = ctl(&socket, &args).await;
    insta::assert_snapshot!(errors.join("\n"), @"failed to start the machine: it burns; and `web` could not be removed again: failed to remove pod `5a00000000000`: tapmanager is away; remove it with `virtletctl rm -f`");
}

#[tokio::test]
async fn an_interrupt_undoes_too() {
    let interrupt = Interrupt::default();
    let mut fake = Fake::default();
    fake.interrupt_at("CreateContainer", interrupt.clone(), 2);
    let (dir, fake, socket) = serve(fake);
    let args = ["run", "x/a.img", "--log-dir", dir.path().to_str().expect("UTF-8")];
    let (_, errors) = ctl_until(&socket, &args, interrupt).await;
    assert_eq!(errors, ["interrupted"]);
    assert!(fake.is_empty());
}

#[tokio::test]
async fn removing_goes_on_after_a_failure() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    for name in ["a1", "b1"] {
        assert_eq!(ctl(&socket, &["run", "x/a.img", "--name", name, "--log-dir", logs]).await.1, [""; 0]);
    }
    let (out, errors) = ctl(&socket, &["rm", "--force", "zz", "b1"]).await;
    assert_eq!((out.as_str(), errors), ("b1\n", vec!["no pod or container `zz`; `virtletctl ps -a` lists all".into()]));
    assert!(fake.calls().contains(&"StopContainer 0".to_owned()));
    assert!(ctl(&socket, &["ps"]).await.0.contains("a1"));
}

#[tokio::test]
async fn what_was_stopped_is_removed_without_force() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    assert_eq!(ctl(&socket, &["run", "x/a.img", "--name", "web", "--log-dir", logs]).await.1, [""; 0]);
    assert_eq!(ctl(&socket, &["stop", "web"]).await.1, [""; 0]);
    assert_eq!(ctl(&socket, &["rm", "web"]).await, ("web\n".into(), vec![]));
    assert!(fake.is_empty());
}

#[tokio::test]
async fn logs_are_followed_until_the_machine_has_ended() {
    let (dir, fake, socket) = serve(Fake::default());
    let logs = dir.path().to_str().expect("UTF-8");
    ctl(&socket, &["run", "x/a.img", "--name", "web", "--log-dir", logs]).await;
    let (_, errors) = ctl(&socket, &["logs", "web"]).await;
    assert!(errors[0].starts_with("failed to open `") && errors[0].contains("No such file"), "{errors:?}");
    let log = Path::new(&fake.made().0.log_directory).join("web/0.log");
    std::fs::write(&log, "2016-10-06T00:17:09Z stdout F a\n").expect("log");
    for args in [["--tail", "5"], ["--tail", "-1"], ["--tail", "all"], ["--since", "999y"]] {
        assert_eq!(ctl(&socket, &[&["logs", "web"], &args[..]].concat()).await, ("a\n".into(), vec![]), "{args:?}");
    }
    assert_eq!(ctl(&socket, &["logs", "web", "--since", "1h"]).await, (String::new(), vec![]));
    assert_eq!(ctl(&socket, &["logs", "-t", "web"]).await, ("2016-10-06T00:17:09Z a\n".into(), vec![]));
    fake.end_machines_after_writing(&log, "2016-10-06T00:17:09Z stdout P b\n");
    assert_eq!(ctl(&socket, &["logs", "-f", "web"]).await, ("a\nb\n".into(), vec![]));
}

#[tokio::test]
async fn nobody_at_the_socket_is_told() {
    let dir = tempfile::tempdir().expect("directory");
    let absent = dir.path().join("no.sock");
    let (_, errors) = ctl(&absent, &["ps"]).await;
    let told = errors[0].replace(dir.path().to_str().expect("UTF-8"), "DIR");
    insta::assert_snapshot!(told, @"failed to connect to controld at `DIR/no.sock`: No such file or directory (os error 2); is controld running? --socket says where");
    let dead = dir.path().join("dead.sock");
    drop(std::os::unix::net::UnixListener::bind(&dead).expect("socket"));
    assert!(ctl(&dead, &["ps"]).await.1[0].contains("Connection refused"));
}

#[tokio::test]
async fn versions_are_those_of_both_ends() {
    let (dir, _fake, socket) = serve(Fake::default());
    let ours = format!("Client: virtletctl {}\n", env!("CARGO_PKG_VERSION"));
    let both = format!("{ours}Server: controld 9\\u{{1b}} (CRI v1)\n");
    assert_eq!(ctl(&socket, &["version"]).await, (both, vec![]));
    let (json, _) = ctl(&socket, &["version", "-o", "json"]).await;
    assert!(json.contains(r#""apiVersion": "v1""#), "{json}");
    let absent = dir.path().join("no.sock");
    let (out, errors) = ctl(&absent, &["version"]).await;
    assert!(out == ours && errors[0].contains("is controld running?"), "{out} {errors:?}");
    assert_eq!(ctl(&absent, &["version", "--client"]).await, (ours, vec![]));
}

#[tokio::test]
async fn the_other_runtime_is_shown_as_controld_sees_it() {
    let said = serde_json::json!({
        "runtimeEndpoint": "unix:///run/containerd/containerd.sock",
        "awaySeconds": 12,
        "why": "nobody listens on its socket\u{1b}",
        "lastGoodLists": { "images": null, "sandboxes": { "ageSeconds": 13, "bytes": 2048 } },
        "handlers": ["virtlet", "windows"],
    });
    let condition = RuntimeCondition {
        r#type: "VirtletReady".into(),
        reason: "LibvirtNotReady".into(),
        message: "down".into(),
        status: false,
    };
    let status = Some(RuntimeStatus { conditions: vec![condition] });
    let info = [("virtletProxy".to_owned(), said.to_string())].into();
    let (_dir, _fake, socket) = serve(Fake::on(StatusResponse { status, info, ..StatusResponse::default() }));
    let (table, errors) = ctl(&socket, &["proxy", "status"]).await;
    assert!(errors.is_empty(), "{errors:?}");
    for told in [
        "controld 9\\u{1b} at unix:///run/containerd/containerd.sock",
        "away for 12 s: nobody listens on its socket\\u{1b}",
        "not ready: LibvirtNotReady: down",
        "virtlet, windows",
        "none yet",
        "13 s old, 2.0 KiB",
    ] {
        assert!(table.contains(told), "{told}: {table}");
    }
    let (json, _) = ctl(&socket, &["proxy", "status", "-o", "json"]).await;
    assert!(json.contains(r#""enabled": true"#) && json.contains(r#""virtletReady": false"#), "{json}");
    let (_dir, _fake, socket) = serve(Fake::on(StatusResponse::default()));
    let (text, errors) = ctl(&socket, &["proxy", "status"]).await;
    assert!(errors.is_empty() && text.contains("in front of no other container runtime"), "{text} {errors:?}");
}

#[test]
fn help_is_pinned() {
    let mut command = Cli::command().term_width(100);
    command.build();
    let mut help = command.render_long_help().to_string();
    for subcommand in command.get_subcommands_mut().filter(|command| command.get_name() != "help") {
        help.push_str(&format!(
            "\n=== {}\n\n{}",
            subcommand.get_name(),
            subcommand.clone().term_width(100).render_long_help()
        ));
    }
    insta::assert_snapshot!(help);
}
