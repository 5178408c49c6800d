use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

/// A shell script's standard descriptors, and our ends of its output and input.
fn stdio() -> (Stdio, File, std::io::PipeWriter) {
    let (stdin, feed) = std::io::pipe().expect("pipe");
    let (out, stdout) = std::io::pipe().expect("pipe");
    let stderr = File::open("/dev/null").expect("null");
    let stdio = Stdio { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.into() };
    (stdio, File::from(OwnedFd::from(out)), feed)
}

async fn shell(spawner: &Spawner, script: &Path) -> (Run, File, std::io::PipeWriter) {
    let (stdio, out, feed) = stdio();
    let env = [("CNI_COMMAND", OsStr::new("ADD")), ("PATH", OsStr::new("/usr/bin:/bin"))];
    let run = spawner.run(script.as_os_str(), &env, stdio).await.expect("asked");
    (run, out, feed)
}

fn script(dir: &Path, text: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.join("plugin");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    path
}

async fn ended(run: &mut Run) -> io::Result<ExitStatus> {
    timeout(LIMIT, run.ended()).await.expect("in time")
}

#[tokio::test]
async fn a_plugin_has_its_environment_alone_and_its_status_comes_back() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = Spawner::in_process(&[dir.path().to_owned()]).expect("spawner");
    let (mut run, mut out, _feed) = shell(&spawner, &script(dir.path(), "pwd; /usr/bin/env | sort; exit 7")).await;
    assert_eq!(ended(&mut run).await.expect("ran").code(), Some(7));
    run.over().await.expect("told");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(text, "/\nCNI_COMMAND=ADD\nPATH=/usr/bin:/bin\nPWD=/\n");
}

#[tokio::test]
async fn a_signal_and_a_missing_program_are_told_apart() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = Spawner::in_process(&[dir.path().to_owned()]).expect("spawner");
    let (mut run, _out, _feed) = shell(&spawner, &script(dir.path(), "kill -9 $$")).await;
    assert_eq!(ended(&mut run).await.expect("ran").signal(), Some(9));
    let (mut run, _out, _feed) = shell(&spawner, &dir.path().join("absent")).await;
    assert_eq!(ended(&mut run).await.expect_err("absent").kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn hanging_up_kills_the_plugin_and_its_children() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = Spawner::in_process(&[dir.path().to_owned()]).expect("spawner");
    // Both hold the pipe open until they die.
    let (run, mut out, _feed) = shell(&spawner, &script(dir.path(), "sleep 1000 & echo up; sleep 1000")).await;
    let mut word = [0; 3];
    let mut out = timeout(LIMIT, off_reactor(move || out.read_exact(&mut word).map(|()| out)))
        .await
        .expect("in time")
        .expect("its word");
    drop(run);
    let rest = timeout(LIMIT, off_reactor(move || out.read_to_end(&mut Vec::new()))).await.expect("killed in time");
    assert_eq!(rest.expect("the end"), 0);
}

#[tokio::test]
async fn children_of_a_plugin_that_is_over_live_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = Spawner::in_process(&[dir.path().to_owned()]).expect("spawner");
    let (mut run, mut out, mut feed) =
        shell(&spawner, &script(dir.path(), "exec 3<&0; (read word <&3; echo $word) & exit 0")).await;
    assert!(ended(&mut run).await.expect("ran").success());
    run.over().await.expect("told");
    std::io::Write::write_all(&mut feed, b"alive\n").expect("feed");
    drop(feed);
    let text = timeout(
        LIMIT,
        off_reactor(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).map(|_| text)
        }),
    );
    assert_eq!(text.await.expect("in time").expect("read"), "alive\n");
}

#[tokio::test]
async fn a_server_that_is_gone_is_told() {
    let spawner = Spawner::in_process(&[]).expect("spawner");
    nix::sys::socket::shutdown(std::os::fd::AsRawFd::as_raw_fd(&*spawner.socket), nix::sys::socket::Shutdown::Both)
        .expect("shutdown");
    let (stdio, _out, _feed) = stdio();
    let error = spawner.run(OsStr::new("/bin/true"), &[], stdio).await.expect_err("gone");
    assert!(error.to_string().contains("restart tapmanager"), "{error}");
}

#[tokio::test]
async fn the_end_of_the_server_is_noticed_at_once_and_not_before() {
    let (ours, theirs) = pair(SockType::SeqPacket).expect("pair");
    let spawner = Spawner { socket: Arc::new(ours) };
    let mut gone = Box::pin(spawner.gone());
    assert!(futures_util::poll!(&mut gone).is_pending());
    assert!(!spawner.is_gone());
    drop(theirs);
    timeout(LIMIT, gone).await.expect("noticed");
    assert!(spawner.is_gone());
}

#[tokio::test]
async fn a_program_of_elsewhere_is_not_started() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = Spawner::in_process(&[dir.path().to_owned()]).expect("spawner");
    let (mut run, _out, _feed) = shell(&spawner, Path::new("/bin/sh")).await;
    let error = ended(&mut run).await.expect_err("denied");
    assert_eq!(error.get_ref().and_then(|why| why.downcast_ref()), Some(&Denied::Place));
}
