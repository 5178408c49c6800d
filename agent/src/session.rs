//! A process and its streams, with their credit.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use proto::agent::{MAX_CHUNK, Message, Owed, Stream, WINDOW};

use crate::outbox::Outbox;
use crate::process::{self, Process};
use crate::tree;

/// End of input as a terminal's user types it.
pub(crate) const END_OF_TRANSMISSION: u8 = 4;

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    process: Process,
    input: Vec<u8>,
    input_ends: bool,
    /// For input that the process has taken.
    owed: Owed,
    stdout: Credit,
    stderr: Credit,
    exited: Option<u8>,
}

/// Room for a piece of output. One for all: to clear a new one for each look at a pipe would take longer than all else.
pub(crate) type Chunk = Box<[u8; MAX_CHUNK]>;

/// What is read of each output after the process has ended. A pipe holds no more, unless root made it larger; what another process
/// goes on writing is not this one's output.
pub(crate) const LAST: usize = 1 << 20;

/// What may still be sent of an output.
#[derive(Debug)]
struct Credit {
    bytes: u32,
    /// The last poll has seen something to read.
    ready: bool,
    /// Of a process that has ended.
    last: usize,
}

impl Session {
    pub(crate) fn new(process: Process) -> Self {
        let full = || Credit { bytes: WINDOW, ready: false, last: LAST };
        Self {
            process,
            input: Vec::new(),
            input_ends: false,
            owed: Owed::default(),
            stdout: full(),
            stderr: full(),
            exited: None,
        }
    }

    /// What a poll is to wait for.
    pub(crate) fn interests<'a>(&'a self, room: bool, fds: &mut Vec<PollFd<'a>>) {
        let outputs = [(&self.process.stdout, &self.stdout), (&self.process.stderr, &self.stderr)];
        for (file, credit) in outputs {
            if let Some(file) = file.as_ref().filter(|_| room && credit.bytes > 0) {
                fds.push(PollFd::new(file.as_fd(), PollFlags::POLLIN));
            }
        }
        if let Some(stdin) = self.process.stdin.as_ref().filter(|_| !self.input.is_empty()) {
            fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLOUT));
        }
    }

    /// Takes what a poll has seen of [`Session::interests`], in their order. Nothing has changed since.
    pub(crate) fn saw(&mut self, room: bool, seen: &mut impl Iterator<Item = bool>) {
        let outputs = [(&self.process.stdout, &mut self.stdout), (&self.process.stderr, &mut self.stderr)];
        for (file, credit) in outputs {
            credit.ready = file.is_some() && room && credit.bytes > 0 && seen.next().unwrap_or(false);
        }
        if self.process.stdin.is_some() && !self.input.is_empty() {
            // To write is to try.
            seen.next();
        }
    }

    pub(crate) fn hear(&mut self, message: Message) {
        match message {
            Message::Stdin(data) if self.input.len() + data.len() <= WINDOW as usize => self.input.extend(data),
            Message::StdinEnd => self.input_ends = true,
            Message::Credit { stream: Stream::Stdout, bytes } => self.stdout.add(bytes),
            Message::Credit { stream: Stream::Stderr, bytes } => self.stderr.add(bytes),
            Message::Resize(size) => {
                if let Some(terminal) = self.process.terminal.then_some(self.process.stdout.as_ref()).flatten() {
                    // A terminal that is gone has no size.
                    let _ = process::resize(terminal, size);
                }
            }
            Message::Signal(number) => {
                if let (Ok(signal), None) = (Signal::try_from(i32::from(number)), self.exited) {
                    // The group may have ended.
                    let _ = killpg(self.pid(), signal);
                }
            }
            Message::Cancel => self.cancel(),
            _ => {}
        }
    }

    /// Kills the process and all that came of it.
    pub(crate) fn cancel(&mut self) {
        if self.exited.is_none() {
            tree::kill(self.pid());
        }
        (self.process.stdin, self.process.stdout, self.process.stderr) = (None, None, None);
    }

    /// Looks whether it has ended.
    pub(crate) fn reap(&mut self) {
        if self.exited.is_none() {
            self.exited = self.process.child.try_wait().ok().flatten().map(code);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exited.is_some()
    }

    /// Moves what can be moved; whether that was the last.
    pub(crate) fn pump(&mut self, id: u32, outbox: &mut Outbox, chunk: &mut Chunk) -> bool {
        let ended = self.has_ended();
        self.feed(id, outbox);
        let Self { process, stdout, stderr, .. } = self;
        let stdout = stdout.read(&mut process.stdout, ended, outbox, chunk, |data| (id, Message::Stdout(data)));
        let stderr = stderr.read(&mut process.stderr, ended, outbox, chunk, |data| (id, Message::Stderr(data)));
        // What another process may yet write is not this one's output.
        let Some(code) = self.exited.filter(|_| stdout && stderr) else { return false };
        outbox.say(id, Message::Exited { code });
        true
    }

    fn feed(&mut self, id: u32, outbox: &mut Outbox) {
        if self.input_ends && self.process.terminal && self.process.stdin.is_some() {
            self.input_ends = false;
            self.input.push(END_OF_TRANSMISSION);
        }
        let mut taken = 0;
        while let Some(stdin) = self.process.stdin.as_mut().filter(|_| taken < self.input.len()) {
            match stdin.write(self.input.get(taken..).unwrap_or_default()) {
                Ok(written) => taken += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_not_read_any_more) => self.process.stdin = None,
            }
        }
        if self.process.stdin.is_none() {
            taken = self.input.len();
        }
        self.input.drain(..taken);
        if let Some(bytes) = self.owed.taken(taken) {
            outbox.say(id, Message::Credit { stream: Stream::Stdin, bytes });
        }
        if self.input_ends && self.input.is_empty() {
            self.process.stdin = None;
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.child.id()).unwrap_or(i32::MAX))
    }
}

impl Credit {
    fn add(&mut self, bytes: u32) {
        self.bytes = self.bytes.saturating_add(bytes).min(WINDOW);
    }

    /// Reads one chunk if there is one, or all that there is of a process that has ended; whether there is no more.
    fn read(
        &mut self,
        file: &mut Option<File>,
        ended: bool,
        outbox: &mut Outbox,
        chunk: &mut Chunk,
        say: impl Fn(Vec<u8>) -> (u32, Message),
    ) -> bool {
        loop {
            let Some(open) = file else { return true };
            if ended && self.last == 0 {
                return true;
            }
            if self.bytes == 0 || outbox.is_full() || !(ended || std::mem::take(&mut self.ready)) {
                return false;
            }
            let room = MAX_CHUNK.min(self.bytes as usize);
            match open.read(chunk.get_mut(..room).unwrap_or_default()) {
                Ok(0) => *file = None,
                Ok(read) => {
                    self.bytes -= u32::try_from(read).unwrap_or(self.bytes);
                    self.last -= if ended { read.min(self.last) } else { 0 };
                    let (id, message) = say(chunk.get(..read).unwrap_or_default().to_vec());
                    outbox.say(id, message);
                    if !ended {
                        return false;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ended,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A terminal that nobody has open any more says EIO.
                Err(_end) => *file = None,
            }
        }
    }
}

/// As shells have it.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
