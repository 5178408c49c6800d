//! What both tasks of a connection to our agent have in common with its sessions: who waits for what, with which credit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use proto::agent::{EncodeError, Frame, MAX_SESSIONS, Message, Owed, Setup, Stream, VERSION, WINDOW, encode};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use super::events::{Event, Receiver, Sender, queue};

/// How long the guest may take to take a frame, or to start a process.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// What both tasks and all sessions have of it.
#[derive(Debug)]
pub(super) struct Shared {
    frames: mpsc::Sender<Vec<u8>>,
    sessions: Mutex<HashMap<u32, Session>>,
    next: AtomicU32,
    epoch: AtomicU64,
    /// What the agent is told at each greeting, if there is something.
    setup: Arc<OnceLock<Setup>>,
    /// How often it has answered that, since its greeting.
    pub(super) ready: watch::Sender<u32>,
    /// What it could not do was told.
    was_told: AtomicBool,
    pub(super) greeted: watch::Sender<bool>,
    /// Whether its guest waits at the gate, as it says before it answers a greeting. It counts as greeted once it goes on.
    pub(super) gate: watch::Sender<bool>,
    /// Bytes that nobody asked for.
    pub(super) unasked: AtomicU64,
    pub(super) closed: CancellationToken,
}

/// A session as the reader knows it.
#[derive(Debug)]
struct Session {
    events: Sender,
    started: bool,
    stdout: Credit,
    stderr: Credit,
    /// What may still be sent.
    stdin: Arc<Semaphore>,
}

/// Of an output.
#[derive(Debug)]
struct Credit {
    /// Bytes that may still come.
    left: u32,
    owed: Owed,
}

/// A session that has begun, and the frame that tells the agent.
pub(super) struct Begun {
    pub(super) id: u32,
    pub(super) events: Receiver,
    /// How much it may be sent.
    pub(super) stdin: Arc<Semaphore>,
    pub(super) frame: Vec<u8>,
}

/// Whoever has input for it hears that nobody takes it.
impl Drop for Session {
    fn drop(&mut self) {
        self.stdin.close();
    }
}

impl Shared {
    pub(super) fn new(frames: mpsc::Sender<Vec<u8>>, setup: Arc<OnceLock<Setup>>) -> Self {
        Self {
            frames,
            sessions: Mutex::default(),
            next: AtomicU32::new(1),
            epoch: AtomicU64::new(0),
            setup,
            ready: watch::Sender::new(0),
            was_told: AtomicBool::new(false),
            greeted: watch::Sender::new(false),
            gate: watch::Sender::new(false),
            unasked: AtomicU64::new(0),
            closed: CancellationToken::new(),
        }
    }

