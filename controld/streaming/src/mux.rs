//! Many streams over one connection: SPDY/3.1, or what a [`codec`] shows as it, over anything that reads and writes.
//!
//! Called by [`crate::Server`] and [`crate::client`].
//! [`Connection::start`] spawns one task that owns the transport. Streams are `AsyncRead` and `AsyncWrite` halves.
//!
//! Towards the peer, writers wait once [`Limits::outgoing`] bytes have not left yet. From the peer, Kubernetes' clients know no
//! flow control: what a stream's owner does not read yet is kept, so that a full stdin delays neither PING nor resize nor the
//! end of another stream, up to [`Limits::stream`] for a stream and [`Limits::connection`] in all, and as far as [`Limits::budget`]
//! goes, which connections may share. Beyond that nothing is
//! read from the transport until somebody reads from the full stream: bytes are held back by TCP rather than lost. While it
//! waits so, the task pings, because a peer that is gone shows only to those who write.

mod budget;
pub(crate) mod codec;
mod drive;
mod shared;
mod state;
mod stream;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use self::budget::Budget;
use self::codec::Codec;
pub use self::codec::CodecError;
use self::shared::Shared;
use self::state::State;
pub use self::stream::{ReadHalf, Stream, WriteHalf};
use crate::spdy::{Headers, Status};

/// Streams that the peer has opened and nobody has looked at yet.
pub(crate) const MAX_ARRIVALS: usize = 64;
/// How long a finished connection may take to bring its last bytes to the peer.
const DRAIN_DEADLINE: Duration = Duration::from_secs(30);

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Opens streams with odd ids.
    Client,
    /// Opens streams with even ids.
    Server,
}

/// What a peer may cost.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of one stream that are kept for its reader.
    pub stream: usize,
    /// Bytes of all streams that are kept for their readers.
    pub connection: usize,
    /// Bytes that this connection and those which have the same budget keep for their readers.
    pub budget: Budget,
    /// Bytes of data on their way to the peer.
    pub outgoing: usize,
    /// Streams at a time.
    pub streams: usize,
    /// A connection without a frame either way ends after this.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            stream: 4 << 20,
            connection: 16 << 20,
            budget: Budget::new(usize::MAX),
            outgoing: 256 << 10,
            streams: 256,
            idle: Duration::from_secs(4 * 3600),
        }
    }
}

/// Why a connection is over.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Closed {
    /// The peer closed it.
    #[error("peer closed the connection")]
    Peer,
    /// The transport failed.
    #[error("connection failed")]
    Io(#[source] Arc<io::Error>),
    /// The peer sent what cannot be understood.
    #[error("peer broke the protocol")]
    Protocol(#[source] CodecError),
    /// The peer makes us answer faster than it reads answers.
    #[error("peer sends requests and does not read the answers")]
    Flooded,
    /// Nothing was said for too long.
    #[error("no frame either way for {} s", .0.as_secs())]
    Idle(Duration),
    /// We finished it.
    #[error("connection is finished")]
    Finished,
    /// We gave it up.
    #[error("connection was dropped")]
    Dropped,
}

/// Why a stream was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The connection is over.
    #[error("connection is over")]
    Closed(#[from] Closed),
    /// The peer did not take it.
    #[error("peer did not take the stream: {0}")]
    Refused(Status),
    /// All ids are used up.
    #[error("connection has no stream ids left; make a new one")]
    NoIds,
}

/// One end of a connection. Dropping it cuts the connection; see [`Connection::finish`].
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// The streams that the peer opens, in order. Those that nobody takes are refused.
#[derive(Debug)]
pub struct Arrivals {
    shared: Arc<Shared>,
    queue: mpsc::Receiver<(u32, Headers)>,
}

/// A stream that the peer has opened. Dropping it refuses it.
#[derive(Debug)]
pub struct Arrival {
    shared: Arc<Shared>,
    id: u32,
    headers: Headers,
    decided: bool,
}

// === impl Connection ===

impl Connection {
    /// Takes over a transport.
    pub fn start<T>(transport: T, role: Role, limits: Limits) -> (Self, Arrivals)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        Self::start_with(codec::plain(), transport, role, limits)
    }

    /// Takes over a transport whose bytes are not SPDY's own.
    pub(crate) fn start_with<T>(codec: Codec, transport: T, role: Role, limits: Limits) -> (Self, Arrivals)
    where
        T: AsyncRead + AsyncWrite + Send + 'static,
    {
        let (arrived, queue) = mpsc::channel(MAX_ARRIVALS);
        let shared = Arc::new(Shared::new(State::new(role, limits, arrived)));
        let task = tokio::spawn(drive::drive(shared.clone(), transport, codec));
        (Self { shared: shared.clone(), task }, Arrivals { shared, queue })
    }

    /// Opens a stream and waits for the peer to take it.
    ///
    /// # Errors
    /// See [`OpenError`]. The wait has no deadline of its own.
    pub async fn open(&self, headers: Headers) -> Result<Stream, OpenError> {
        let id = self.shared.act(|state| state.open(headers))?;
        let stream = Stream::new(&self.shared, id);
        std::future::poll_fn(|context| self.shared.lock().poll_reply(id, context)).await?;
        Ok(stream)
    }

    /// Fires when the connection is over.
    #[must_use]
    pub fn closed(&self) -> CancellationToken {
        self.shared.closed().child_token()
    }

    /// Why the connection is over; `None` while it is not.
    #[must_use]
    pub fn why_closed(&self) -> Option<Closed> {
        self.shared.lock().why_closed()
    }

    /// Ends well: what was written is sent, every stream is ended, GOAWAY, then the transport is closed. What the peer
    /// still sends is thrown away.
    pub async fn finish(mut self) {
        self.shared.act(State::finish);
        // In the end the peer had its time; the drop cuts the connection.
        let _ = tokio::time::timeout(DRAIN_DEADLINE, &mut self.task).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

// === impl Arrivals ===

impl Arrivals {
    /// The next stream. `None` when the connection is over.
    pub async fn next(&mut self) -> Option<Arrival> {
        let (id, headers) = self.queue.recv().await?;
        Some(Arrival { shared: self.shared.clone(), id, headers, decided: false })
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.queue.close();
        while let Ok((id, _)) = self.queue.try_recv() {
            self.shared.act(|state| state.refuse(id, Status::REFUSED_STREAM));
        }
    }
}

// === impl Arrival ===

impl Arrival {
    /// What the stream is for.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The stream's number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Takes the stream.
    #[must_use]
    pub fn accept(mut self) -> Stream {
        self.decided = true;
        self.shared.act(|state| state.accept(self.id));
        Stream::new(&self.shared, self.id)
    }

    /// Does not take the stream, and says why.
    pub fn refuse(mut self, status: Status) {
        self.decided = true;
        self.shared.act(|state| state.refuse(self.id, status));
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.decided {
            self.shared.act(|state| state.refuse(self.id, Status::REFUSED_STREAM));
        }
    }
}

#[cfg(test)]
mod tests;
