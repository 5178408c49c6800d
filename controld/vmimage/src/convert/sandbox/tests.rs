//! Programs of the system in place of `qemu-img`, each of which tries to get out.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt};

use nix::sys::stat::Mode;
use tempfile::{TempDir, tempfile};

use super::*;

/// Long enough for any of them, however busy the machine is.
const LIMITS: ConvertLimits =
    ConvertLimits { time: Duration::from_secs(60), memory: 1 << 30, output: 1 << 20, virtual_size: 0 };
/// A process that was killed closes its files well before.
const GONE: Duration = Duration::from_secs(60);

fn job(program: &str, arguments: &[&str], input: &[u8]) -> Job {
    let mut file = tempfile().expect("a file");
    file.write_all(input).expect("written");
    Job {
        program: program.into(),
        arguments: arguments.iter().map(ToString::to_string).collect(),
        input: file,
        more_inputs: Vec::new(),
        output: tempfile().expect("a file"),
        limits: LIMITS,
        patience: None,
    }
}

/// What a script wrote to its output, and how it ended.
async fn script(text: &str) -> (String, Result<(), SandboxError>) {
    let job = job("/bin/bash", &["--norc", "-c", text], b"the input");
    let mut output = job.output.try_clone().expect("a descriptor");
    let ended = run(job).await;
    let mut said = String::new();
    std::io::Seek::rewind(&mut output).expect("rewound");
    output.read_to_string(&mut said).expect("text");
    (said, ended)
}

fn message(ended: Result<(), SandboxError>) -> String {
    match ended.expect_err("it failed") {
        SandboxError::Failed { message, .. } => message,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn both_ends_can_be_opened_again() {
    // Opened by name: what is read is read from the beginning, which the descriptor is not at.
    let (said, ended) = script("read -r line </proc/self/fd/0; echo \"$line\" >/proc/self/fd/1").await;
    ended.expect("it may");
    assert_eq!(said, "the input\n");
}

#[tokio::test]
async fn no_other_file_can_be_opened() {
    let dir = tempfile::tempdir().expect("directory");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "secret").expect("written");
    for path in ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/dev/vda", secret.to_str().expect("UTF-8")] {
        let ended = run(job("/bin/cat", &[path], b"")).await;
        let message = message(ended);
        assert!(message.contains("Permission denied") || message.contains("No such file"), "{path}: {message}");
    }
    let denied = [
        format!("echo x >{}", secret.display()),
        format!("echo x >{}/new", dir.path().display()),
        "echo x >/proc/self/fd/0".into(),
        "/bin/cat /etc/passwd".into(),
        "ulimit -v unlimited; ulimit -c 1".into(),
    ];
    for text in denied {
        let message = message(script(&text).await.1);
        assert!(message.contains("denied") || message.contains("not permitted"), "{text}: {message}");
    }
    assert_eq!(std::fs::read(&secret).expect("there"), b"secret");
    assert_eq!(std::fs::read_dir(dir.path()).expect("there").count(), 1);
}

#[tokio::test]
async fn no_socket_and_no_other_process_can_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("bound").port();
    let refused = message(script(&format!("echo x >/dev/tcp/127.0.0.1/{port}")).await.1);
    assert!(refused.contains("Operation not permitted"), "{refused}");
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
    let refused = message(script(&format!("kill -9 {}", other.id())).await.1);
    assert!(refused.contains("Operation not permitted"), "{refused}");
    other.kill().expect("it is still there");
    other.wait().expect("reaped");
}

#[tokio::test]
async fn nothing_is_inherited_and_nothing_can_be_gained() {
    // The shell reads what the kernel says of it, which it may not open, from its input.
    let mut job = job("/bin/bash", &["--norc", "-c", "set; while read -r line; do echo \"$line\"; done"], b"");
    job.input = std::fs::File::open("/proc/self/status").expect("there");
    let mut output = job.output.try_clone().expect("a descriptor");
    assert!(std::env::vars_os().next().is_some(), "there is something to be inherited");
    run(job).await.expect("it may");
    let mut said = String::new();
    std::io::Seek::rewind(&mut output).expect("rewound");
    output.read_to_string(&mut said).expect("text");
    assert!(!said.contains("CARGO"), "{said}");
}

