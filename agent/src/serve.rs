//! The loop: frames from the port to sessions, output of sessions to the port.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _, stderr};
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use proto::agent::{Decoder, Frame, MAX_CHUNK, MAX_SESSIONS, Message, Setup, Start, VERSION};

use crate::command::{Command, NOT_STARTED, Outlets};
use crate::gate::Gate;
use crate::outbox::Outbox;
use crate::port::Port;
use crate::power::Power;
use crate::process::{self, How};
use crate::session::{Chunk, Session};
use crate::setup::{self, Outcome, Resolver};

/// How often a command's last output is looked at that its port does not take.
const STUCK_LOOK: Duration = Duration::from_secs(1);
/// Characters of why a command was not started.
const MAX_WHY: usize = 1024;

struct Agent {
    port: Port,
    decoder: Decoder,
    outbox: Outbox,
    /// What is read goes through it.
    chunk: Chunk,
    sessions: BTreeMap<u32, Session>,
    /// Killed and not known to have ended. Nobody is told of them.
    dying: Vec<Session>,
    /// The host has gone; a signal will say that it may be back.
    alone: bool,
    /// A process may have ended that nobody has waited for.
    reaps: bool,
    /// What was done last, and what of it was not.
    setup: Option<(Setup, String)>,
    /// Watches a file, if there is a line to be kept in it.
    resolver: Option<Resolver>,
    command: Option<Command>,
    /// There was a command, which is started once.
    has_begun: bool,
    outlets: Outlets,
    power: Power,
    gate: Gate,
    /// Somebody has asked the agent to end, which it does after the machine's command.
    is_ending: bool,
}

/// What a wait has seen.
struct Ready {
    signal: bool,
    /// Nothing if the host is away.
    port: PollFlags,
    resolver: bool,
}

