//! The command that the machine is for. It outlives connections. Its output goes to a port that is a file at the other end, and from
//! there to whoever is attached at the time: one that takes too little misses some, and holds up nobody.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proto::agent::log::Lines;
use proto::agent::{EXIT_PORT, LOG_PORT, Main, Message, Owed, Stream, WINDOW};

use crate::outbox::Outbox;
use crate::port;
use crate::process::{self, How, Process};
use crate::session::{Chunk, END_OF_TRANSMISSION, LAST, code};
use crate::tree;

/// Bytes of input of all together that the command may have before it.
const MAX_INPUT: usize = 4 << 20;
/// What is said of a command that could not be started: shells say so, too.
pub(crate) const NOT_STARTED: u8 = 127;

/// Where output and end of the command go.
#[derive(Debug)]
pub(crate) enum Outlets {
    /// The machine's ports of their names.
    Ports,
    /// For tests.
    Files { log: PathBuf, exit: PathBuf },
}

/// How long the port of a command that has ended may take nothing: a node whose disk is full does not hold the machine for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// The command, from its start on.
#[derive(Debug)]
pub(crate) struct Command {
    process: Process,
    stop_signal: Signal,
    is_stopping: bool,
    has_own_root: bool,
    /// `None` if the machine has no such port.
    log: Option<File>,
    /// What the port has not taken yet.
    output: Vec<u8>,
    /// Output and errors that have no line end yet.
    lines: [Lines; 2],
    /// What is still read after the end.
    last: usize,
    /// With the session that it came from.
    input: VecDeque<(u32, Vec<u8>)>,
    input_ends: bool,
    clients: BTreeMap<u32, Client>,
    code: Option<u8>,
    /// Until when its port may take what it printed last.
    patience: Option<Instant>,
}

/// Somebody who is attached.
#[derive(Debug)]
struct Client {
    /// Bytes of each output that it may still be sent.
    credits: [u32; 2],
    /// For its input that the command has taken.
    owed: Owed,
}

/// What a look at its output brought.
enum Got {
    Output,
    /// More may come.
    Nothing,
    End,
}

impl Outlets {
    fn log(&self) -> io::Result<File> {
        match self {
            Self::Ports => port::open(LOG_PORT),
            Self::Files { log, .. } => File::options().append(true).create(true).open(log),
        }
    }

    /// Says how the command ended.
    pub(crate) fn tell(&self, code: u8, why: &str) -> io::Result<()> {
        let mut exit = match self {
            Self::Ports => port::open(EXIT_PORT)?,
            Self::Files { exit, .. } => File::options().append(true).create(true).open(exit)?,
        };
        // One line, and one write: it is short.
        let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        exit.write_all(format!("{code} {why}\n").as_bytes())
    }
}

