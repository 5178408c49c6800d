//! One end of a WebSocket: bytes to messages and back, with no more of either in memory than one read brings.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::BytesMut;
use hyper::body::Bytes;
use streaming::websocket::{BINARY, Decoder, MessageError, PING, PONG, Piece, write, write_masked};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

/// What is read at once: as much as fits into one record of TLS with a message's head.
const READ: usize = (16 << 10) - 16;
/// A peer that takes nothing for so long is given up, with all that waits for it.
pub(super) const STALLED: Duration = Duration::from_secs(300);

/// Why nothing more comes or goes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    #[error("the connection broke")]
    Io(#[from] io::Error),
    #[error("what came is no WebSocket")]
    Message(#[from] MessageError),
    #[error("nothing was taken for {} s", STALLED.as_secs())]
    Stalled,
    #[error("a message was cut off")]
    Cut,
}

/// Which end of it we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Client,
    Server,
}

/// What comes from a peer.
#[derive(Debug)]
pub(super) struct Reader<R> {
    io: R,
    decoder: Decoder,
    buffer: BytesMut,
}

/// What goes to a peer.
#[derive(Debug)]
pub(super) struct Writer<W> {
    io: W,
    role: Role,
    out: BytesMut,
    /// A message has begun, and nobody waited until all of it was sent.
    is_cut: bool,
}

/// What one half of a socket tells the other, and whoever looks whether the peer is still there.
#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
    wanted: Notify,
}

#[derive(Debug)]
struct State {
    /// When it was asked first that has not been heard since; or, if that is later, since when it can listen and be heard again.
    asked: Option<Instant>,
    /// Whether somebody reads. Who is not read from is not silent.
    is_read: bool,
    /// Whether somebody waits for the peer to take something: it has not come to the question yet.
    is_stuck: bool,
    ping: bool,
    pong: Option<Bytes>,
}

/// As long as it is there, a peer takes nothing.
#[derive(Debug)]
struct Stuck<'a>(&'a Line);

/// Both halves.
pub(super) fn split<S: AsyncRead + AsyncWrite>(
    io: S,
    role: Role,
) -> (Reader<tokio::io::ReadHalf<S>>, Writer<tokio::io::WriteHalf<S>>) {
    let decoder = if role == Role::Client { Decoder::of_server() } else { Decoder::default() };
    let (read, write) = tokio::io::split(io);
    (
        Reader { io: read, decoder, buffer: BytesMut::new() },
        Writer { io: write, role, out: BytesMut::new(), is_cut: false },
    )
}

impl<R: AsyncRead + Unpin> Reader<R> {
    /// What comes next; `None` when the peer has left. Nothing is lost if this is dropped before it is done.
    pub(super) async fn next(&mut self, line: &Line) -> Result<Option<Piece>, Lost> {
        loop {
            match self.decoder.decode(&mut self.buffer)? {
                Some(Piece::Ping(payload)) => line.answer(payload),
                Some(Piece::Close(_)) => return Ok(None),
                Some(piece) => {
                    line.with(|state| state.is_read = false);
                    return Ok(Some(piece));
                }
                None => {
                    line.with(State::is_read_now);
                    self.buffer.reserve(READ.saturating_sub(self.buffer.len()));
                    if self.io.read_buf(&mut self.buffer).await? == 0 {
                        return Ok(None);
                    }
                    line.with(|state| state.asked = None);
                }
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    /// Sends a message of bytes in these parts, and returns when the kernel has it.
    pub(super) async fn send(&mut self, line: &Line, parts: &[&[u8]]) -> Result<(), Lost> {
        self.put(line, BINARY, parts).await
    }

    /// Sends a message of some kind.
    pub(super) async fn put(&mut self, line: &Line, opcode: u8, parts: &[&[u8]]) -> Result<(), Lost> {
        if std::mem::replace(&mut self.is_cut, true) {
            return Err(Lost::Cut);
        }
        self.out.clear();
        match self.role {
            Role::Server => write(opcode, parts, &mut self.out),
            Role::Client => write_masked(opcode, parts, mask(), &mut self.out),
        }
        let sent = async {
            self.io.write_all(&self.out).await?;
            self.io.flush().await
        };
        let mut sent = pin!(sent);
        let at_once = poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await;
        match at_once {
            Poll::Ready(sent) => sent?,
            Poll::Pending => {
                let _stuck = line.stuck();
                timeout(STALLED, sent).await.map_err(|_| Lost::Stalled)??;
            }
        }
        self.is_cut = false;
        Ok(())
    }

    /// Sends what the line wants to have sent.
    pub(super) async fn keep(&mut self, line: &Line) -> Result<(), Lost> {
        let (ping, pong) = line.take();
        if let Some(payload) = pong {
            self.put(line, PONG, &[&payload]).await?;
        }
        if ping {
            self.put(line, PING, &[]).await?;
            // Only now: one that was not sent is answered by nobody.
            line.with(|state| state.asked = state.asked.or_else(|| Some(Instant::now())));
        }
        Ok(())
    }

    /// Says that nothing more comes.
    pub(super) async fn shut(&mut self) -> io::Result<()> {
        self.io.shutdown().await
    }
}

impl Line {
    pub(super) fn new() -> Self {
        let state = State { asked: None, is_read: true, is_stuck: false, ping: false, pong: None };
        Self { state: Mutex::new(state), wanted: Notify::new() }
    }

    /// Since when nothing has come of the peer, though it was asked and could have answered.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        self.with(|state| state.asked.filter(|_| state.is_read && !state.is_stuck))
    }

    /// Notes that the peer takes nothing, until what this returns is dropped.
    fn stuck(&self) -> Stuck<'_> {
        self.with(|state| state.is_stuck = true);
        Stuck(self)
    }

    /// Has the peer asked whether it is there.
    pub(super) fn ask(&self) {
        self.with(|state| state.ping = true);
        self.wanted.notify_one();
    }

    /// Waits until the writer is wanted for something.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// The last question is the one that is answered: whoever asks faster than it listens gets no queue.
    fn answer(&self, payload: Bytes) {
        self.with(|state| state.pong = Some(Bytes::copy_from_slice(&payload)));
        self.wanted.notify_one();
    }

    fn take(&self) -> (bool, Option<Bytes>) {
        self.with(|state| (std::mem::take(&mut state.ping), state.pong.take()))
    }

    fn with<T>(&self, what: impl FnOnce(&mut State) -> T) -> T {
        what(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn is_read_now(&mut self) {
        if !std::mem::replace(&mut self.is_read, true) {
            self.asks_anew();
        }
    }

    /// What it was asked may just have come to it, or its answer may have waited for us: it has all of its time from now on.
    fn asks_anew(&mut self) {
        self.asked = self.asked.map(|_| Instant::now());
    }
}

impl Drop for Stuck<'_> {
    fn drop(&mut self) {
        self.0.with(|state| {
            state.is_stuck = false;
            state.asks_anew();
        });
    }
}

/// A mask that nobody foresees.
fn mask() -> [u8; 4] {
    let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
    [a, b, c, d]
}
