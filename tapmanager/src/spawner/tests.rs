use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use tokio::time::timeout;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);
/// Of a plugin that no test waits for.
const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(50);
const POD: Option<&str> = Some("pod-1");

/// Asks for a run of `program` for a pod or for none; our ends of its output and input come with it.
async fn ask(
    spawner: &Spawner,
    program: &Path,
    pod: Option<&str>,
    limit: Duration,
) -> io::Result<(Run, File, std::io::PipeWriter)> {
    let (stdin, feed) = std::io::pipe().expect("pipe");
    let (out, stdout) = std::io::pipe().expect("pipe");
    let stderr = File::open("/dev/null").expect("null");
    let readers = [out.as_fd(), stderr.as_fd()];
    let stdio =
        Stdio { stdin: stdin.into(), stdout: stdout.into(), stderr: stderr.try_clone().expect("fd").into(), readers };
    let mut env = vec![("CNI_COMMAND", OsStr::new("ADD")), ("PATH", OsStr::new("/usr/bin:/bin"))];
    env.extend(pod.map(|pod| ("CNI_CONTAINERID", OsStr::new(pod))));
    let run = spawner.run(program.as_os_str(), &env, limit, stdio).await?;
    Ok((run, File::from(OwnedFd::from(out)), feed))
}

async fn shell(spawner: &Spawner, script: &Path) -> (Run, File, std::io::PipeWriter) {
    ask(spawner, script, None, LONG).await.expect("asked")
}

fn in_process(dir: &tempfile::TempDir) -> Spawner {
    Spawner::in_process(&[dir.path().to_owned()], &dir.path().join("plugins.lock")).expect("spawner")
}

fn script(dir: &Path, text: &str) -> std::path::PathBuf {
    named(dir, "plugin", text)
}

fn named(dir: &Path, name: &str, text: &str) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.join(name);
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
    let spawner = in_process(&dir);
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
    let spawner = in_process(&dir);
    let (mut run, _out, _feed) = shell(&spawner, &script(dir.path(), "kill -9 $$")).await;
    assert_eq!(ended(&mut run).await.expect("ran").signal(), Some(9));
    let (mut run, _out, _feed) = shell(&spawner, &dir.path().join("absent")).await;
    assert_eq!(ended(&mut run).await.expect_err("absent").kind(), io::ErrorKind::NotFound);
}

/// A plugin and a child of it, which hold the output open until they die: once they run.
async fn endless(pod: Option<&str>, limit: Duration) -> (tempfile::TempDir, Run, File) {
    let dir = tempfile::tempdir().expect("tempdir");
    let plugin = script(dir.path(), "sleep 1000 & echo up; sleep 1000");
    let (run, mut out, _feed) = ask(&in_process(&dir), &plugin, pod, limit).await.expect("asked");
    let word = off_reactor(move || out.read_exact(&mut [0; 3]).map(|()| out));
    let out = timeout(LIMIT, word).await.expect("in time").expect("its word");
    (dir, run, out)
}

async fn assert_all_killed(mut out: File) {
    let rest = timeout(LIMIT, off_reactor(move || out.read_to_end(&mut Vec::new()))).await.expect("killed in time");
    assert_eq!(rest.expect("the end"), 0);
}

#[tokio::test]
async fn the_daemons_word_kills_the_plugin_and_its_children() {
    let (_dir, run, out) = endless(POD, LONG).await;
    run.kill();
    assert_all_killed(out).await;
}

/// The reactor has heard nothing of its socket yet.
#[tokio::test]
async fn the_daemons_first_word_kills_too() {
    let dir = tempfile::tempdir().expect("tempdir");
    let plugin = script(dir.path(), "sleep 1000");
    let (run, out, _feed) = ask(&in_process(&dir), &plugin, POD, LONG).await.expect("asked");
    run.kill();
    assert_all_killed(out).await;
}

#[tokio::test]
async fn what_runs_for_no_pod_is_killed_with_the_daemon() {
    let (_dir, run, out) = endless(None, LONG).await;
    drop(run);
    assert_all_killed(out).await;
}

#[tokio::test]
async fn what_runs_for_a_pod_is_killed_when_its_time_is_up() {
    let (_dir, run, out) = endless(POD, SHORT).await;
    drop(run);
    assert_all_killed(out).await;
}

