//! The connection to our agent in one guest.
//!
//! One task reads and never waits for anybody: what may come for a session is bounded by the credit that it was given. One task
//! writes; whoever has something to write waits for it with a deadline. A guest that sends what nobody asked for, or takes
//! nothing, loses the connection.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proto::agent::{Decoder, HEADER, MAX_BODY, Message, Setup};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument as _, Span};
use vmspec::error::{Error, Kind, Result};

use super::events::Event;
use super::process::Process;
use super::shared::{ANSWER_DEADLINE, Begun, Shared, lost};

/// For how long an agent may see to how its guest is to be. It waits for disks meanwhile.
const UNDERSTOOD: Duration = Duration::from_secs(60);
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// Frames that may wait for the guest.
const QUEUE: usize = 64;
/// Bytes that are read at once. They are there while they are looked at only: most agents have nothing to say most of the time.
const CHUNK: usize = 64 * 1024;
/// What is sent before the first frame of a connection: the rest of a frame that an earlier connection may have been cut off
/// in. The agent would take our greeting for it, since it need not have seen that the connection was another one.
const PADDING: [u8; 4096] = [0; 4096];
/// Bytes that nobody asked for, after which the guest is not listened to any more.
const PATIENCE: u64 = 4 << 20;

/// The connection. It is closed when it is dropped.
#[derive(Debug)]
pub(super) struct Link {
    shared: Arc<Shared>,
    opened: Instant,
}

impl Link {
    /// Connects, and greets the agent, which is told of its guest then. What it says is logged in `span`.
    pub(super) async fn open(socket: &Path, setup: Arc<OnceLock<Setup>>, span: Span) -> io::Result<Self> {
        let stream = timeout(CONNECT_DEADLINE, UnixStream::connect(socket)).await??;
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::channel(QUEUE);
        let shared = Arc::new(Shared::new(frames, setup));
        shared.greet();
        tokio::spawn(write(writer, queue, shared.clone()));
        tokio::spawn(read(reader, shared.clone()).instrument(span));
        Ok(Self { shared, opened: Instant::now() })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.shared.closed.is_cancelled()
    }

