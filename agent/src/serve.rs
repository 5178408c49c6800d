//! The loop: frames from the port to sessions, output of sessions to the port.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use proto::agent::{Decoder, Frame, MAX_SESSIONS, Message, Start, VERSION};

use crate::outbox::Outbox;
use crate::port::Port;
use crate::process;
use crate::session::Session;

/// Bytes that are read from the port at once.
const CHUNK: usize = 64 * 1024;
/// Characters of why a command was not started.
const MAX_WHY: usize = 1024;

struct Agent {
    port: Port,
    decoder: Decoder,
    outbox: Outbox,
    sessions: BTreeMap<u32, Session>,
    /// Killed and not known to have ended. Nobody is told of them.
    dying: Vec<Session>,
    /// The host has gone; a signal will say that it may be back.
    alone: bool,
}

/// Serves until the port fails, or somebody asks the agent to end. What it has started ends with it.
pub(crate) fn serve(port: Port, signals: &SignalFd) -> io::Result<()> {
    let mut agent = Agent {
        port,
        decoder: Decoder::of_controld(),
        outbox: Outbox::default(),
        sessions: BTreeMap::new(),
        dying: Vec::new(),
        alone: false,
    };
    agent.outbox.say(0, Message::Hello { version: VERSION });
    let ended = agent.run(signals);
    agent.end_all();
    ended
}

/// The signals that the agent waits for. They are blocked from now on; the port's would end a process that does not wait for it.
pub(crate) fn signals() -> io::Result<SignalFd> {
    let mut wanted = SigSet::empty();
    wanted.add(Signal::SIGCHLD);
    wanted.add(Signal::SIGIO);
    wanted.add(Signal::SIGTERM);
    wanted.thread_block()?;
    Ok(SignalFd::with_flags(&wanted, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?)
}

impl Agent {
    fn run(&mut self, signals: &SignalFd) -> io::Result<()> {
        loop {
            self.pump();
            self.wait(signals)?;
            while let Ok(Some(signal)) = signals.read_signal() {
                if i32::try_from(signal.ssi_signo) == Ok(Signal::SIGTERM as i32) {
                    return Ok(());
                }
                self.alone = false;
            }
            self.exchange()?;
        }
    }

    fn wait(&self, signals: &SignalFd) -> io::Result<()> {
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if !self.alone {
            let mut events = PollFlags::empty();
            // Who does not take answers gets to ask nothing.
            events.set(PollFlags::POLLIN, !self.outbox.is_full());
            events.set(PollFlags::POLLOUT, !self.outbox.is_empty());
            fds.push(PollFd::new(self.port.as_fd(), events));
        }
        for session in self.sessions.values() {
            session.interests(!self.outbox.is_full(), &mut fds);
        }
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves what can be moved between processes and the outbox.
    fn pump(&mut self) {
        self.dying.retain_mut(|session| !session.has_ended());
        let outbox = &mut self.outbox;
        self.sessions.retain(|id, session| !session.pump(*id, outbox));
    }

    fn exchange(&mut self) -> io::Result<()> {
        if self.alone {
            return Ok(());
        }
        let mut port = [PollFd::new(self.port.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
        poll(&mut port, PollTimeout::ZERO)?;
        let seen = port.first().and_then(PollFd::revents).unwrap_or(PollFlags::empty());
        if seen.contains(PollFlags::POLLHUP) {
            self.alone = true;
            self.end_all();
            self.outbox.epoch = 0;
            self.outbox.clear();
            // Whoever comes next does not end what was half said.
            self.decoder = Decoder::of_controld();
            return Ok(());
        }
        self.outbox.flush(&self.port.file)?;
        if !seen.contains(PollFlags::POLLIN) || self.outbox.is_full() {
            return Ok(());
        }
        let mut chunk = [0; CHUNK];
        match (&self.port.file).read(&mut chunk) {
            Ok(read) => self.decoder.extend(chunk.get(..read).unwrap_or_default()),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        while let Some(frame) = self.decoder.next_frame() {
            self.hear(frame);
        }
        Ok(())
    }

    fn hear(&mut self, frame: Frame) {
        let Frame { epoch, session: id, message } = frame;
        if let Message::Hello { .. } = message {
            self.end_all();
            self.outbox.clear();
            self.outbox.epoch = epoch;
            return self.outbox.say(0, Message::Hello { version: VERSION });
        }
        if epoch != self.outbox.epoch || epoch == 0 {
            return;
        }
        if let Message::Start(start) = message {
            return self.start(id, &start);
        }
        if let Some(session) = self.sessions.get_mut(&id) {
            session.hear(message);
        }
    }

    fn start(&mut self, id: u32, start: &Start) {
        if self.sessions.contains_key(&id) {
            return;
        }
        if self.sessions.len() >= MAX_SESSIONS {
            return self.outbox.say(id, Message::Refused(format!("{MAX_SESSIONS} processes run already; end some")));
        }
        match process::start(start) {
            Ok(process) => {
                self.outbox.say(id, Message::Started { pid: process.child.id() });
                self.sessions.insert(id, Session::new(process));
            }
            // It may have all of the command in it, which controld would not take back.
            Err(why) => self.outbox.say(id, Message::Refused(why.chars().take(MAX_WHY).collect())),
        }
    }

    fn end_all(&mut self) {
        self.sessions.values_mut().for_each(Session::cancel);
        self.dying.extend(std::mem::take(&mut self.sessions).into_values());
    }
}