/// However much it says, with nobody there to read it.
#[tokio::test]
async fn what_runs_for_a_pod_ends_after_the_daemon_and_the_next_one_waits_for_it() {
    let dir = tempfile::tempdir().expect("tempdir");
    let log = dir.path().join("log");
    let gate = dir.path().join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).expect("fifo");
    let write = format!(">> {}", log.display());
    let first = named(
        dir.path(),
        "first",
        &format!("echo up; read go < {}; head -c 300000 /dev/zero; echo first {write}", gate.display()),
    );
    let second = named(dir.path(), "second", &format!("echo second {write}"));
    let other = named(dir.path(), "other", &format!("echo other {write}"));

    let dying = in_process(&dir);
    let (run, mut out, _feed) = ask(&dying, &first, POD, LONG).await.expect("asked");
    out.read_exact(&mut [0; 3]).expect("its word");
    drop((run, out, dying));

    let next = in_process(&dir);
    let (mut waiting, _out, _feed) = ask(&next, &second, POD, LONG).await.expect("asked");
    let (mut run, _out, _feed) = ask(&next, &other, Some("pod-2"), LONG).await.expect("asked");
    assert!(ended(&mut run).await.expect("ran").success());
    run.over().await.expect("told");
    std::fs::write(&gate, "go\n").expect("go");
    assert!(ended(&mut waiting).await.expect("ran").success());
    assert_eq!(std::fs::read_to_string(&log).expect("log"), "other\nfirst\nsecond\n");
}

#[tokio::test]
async fn what_is_given_up_while_it_waits_for_its_turn_is_not_started() {
    let dir = tempfile::tempdir().expect("tempdir");
    let started = dir.path().join("started");
    let late = named(dir.path(), "late", &format!("touch {}", started.display()));
    let gate = script(dir.path(), "echo up; read go");
    let spawner = in_process(&dir);
    let (mut run, mut out, feed) = ask(&spawner, &gate, POD, LONG).await.expect("asked");
    out.read_exact(&mut [0; 3]).expect("its word");
    let (given_up, mut late_out, _feed) = ask(&spawner, &late, POD, LONG).await.expect("asked");
    drop(given_up);
    drop(feed);
    ended(&mut run).await.expect("ran");
    run.over().await.expect("told");
    // The server lets go of the output once it is done with it.
    let rest = timeout(LIMIT, off_reactor(move || late_out.read_to_end(&mut Vec::new()))).await;
    assert_eq!(rest.expect("in time").expect("the end"), 0);
    assert!(!started.exists());
}

#[tokio::test]
async fn children_of_a_plugin_that_is_over_live_on() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = in_process(&dir);
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
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = in_process(&dir);
    nix::sys::socket::shutdown(std::os::fd::AsRawFd::as_raw_fd(&*spawner.socket), nix::sys::socket::Shutdown::Both)
        .expect("shutdown");
    let error = ask(&spawner, Path::new("/bin/true"), None, LONG).await.expect_err("gone");
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
async fn a_file_that_is_many_plugins_goes_by_the_name_that_it_is_called_by() {
    let dir = tempfile::tempdir().expect("tempdir");
    let plugin = dir.path().join("env");
    std::os::unix::fs::symlink(std::fs::canonicalize("/bin/busybox").expect("busybox"), &plugin).expect("link");
    let spawner = in_process(&dir);
    let (mut run, mut out, _feed) = shell(&spawner, &plugin).await;
    assert!(ended(&mut run).await.expect("ran").success());
    run.over().await.expect("told");
    let mut text = String::new();
    out.read_to_string(&mut text).expect("read");
    assert_eq!(text, "CNI_COMMAND=ADD\nPATH=/usr/bin:/bin\n");
}

#[tokio::test]
async fn a_program_of_elsewhere_is_not_started() {
    let dir = tempfile::tempdir().expect("tempdir");
    let spawner = in_process(&dir);
    let (mut run, _out, _feed) = shell(&spawner, Path::new("/bin/sh")).await;
    let error = ended(&mut run).await.expect_err("denied");
    assert_eq!(error.get_ref().and_then(|why| why.downcast_ref()), Some(&Denied::Place));
}