#[tokio::test]
async fn who_takes_too_much_is_ended() {
    let limited = |change: fn(&mut ConvertLimits), program: &str, arguments: &[&str]| {
        let mut job = job(program, arguments, b"");
        change(&mut job.limits);
        run(job)
    };
    let slow = limited(|limits| limits.time = Duration::from_millis(300), "/bin/sleep", &["60"]).await;
    assert!(matches!(slow, Err(SandboxError::Deadline { .. })), "{slow:?}");
    let busy = ["--norc", "-c", "while :; do :; done"];
    let busy = limited(|limits| limits.time = Duration::from_secs(1), "/bin/bash", &busy).await;
    assert!(busy.is_err(), "{busy:?}");
    let greedy = ["--norc", "-c", "x=x; while :; do x=$x$x; done"];
    let greedy = message(limited(|limits| limits.memory = 64 << 20, "/bin/bash", &greedy).await);
    assert!(greedy.contains("cannot allocate") || greedy.contains("unable to allocate"), "{greedy}");
    let job = job("/usr/bin/yes", &[], b"");
    let output = job.output.try_clone().expect("a descriptor");
    let endless = run(job).await;
    assert!(matches!(endless, Err(SandboxError::Failed { .. })), "{endless:?}");
    assert!(output.metadata().expect("there").len() <= LIMITS.output);
}

#[tokio::test]
async fn giving_up_kills_it() {
    let dir = TempDir::new().expect("directory");
    let path = dir.path().join("fifo");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("fifo");
    let open =
        |write| OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(&path).expect("fifo");
    // Both, so that the reader may wait: the last writer but the program goes with the job.
    let reader = open(false);
    let mut job = job("/bin/bash", &["--norc", "-c", "echo up; while :; do :; done"], b"");
    job.output = open(true);
    nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::empty())).expect("blocking");
    let mut lines = BufReader::new(reader);
    let running = tokio::spawn(run(job));
    let first = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        lines.read_line(&mut line).expect("read");
        (line, lines)
    });
    let (line, mut lines) = timeout(GONE, first).await.expect("in time").expect("read");
    assert_eq!(line, "up\n");
    running.abort();
    // There is an end only when nobody has the other side open any more.
    let rest = tokio::task::spawn_blocking(move || lines.read_to_end(&mut Vec::new()));
    assert_eq!(timeout(GONE, rest).await.expect("it is gone").expect("joined").expect("read"), 0);
}

#[tokio::test]
async fn who_is_not_wanted_any_more_is_gone_when_that_is_said() {
    let job = job("/bin/bash", &["--norc", "-c", "echo $$; while :; do :; done"], b"");
    let mut output = job.output.try_clone().expect("a descriptor");
    // Until it has said who it is, and is one of those that the kernel ends first.
    let said = output.try_clone().expect("a descriptor");
    let unwanted = async {
        let mut clock = tokio::time::interval(Duration::from_millis(10));
        loop {
            clock.tick().await;
            let mut pid = [0; 16];
            let length = said.read_at(&mut pid, 0).expect("read");
            let pid = String::from_utf8_lossy(&pid[..length]);
            let score = std::fs::read_to_string(format!("/proc/{}/oom_score_adj", pid.trim()));
            if score.is_ok_and(|score| score.trim() == OOM_SCORE) {
                break;
            }
        }
    };
    let ended = timeout(GONE, run_until(job, unwanted)).await.expect("in time");
    assert!(matches!(ended, Err(SandboxError::Stopped { .. })), "{ended:?}");
    let mut pid = String::new();
    std::io::Seek::rewind(&mut output).expect("rewound");
    output.read_to_string(&mut pid).expect("text");
    assert!(!std::path::Path::new("/proc").join(pid.trim()).exists(), "{pid} is there");
}

#[tokio::test]
async fn what_is_not_there_cannot_be_started() {
    let ended = run(job("/nowhere/qemu-img", &[], b"")).await;
    assert!(matches!(ended, Err(SandboxError::Start { .. })), "{ended:?}");
    assert_eq!(ended.expect_err("failed").kind(), ErrorKind::Internal);
}