/// Serves until the port fails, or somebody asks the agent to end. What it has started ends with it.
pub(crate) fn serve(port: Port, outlets: Outlets, power: Power, gate: Gate, signals: &SignalFd) -> io::Result<()> {
    let mut agent = Agent {
        port,
        decoder: Decoder::of_controld(),
        outbox: Outbox::default(),
        chunk: Box::new([0; MAX_CHUNK]),
        sessions: BTreeMap::new(),
        dying: Vec::new(),
        alone: false,
        reaps: false,
        setup: None,
        resolver: None,
        command: None,
        has_begun: false,
        outlets,
        power,
        gate,
        is_ending: false,
    };
    agent.outbox.say(0, Message::Hello { version: VERSION });
    let ended = agent.run(signals);
    agent.end_all();
    if let Some(command) = &agent.command {
        command.kill();
    }
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
            if self.power.is_off() || (self.is_ending && self.command.is_none()) {
                return Ok(());
            }
            if !self.alone {
                // Most of it fits, which saves a wait for room. If the port fails, that wait says so.
                let _ = self.outbox.flush(&self.port.file);
            }
            let Ready { signal, port, resolver } = self.wait(signals)?;
            if signal {
                self.heed(signals)?;
            }
            self.resolver.iter_mut().filter(|_| resolver).for_each(Resolver::pump);
            self.exchange(port)?;
        }
    }

    fn heed(&mut self, signals: &SignalFd) -> io::Result<()> {
        while let Ok(Some(signal)) = signals.read_signal() {
            match i32::try_from(signal.ssi_signo).map(Signal::try_from) {
                Ok(Ok(Signal::SIGCHLD)) => self.reaps = true,
                Ok(Ok(Signal::SIGTERM)) => {
                    // The guest shuts down. The command hears it from init, too, but need not lead init's children.
                    self.is_ending = true;
                    self.command.iter_mut().for_each(Command::stop);
                }
                _ => {
                    self.alone = false;
                    self.port.signal(false)?;
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self, signals: &SignalFd) -> io::Result<Ready> {
        let room = !self.outbox.is_full();
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        if !self.alone {
            let mut events = PollFlags::empty();
            // Who does not take answers gets to ask nothing.
            events.set(PollFlags::POLLIN, room);
            events.set(PollFlags::POLLOUT, !self.outbox.is_empty());
            fds.push(PollFd::new(self.port.as_fd(), events));
        }
        let of_resolver = fds.len();
        fds.extend(self.resolver.as_ref().map(|resolver| PollFd::new(resolver.as_fd(), PollFlags::POLLIN)));
        let first = fds.len();
        for session in self.sessions.values() {
            session.interests(room, &mut fds);
        }
        if let Some(command) = &self.command {
            command.interests(&mut fds);
        }
        let is_stuck = self.command.as_ref().is_some_and(Command::is_stuck);
        let limits = [is_stuck.then_some(STUCK_LOOK), self.gate.left()];
        let limit = limits.into_iter().flatten().min();
        let limit = limit.map(|limit| PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX));
        match poll(&mut fds, limit) {
            Ok(_) => {
                let seen: Vec<_> = fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty())).collect();
                let mut of_sessions = seen.iter().skip(first).map(|seen| !seen.is_empty());
                self.sessions.values_mut().for_each(|session| session.saw(room, &mut of_sessions));
                let seen = |at: usize| seen.get(at).copied().unwrap_or(PollFlags::empty());
                let port = if self.alone { PollFlags::empty() } else { seen(1) };
                let resolver = of_resolver < first && !seen(of_resolver).is_empty();
                Ok(Ready { signal: !seen(0).is_empty(), port, resolver })
            }
            Err(nix::errno::Errno::EINTR) => Ok(Ready { signal: true, port: PollFlags::empty(), resolver: false }),
            Err(error) => Err(error.into()),
        }
    }

    /// Moves what can be moved between processes and the outbox.
    fn pump(&mut self) {
        let outbox = &mut self.outbox;
        let chunk = &mut self.chunk;
        if std::mem::take(&mut self.reaps) {
            self.dying.iter_mut().chain(self.sessions.values_mut()).for_each(Session::reap);
            self.command.iter_mut().for_each(Command::reap);
        }
        self.dying.retain(|session| !session.has_ended());
        self.sessions.retain(|id, session| !session.pump(*id, outbox, chunk));
        if let Some(code) = self.command.as_mut().and_then(|command| command.pump(outbox, chunk)) {
            self.command = None;
            self.over(code, "");
        }
        self.power.pump();
        self.gate.pump();
    }

    /// The machine's command is over, and so is the machine.
    fn over(&mut self, code: u8, why: &str) {
        if let Err(error) = self.outlets.tell(code, why) {
            // The machine ends as any that powers off.
            let _ = writeln!(stderr(), "virtlet-agent: the end of the machine's command is told to nobody: {error}");
        }
        // Who is attached has to hear of it before the guest is off. A port that takes nothing holds that up no longer.
        let _ = self.outbox.flush(&self.port.file);
        // A guest that shuts down or reboots does so without us, and one that restarts its agent is to stay.
        if !self.is_ending {
            self.power.off();
        }
    }

    /// Reads from the port and writes to it, as a wait has seen that it can be.
    fn exchange(&mut self, seen: PollFlags) -> io::Result<()> {
        if seen.contains(PollFlags::POLLHUP) {
            self.port.signal(true)?;
            // It may have come back before that.
            self.alone = self.port.is_alone()?;
            self.end_all();
            self.outbox.epoch = 0;
            self.outbox.clear();
            // Whoever comes next does not end what was half said.
            self.decoder = Decoder::of_controld();
            return Ok(());
        }
        if seen.contains(PollFlags::POLLOUT) {
            self.outbox.flush(&self.port.file)?;
        }
        if !seen.contains(PollFlags::POLLIN) || self.outbox.is_full() {
            return Ok(());
        }
        match (&self.port.file).read(&mut *self.chunk) {
            Ok(read) => self.decoder.extend(self.chunk.get(..read).unwrap_or_default()),
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
            if self.gate.holds() {
                // Before the answer, with which controld takes the guest for one that can be told how it is to be.
                self.outbox.say(0, Message::Waits);
            }
            return self.outbox.say(0, Message::Hello { version: VERSION });
        }
        if epoch != self.outbox.epoch || epoch == 0 {
            return;
        }
        match message {
            Message::Start(start) => return self.start(id, &start),
            // Of a controld that has not heard yet that this waits; it says it again.
            Message::Setup(_) if self.gate.is_closed() => return,
            Message::Setup(setup) => return self.set_up(setup),
            Message::Attach => return self.attach(id),
            Message::GoOn => return self.gate.open(),
            Message::Stop => {
                return match &mut self.command {
                    Some(command) => command.stop(),
                    None => self.power.off(),
                };
            }
            _ => {}
        }
        if self.command.as_mut().is_some_and(|command| command.hear(id, &message)) {
            return;
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
        // Somebody may have written the file since the last look: a process that is started after that is to find the line in it.
        self.resolver.iter_mut().for_each(Resolver::pump);
        let joins = self.command.as_ref().and_then(Command::root_of);
        match process::start(start, How { joins, ..How::default() }) {
            Ok(process) => {
                self.outbox.say(id, Message::Started { pid: process.child.id() });
                self.sessions.insert(id, Session::new(process));
            }
            // It may have all of the command in it, which controld would not take back.
            Err(why) => self.outbox.say(id, Message::Refused(why.chars().take(MAX_WHY).collect())),
        }
    }

    /// Does what was not done before: `controld` says it again after each greeting.
    fn set_up(&mut self, setup: Setup) {
        let is_new = self.setup.as_ref().is_none_or(|(done, _)| *done != setup);
        if is_new {
            let Outcome { failed, obstacle, resolver } = setup::apply(&setup);
            self.resolver = resolver;
            if let Some(main) = setup.main.as_ref().filter(|_| !self.has_begun) {
                self.has_begun = true;
                let started = match obstacle {
                    Some(why) => Err((NOT_STARTED, why)),
                    None => Command::start(main, &self.outlets),
                };
                match started {
                    Ok(command) => self.command = Some(command),
                    Err((code, why)) => self.over(code, &why.chars().take(MAX_WHY).collect::<String>()),
                }
            }
            self.setup = Some((setup, failed));
        }
        let failed = self.setup.as_ref().map(|(_, failed)| failed.chars().take(MAX_WHY).collect());
        self.outbox.say(0, Message::Ready(failed.unwrap_or_default()));
    }

    fn attach(&mut self, id: u32) {
        match &mut self.command {
            Some(_) if self.sessions.contains_key(&id) => {}
            Some(command) => {
                command.attach(id);
                self.outbox.say(id, Message::Started { pid: command.pid() });
            }
            None => self.outbox.say(id, Message::Refused("the machine's command does not run".into())),
        }
    }

    fn end_all(&mut self) {
        self.command.iter_mut().for_each(Command::detach_all);
        self.sessions.values_mut().for_each(Session::cancel);
        self.dying.extend(std::mem::take(&mut self.sessions).into_values());
    }
}
