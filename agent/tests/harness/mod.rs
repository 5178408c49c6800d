//! The agent as `controld` meets it, over a socket instead of a port.
#![allow(clippy::unwrap_used, reason = "a test")]
#![allow(dead_code, reason = "each file of tests uses its part")]

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::agent::{Decoder, Frame, Message, Start, Stream, VERSION, encode};

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
    pub(crate) decoder: Decoder,
    pub(crate) epoch: u64,
    /// The agent's own process, where that is not the one that was started.
    pub(crate) daemon: Option<u32>,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::with::<&str>(&[])
    }

    /// With files in place of its other ports.
    pub(crate) fn with<T: AsRef<OsStr>>(files: &[T]) -> Self {
        // As a script of an init does it that starts it in the background.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' INT QUIT; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_virtlet-agent"), "-"]);
        Self::of(command.args(files))
    }

    /// One whose guest waits at the gate. What was started waits with it; the agent is a process of its own.
    pub(crate) fn at_gate() -> Self {
        let mut agent = Self::begun(Command::new(env!("CARGO_BIN_EXE_virtlet-agent")).args(["gate", "-"]));
        agent.greet_at_gate(7);
        agent.run(1, sh("echo $PPID"));
        agent.daemon = agent.rest(1).0.trim().parse().ok();
        agent
    }

    /// With file systems of its own, in which a script prepares some and then runs the words that it is given.
    pub(crate) fn apart<T: AsRef<OsStr>>(script: &str, files: &[T]) -> Self {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-ec", script, env!("CARGO_BIN_EXE_virtlet-agent"), "-"]);
        Self::of(command.args(files))
    }

    /// What a script prints that sees the file systems of an agent apart. It is not the agent's own: root of a user namespace may
    /// not set groups.
    pub(crate) fn sees(&self, script: &str) -> String {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.child.id().to_string(), "--user", "--preserve-credentials", "--mount"]);
        let output = command.args(["sh", "-c", script]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn of(command: &mut Command) -> Self {
        let mut agent = Self::begun(command);
        agent.greet(7);
        agent
    }

    fn begun(command: &mut Command) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(DEADLINE)).unwrap();
        let child = command.stdin(Stdio::from(OwnedFd::from(theirs))).spawn();
        let child = child.expect("starts; util-linux and user namespaces are needed");
        let mut agent = Self { child, socket, decoder: Decoder::of_agent(), epoch: 0, daemon: None };
        agent.begins();
        agent
    }

    /// The agent has started, for the first time or again.
    pub(crate) fn begins(&mut self) {
        self.epoch = 0;
        self.expect(0, &Message::Hello { version: VERSION });
    }

    pub(crate) fn greet(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.say(0, Message::Hello { version: VERSION });
        self.expect(0, &Message::Hello { version: VERSION });
    }

    pub(crate) fn greet_at_gate(&mut self, epoch: u64) {
        self.epoch = epoch;
        self.say(0, Message::Hello { version: VERSION });
        self.expect(0, &Message::Waits);
        self.expect(0, &Message::Hello { version: VERSION });
    }

    pub(crate) fn say(&mut self, session: u32, message: Message) {
        let bytes = encode(&Frame { epoch: self.epoch, session, message }).unwrap();
        self.socket.write_all(&bytes).unwrap();
    }

    /// The next message of this epoch.
    pub(crate) fn hear(&mut self) -> (u32, Message) {
        loop {
            if let Some(frame) = self.decoder.next_frame() {
                if frame.epoch == self.epoch {
                    return (frame.session, frame.message);
                }
                continue;
            }
            let mut chunk = [0; 65536];
            let read = self.socket.read(&mut chunk).expect("the agent answers in time");
            assert_ne!(read, 0, "the agent has ended");
            self.decoder.extend(&chunk[..read]);
        }
    }

    pub(crate) fn expect(&mut self, session: u32, message: &Message) {
        assert_eq!(self.hear(), (session, message.clone()));
    }

    pub(crate) fn run(&mut self, session: u32, start: Start) -> u32 {
        self.say(session, Message::Start(start));
        match self.hear() {
            (who, Message::Started { pid }) if who == session => pid,
            other => panic!("not started: {other:?}"),
        }
    }

    /// All output until the end, and the exit code.
    pub(crate) fn rest(&mut self, session: u32) -> (String, String, u8) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        loop {
            let (stream, bytes) = match self.hear().1 {
                Message::Stdout(data) => (Stream::Stdout, {
                    out.extend(&data);
                    data.len()
                }),
                Message::Stderr(data) => (Stream::Stderr, {
                    err.extend(&data);
                    data.len()
                }),
                Message::Exited { code } => {
                    return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), code);
                }
                Message::Credit { .. } => continue,
                other => panic!("{other:?}"),
            };
            let bytes = bytes.try_into().unwrap();
            self.say(session, Message::Credit { stream, bytes });
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        // It may have ended.
        let daemon = self.daemon.map(|daemon| Pid::from_raw(daemon.try_into().unwrap()));
        let _ = daemon.map(|daemon| kill(daemon, Signal::SIGKILL));
    }
}

pub(crate) fn sh(script: &str) -> Start {
    Start { argv: ["sh", "-c", script].map(String::from).into(), ..Start::default() }
}

pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits for what was killed: a signal takes effect when the kernel gets to it.
pub(crate) fn wait_for(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < DEADLINE, "no {what}");
        std::thread::yield_now();
    }
}