impl Command {
    /// # Errors
    /// When it cannot be started: exit code and reason.
    pub(crate) fn start(main: &Main, outlets: &Outlets) -> Result<Self, (u8, String)> {
        let refused = |why: String| (NOT_STARTED, why);
        let log = outlets.log().map_err(|error| refused(format!("its output has nowhere to go: {error}")))?;
        let how = How { read_only_root: main.read_only_root, ends_with_us: true, joins: None };
        let process = process::start(&main.start, how).map_err(refused)?;
        Ok(Self {
            process,
            stop_signal: Signal::try_from(i32::from(main.stop_signal)).unwrap_or(Signal::SIGTERM),
            is_stopping: false,
            has_own_root: main.read_only_root,
            log: Some(log),
            output: Vec::new(),
            lines: Stream::OUTPUTS.map(Lines::of),
            last: LAST,
            input: VecDeque::new(),
            input_ends: false,
            clients: BTreeMap::new(),
            code: None,
            patience: None,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Its process, if other commands are to see the file systems as it does.
    pub(crate) fn root_of(&self) -> Option<u32> {
        self.has_own_root.then(|| self.pid())
    }

    pub(crate) fn interests<'a>(&'a self, fds: &mut Vec<PollFd<'a>>) {
        if self.output.is_empty() {
            let from = [&self.process.stdout, &self.process.stderr].into_iter().flatten();
            fds.extend(from.map(|from| PollFd::new(from.as_fd(), PollFlags::POLLIN)));
        } else {
            fds.extend(self.log.as_ref().map(|to| PollFd::new(to.as_fd(), PollFlags::POLLOUT)));
        }
        if !self.input.is_empty() {
            fds.extend(self.process.stdin.as_ref().map(|stdin| PollFd::new(stdin.as_fd(), PollFlags::POLLOUT)));
        }
    }

    /// Whether it has ended, and its port does not take what it printed last.
    pub(crate) fn is_stuck(&self) -> bool {
        self.code.is_some() && !self.output.is_empty()
    }

    pub(crate) fn attach(&mut self, session: u32) {
        self.clients.insert(session, Client { credits: [WINDOW; 2], owed: Owed::default() });
    }

    /// `false` for what is about another session.
    pub(crate) fn hear(&mut self, session: u32, message: &Message) -> bool {
        let Some(Client { credits: [out, err], .. }) = self.clients.get_mut(&session) else { return false };
        let add = |credit: &mut u32, bytes: u32| *credit = credit.saturating_add(bytes).min(WINDOW);
        match message {
            Message::Credit { stream: Stream::Stdout, bytes } => add(out, *bytes),
            Message::Credit { stream: Stream::Stderr, bytes } => add(err, *bytes),
            Message::Stdin(data) => {
                let waits = |of_all: bool| {
                    let some = self.input.iter().filter(|(whose, _)| of_all || *whose == session);
                    some.map(|(_, data)| data.len()).sum::<usize>() + data.len()
                };
                // Those who have left count, too.
                if waits(false) <= WINDOW as usize && waits(true) <= MAX_INPUT {
                    self.input.push_back((session, data.clone()));
                }
            }
            Message::StdinEnd => self.input_ends = true,
            Message::Resize(size) => {
                if let Some(terminal) = self.process.terminal.then_some(self.process.stdout.as_ref()).flatten() {
                    // A terminal that is gone has no size.
                    let _ = process::resize(terminal, *size);
                }
            }
            Message::Cancel => drop(self.clients.remove(&session)),
            _ => {}
        }
        true
    }

    /// The connection is another one, so nobody is attached.
    pub(crate) fn detach_all(&mut self) {
        self.clients.clear();
        self.input.clear();
    }

    /// Sends it the signal that ends it, once. What it has started is its own affair, as in a container.
    pub(crate) fn stop(&mut self) {
        if !self.is_stopping && self.code.is_none() {
            self.is_stopping = true;
            // It may have ended.
            let _ = kill(self.leader(), self.stop_signal);
        }
    }

    /// Kills it with all that came of it.
    pub(crate) fn kill(&self) {
        if self.code.is_none() {
            tree::kill(self.leader());
        }
    }

    /// Looks whether it has ended.
    pub(crate) fn reap(&mut self) {
        if self.code.is_none() {
            self.code = self.process.child.try_wait().ok().flatten().map(code);
        }
    }

    /// Moves what can be moved; its exit code once it has ended and all of its output is where it goes.
    pub(crate) fn pump(&mut self, outbox: &mut Outbox, chunk: &mut Chunk) -> Option<u8> {
        self.feed(outbox);
        loop {
            self.flush();
            if self.is_stuck() {
                let until = *self.patience.get_or_insert_with(|| Instant::now() + PATIENCE);
                if Instant::now() < until {
                    return None;
                }
                self.log = None;
                self.output.clear();
            }
            if !self.output.is_empty() {
                return None;
            }
            match self.read(outbox, chunk) {
                // Others have their turn between two chunks of one that runs.
                Got::Output if self.code.is_some() => {}
                Got::Output | Got::Nothing => return None,
                Got::End if self.output.is_empty() => break,
                // The rest of the last line.
                Got::End => return None,
            }
        }
        let code = self.code?;
        for (session, _) in std::mem::take(&mut self.clients) {
            outbox.say(session, Message::Exited { code });
        }
        Some(code)
    }

    fn flush(&mut self) {
        while let Some(log) = self.log.as_mut().filter(|_| !self.output.is_empty()) {
            match log.write(&self.output) {
                Ok(written) => drop(self.output.drain(..written)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_gone) => self.log = None,
            }
        }
        if self.log.is_none() {
            self.output.clear();
        }
    }

    /// Reads a chunk of each output.
    fn read(&mut self, outbox: &mut Outbox, chunk: &mut Chunk) -> Got {
        let got = Stream::OUTPUTS.map(|stream| self.read_one(stream, outbox, chunk));
        self.flush();
        match got {
            [Got::End, Got::End] => Got::End,
            [Got::Output, _] | [_, Got::Output] => Got::Output,
            _ => Got::Nothing,
        }
    }

    fn read_one(&mut self, stream: Stream, outbox: &mut Outbox, chunk: &mut Chunk) -> Got {
        let ended = self.code.is_some();
        let (open, lines, which) = match stream {
            Stream::Stderr => (&mut self.process.stderr, &mut self.lines[1], 1),
            _ => (&mut self.process.stdout, &mut self.lines[0], 0),
        };
        let read = match open.as_mut().filter(|_| !ended || self.last > 0).map(|open| open.read(&mut **chunk)) {
            Some(Ok(read)) => read,
            Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock && ended => 0,
            Some(Err(error)) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Got::Nothing;
            }
            // A terminal that nobody has open any more says EIO.
            Some(Err(_)) | None => 0,
        };
        if read == 0 {
            *open = None;
            lines.end(&mut self.output);
            return Got::End;
        }
        let chunk = chunk.get(..read).unwrap_or_default();
        self.last -= if ended { read.min(self.last) } else { 0 };
        lines.add(chunk, &mut self.output);
        for (session, Client { credits, .. }) in &mut self.clients {
            let Some(credit) = credits.get_mut(which) else { continue };
            let left = u32::try_from(read).ok().and_then(|read| credit.checked_sub(read));
            // Whoever does not keep up misses some.
            if let Some(left) = left.filter(|_| !outbox.is_full()) {
                *credit = left;
                let chunk = chunk.to_vec();
                outbox.say(*session, if which == 1 { Message::Stderr(chunk) } else { Message::Stdout(chunk) });
            }
        }
        Got::Output
    }

    fn feed(&mut self, outbox: &mut Outbox) {
        if self.input_ends && self.process.terminal && self.process.stdin.is_some() {
            self.input_ends = false;
            self.input.push_back((0, vec![END_OF_TRANSMISSION]));
        }
        while let Some((session, data)) = self.input.front_mut() {
            let taken = match self.process.stdin.as_mut().map(|stdin| stdin.write(data)) {
                Some(Ok(taken)) => taken,
                Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => break,
                Some(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
                Some(Err(_not_read_any_more)) => {
                    self.process.stdin = None;
                    continue;
                }
                // Nobody reads it.
                None => data.len(),
            };
            data.drain(..taken);
            let (session, is_done) = (*session, data.is_empty());
            if let Some(bytes) = self.clients.get_mut(&session).and_then(|client| client.owed.taken(taken)) {
                outbox.say(session, Message::Credit { stream: Stream::Stdin, bytes });
            }
            if is_done {
                self.input.pop_front();
            }
        }
        if self.input_ends && self.input.is_empty() {
            self.process.stdin = None;
        }
    }

    fn leader(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.pid()).unwrap_or(i32::MAX))
    }
}