    /// A new session with the frame that starts it. Both are of one epoch: an agent that begins anew meanwhile starts nothing that
    /// nobody knows.
    pub(super) fn begin(&self, first: Message) -> Result<Begun> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (events, heard) = queue();
        let stdin = Arc::new(Semaphore::new(WINDOW as usize));
        let full = || Credit { left: WINDOW, owed: Owed::default() };
        let session = Session { events, started: false, stdout: full(), stderr: full(), stdin: stdin.clone() };
        let mut sessions = self.sessions();
        if sessions.len() >= MAX_SESSIONS {
            let what = format!("{MAX_SESSIONS} commands run in the guest already; end some");
            return Err(Error::new(Kind::Exhausted, what));
        }
        let frame = self.frame(id, first).map_err(too_long)?;
        sessions.insert(id, session);
        Ok(Begun { id, events: heard, stdin, frame })
    }

    /// Sends a message of a session.
    pub(super) async fn say(&self, session: u32, message: Message) -> Result<()> {
        self.send(self.frame(session, message).map_err(too_long)?).await
    }

    /// Sends a frame.
    pub(super) async fn send(&self, frame: Vec<u8>) -> Result<()> {
        match self.closed.run_until_cancelled(timeout(ANSWER_DEADLINE, self.frames.send(frame))).await {
            Some(Ok(Ok(()))) => Ok(()),
            None | Some(Ok(Err(_))) => Err(lost()),
            Some(Err(_elapsed)) => {
                self.closed.cancel();
                let what = format!("the guest's agent took nothing for {} s", ANSWER_DEADLINE.as_secs());
                Err(Error::new(Kind::Deadline, what))
            }
        }
    }

    /// Ends a session whose process nobody waits for any more.
    pub(super) fn cancel(self: &Arc<Self>, id: u32) {
        if self.sessions().remove(&id).is_none() {
            return;
        }
        // What is on its way was asked for.
        let late = 2 * u64::from(WINDOW);
        let _ =
            self.unasked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |bytes| Some(bytes.saturating_sub(late)));
        match (self.frames.try_reserve(), Handle::try_current()) {
            (Ok(place), _) => drop(self.frame(id, Message::Cancel).map(|frame| place.send(frame))),
            // Others have much to say. A guest that takes nothing loses the connection, which ends all that the agent has running.
            (Err(_), Ok(runtime)) => {
                let link = self.clone();
                runtime.spawn(async move { link.say(id, Message::Cancel).await });
            }
            (Err(_), Err(_)) => self.closed.cancel(),
        }
    }

    pub(super) fn end(&self, id: u32) {
        self.sessions().remove(&id);
    }

    /// Gives credit for what was taken out of an output, once that is worth a frame.
    pub(super) async fn taken(&self, id: u32, stream: Stream, bytes: usize) {
        let given = self.sessions().get_mut(&id).and_then(|session| match stream {
            Stream::Stdout => session.stdout.give(bytes),
            Stream::Stderr => session.stderr.give(bytes),
            Stream::Stdin => None,
        });
        if let Some(bytes) = given {
            // A connection that is lost ends the session, too.
            let _ = self.say(id, Message::Credit { stream, bytes }).await;
        }
    }

    /// Ends all sessions: whoever has one hears of it.
    pub(super) fn end_all(&self) {
        self.sessions().clear();
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<u32, Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn frame(&self, session: u32, message: Message) -> Result<Vec<u8>, EncodeError> {
        encode(&Frame { epoch: self.epoch.load(Ordering::Relaxed), session, message })
    }

    /// Begins an epoch. What ran is lost.
    pub(super) fn greet(&self) {
        let epoch = Uuid::new_v4().as_u64_pair().0.max(1);
        self.greeted.send_replace(false);
        self.gate.send_replace(false);
        self.ready.send_replace(0);
        let mut sessions = self.sessions();
        self.epoch.store(epoch, Ordering::Relaxed);
        sessions.clear();
        drop(sessions);
        let hello = self.frame(0, Message::Hello { version: VERSION });
        if !hello.is_ok_and(|frame| self.frames.try_send(frame).is_ok()) {
            self.closed.cancel();
        }
    }

    /// An agent has answered, whose guest is past the gate.
    fn answered(&self) {
        // A guest could greet all day.
        if !*self.greeted.borrow() {
            self.set_up();
        }
        self.greeted.send_replace(true);
    }

    /// Lets a guest go on that waits at the gate; fine if it does not.
    pub(super) async fn open_gate(&self) -> Result<()> {
        if !*self.gate.borrow() {
            return Ok(());
        }
        self.say(0, Message::GoOn).await?;
        if self.gate.send_replace(false) {
            self.answered();
        }
        Ok(())
    }

    /// Whether an agent says that its guest waits at the gate before the connection is closed.
    pub(super) async fn waits(&self) -> bool {
        let mut gate = self.gate.subscribe();
        self.closed.run_until_cancelled(gate.wait_for(|waits| *waits)).await.is_some_and(|answer| answer.is_ok())
    }

    /// Whether an agent answers before the connection is closed.
    pub(super) async fn is_greeted(&self) -> bool {
        let mut greeted = self.greeted.subscribe();
        self.closed.run_until_cancelled(greeted.wait_for(|greeted| *greeted)).await.is_some_and(|answer| answer.is_ok())
    }

    /// Whether it has answered how its guest is to be, for which it has so long. A closed connection is no answer, and none is missed.
    pub(super) async fn is_set_up(&self, within: Duration) -> bool {
        let mut ready = self.ready.subscribe();
        let answer = timeout(within, ready.wait_for(|times| *times > 0));
        !matches!(self.closed.run_until_cancelled(answer).await, Some(Err(_elapsed)))
    }

    /// Tells the agent of its guest, before it can be told anything else.
    fn set_up(&self) {
        let Some(setup) = self.setup.get() else { return };
        match self.frame(0, Message::Setup(setup.clone())) {
            Ok(frame) => {
                if self.frames.try_send(frame).is_err() {
                    self.closed.cancel();
                }
            }
            Err(error) => tracing::error!(%error, "the guest is not told how its pod wants it"),
        }
    }

    /// `false` for what nobody asked for.
    pub(super) fn hear(&self, frame: Frame) -> bool {
        let ours = frame.epoch == self.epoch.load(Ordering::Relaxed);
        if let Message::Hello { version } = frame.message {
            if ours && version == VERSION {
                // Its guest is not set up before it is its pod's.
                if !*self.gate.borrow() {
                    self.answered();
                }
            } else if frame.epoch == 0 {
                tracing::debug!("a guest's agent has started");
                self.greet();
            } else if ours {
                tracing::warn!(
                    version,
                    ours = VERSION,
                    "a guest's agent speaks another version; install this release's"
                );
            }
            return false;
        }
        if let Message::Waits = frame.message {
            if ours && !*self.greeted.borrow() {
                self.gate.send_replace(true);
            }
            return false;
        }
        if let Message::Ready(why) = &frame.message {
            // A guest could say it all day.
            if ours {
                self.ready.send_modify(|times| *times = times.saturating_add(1));
            }
            if ours && !why.is_empty() && !self.was_told.swap(true, Ordering::Relaxed) {
                tracing::warn!(why = %printable(why), "not all of how its pod wants a guest is done");
            }
            return false;
        }
        let mut sessions = self.sessions();
        let Some(session) = sessions.get_mut(&frame.session).filter(|_| ours) else { return false };
        let event = match frame.message {
            Message::Started { .. } if !session.started => {
                session.started = true;
                Event::Started
            }
            Message::Refused(why) if !session.started => Event::Refused(printable(&why)),
            Message::Stdout(data) if !data.is_empty() && session.stdout.spend(data.len()) => Event::Stdout(data),
            Message::Stderr(data) if !data.is_empty() && session.stderr.spend(data.len()) => Event::Stderr(data),
            Message::Exited { code } => Event::Exited(code),
            Message::Credit { stream: Stream::Stdin, bytes } => {
                let room = (WINDOW as usize).saturating_sub(session.stdin.available_permits());
                let fits = (1..=room).contains(&(bytes as usize));
                session.stdin.add_permits(if fits { bytes as usize } else { 0 });
                return fits;
            }
            _ => return false,
        };
        let last = matches!(event, Event::Exited(_) | Event::Refused(_));
        // Whoever does not listen any more has cancelled it.
        let heard = session.events.send(event);
        if last {
            sessions.remove(&frame.session);
        }
        heard
    }
}

impl Credit {
    /// Takes off what has come; `false` if it is more than was given.
    fn spend(&mut self, bytes: usize) -> bool {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// For what was taken out; the credit that the guest is to be told of now, if any.
    fn give(&mut self, bytes: usize) -> Option<u32> {
        let given = self.owed.taken(bytes)?;
        self.left = self.left.saturating_add(given).min(WINDOW);
        Some(given)
    }
}

fn printable(why: &str) -> String {
    common::shown(why, 1024)
}

fn too_long(cause: EncodeError) -> Error {
    Error::because(Kind::Invalid, "the command was not sent to the guest", cause)
}

pub(super) fn lost() -> Error {
    Error::new(Kind::Unavailable, "the connection to the guest's agent was lost; the guest or the agent was restarted")
}