    /// Ends when it is closed, and does not keep it. `greeted` hears that an agent has answered. Says so if that does not answer how its guest
    /// is to be.
    pub(super) fn end<F: FnOnce() + Send + 'static>(&self, greeted: F) -> impl Future<Output = ()> + use<F> {
        let shared = self.shared.clone();
        async move {
            let is_greeted = shared.is_greeted().await;
            if is_greeted {
                greeted();
            }
            if is_greeted && !shared.is_set_up(UNDERSTOOD).await {
                tracing::warn!(
                    "the guest's `virtlet-agent` has not answered for {} s how its pod wants the guest, volumes included: it is busy, or of an \
                     earlier release, which does nothing of what it does not know all of; then install this release's",
                    UNDERSTOOD.as_secs()
                );
            }
            shared.closed.cancelled().await;
        }
    }

    /// Whether the agent has answered how its guest is to be, for which it has so long. One of an earlier release never does.
    pub(super) async fn is_ready(&self, within: Duration) -> bool {
        let mut ready = self.shared.ready.subscribe();
        let answer = self.shared.closed.run_until_cancelled(ready.wait_for(|times| *times > 0));
        drop(timeout(within, answer).await);
        *self.shared.ready.borrow() > 0 && !self.is_closed()
    }

    /// Tells it once more how its guest is to be; whether it answers that.
    pub(super) async fn answers(&self, setup: Setup, within: Duration) -> Result<bool> {
        let mut ready = self.shared.ready.subscribe();
        ready.mark_unchanged();
        self.say(Message::Setup(setup)).await?;
        let answer = self.shared.closed.run_until_cancelled(ready.changed());
        Ok(matches!(timeout(within, answer).await, Ok(Some(Ok(())))))
    }

    /// Says something that is of no session.
    pub(super) async fn say(&self, message: Message) -> Result<()> {
        self.shared.say(0, message).await
    }

    /// Ends when an agent says that its guest waits at the gate, or answers without that if it is to be `past` it: `true`; or when the connection
    /// is closed. Does not keep it.
    pub(super) fn gate(&self, past: bool) -> impl Future<Output = bool> + use<> {
        let shared = self.shared.clone();
        async move { if past { shared.is_greeted().await } else { shared.waits().await } }
    }

    pub(super) fn has_answered(&self) -> bool {
        *self.shared.greeted.borrow()
    }

    /// Lets a guest go on that waits at the gate; fine if it does not.
    pub(super) async fn open_gate(&self) -> Result<()> {
        self.shared.open_gate().await
    }

    /// Ends it, with all that runs through it.
    pub(super) fn close(&self) {
        self.shared.closed.cancel();
    }

    /// Whether the agent has answered, for which it has so long since the connection was made, and until `until`.
    pub(super) async fn greeted(&self, within: Duration, until: Instant) -> bool {
        let mut greeted = self.shared.greeted.subscribe();
        let answer = self.shared.closed.run_until_cancelled(greeted.wait_for(|greeted| *greeted));
        drop(timeout_at(until.max(self.opened + within), answer).await);
        *self.shared.greeted.borrow() && !self.is_closed()
    }

    /// Starts a process, or joins one.
    pub(super) async fn begin(&self, message: Message) -> Result<Process> {
        let Begun { id, events, stdin, frame } = self.shared.begin(message)?;
        // From here on dropping it ends the session.
        let mut process = Process::new(id, self.shared.clone(), events, stdin);
        self.shared.send(frame).await?;
        match timeout(ANSWER_DEADLINE, process.next()).await {
            Ok(Some(Event::Started)) => Ok(process),
            Ok(Some(Event::Refused(why))) => {
                // virtletctl knows by these words that it is the guest that did not start it.
                Err(Error::new(Kind::Invalid, format!("the guest's agent did not start the command: {why}")))
            }
            Ok(Some(_)) => {
                Err(Error::new(Kind::Internal, "the guest's agent spoke of a command that it had not started"))
            }
            Ok(None) => Err(lost()),
            Err(_elapsed) => {
                self.shared.closed.cancel();
                let what =
                    format!("the guest's agent did not start the command within {} s", ANSWER_DEADLINE.as_secs());
                Err(Error::new(Kind::Deadline, what))
            }
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.close();
    }
}

async fn write(mut guest: OwnedWriteHalf, mut queue: mpsc::Receiver<Vec<u8>>, shared: Arc<Shared>) {
    let writing = async {
        for _ in 0..(HEADER + MAX_BODY).div_ceil(PADDING.len()) {
            if guest.write_all(&PADDING).await.is_err() {
                return;
            }
        }
        while let Some(frame) = queue.recv().await {
            if guest.write_all(&frame).await.is_err() {
                return;
            }
        }
    };
    shared.closed.run_until_cancelled(writing).await;
    shared.closed.cancel();
}

async fn read(guest: OwnedReadHalf, shared: Arc<Shared>) {
    let reading = async {
        let mut decoder = Decoder::of_agent();
        while guest.readable().await.is_ok() {
            let mut chunk = vec![0; CHUNK];
            let read = match guest.try_read(&mut chunk) {
                Ok(read @ 1..) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(0) | Err(_) => return,
            };
            decoder.extend(chunk.get(..read).unwrap_or_default());
            let garbage = decoder.skipped();
            let mut unasked = 0;
            loop {
                let (passed, skipped) = (decoder.passed(), decoder.skipped());
                let Some(frame) = decoder.next_frame() else { break };
                if !shared.hear(frame) {
                    unasked += decoder.passed() - passed - (decoder.skipped() - skipped);
                }
            }
            unasked += decoder.skipped() - garbage;
            if shared.unasked.fetch_add(unasked, Ordering::Relaxed) + unasked > PATIENCE {
                tracing::warn!("a guest's agent sends what nobody asked for; connection closed");
                return;
            }
        }
    };
    shared.closed.run_until_cancelled(reading).await;
    shared.closed.cancel();
    shared.end_all();
}
