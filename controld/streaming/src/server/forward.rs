//! A session of port-forward: pairs of streams, each a connection to a port of a pod.
//!
//! For each connection the client opens two streams, of the same request id and port: one for bytes both ways, one on which
//! it only hears why the pod did not take the connection: kubectl ends the whole session on any word there, so a connection
//! that fails later has its data stream reset and no word. The pairs of a session do not wait for each other. Over SPDY a
//! session lives until the client leaves; in channels, until the last of its connections ends.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Terms;
use super::command::chain;
use super::protocol::Protocol;
use crate::backend::{Backend, Input, Output, SessionError};
use crate::mux::{Arrival, Limits, MAX_ARRIVALS, ReadHalf, Stream, WriteHalf};
use crate::portforward::{PORT, REQUEST_ID, STREAM_TYPE, StreamType};
use crate::request::PortForwardRequest;
use crate::spdy::{Headers, Status};
use crate::ws::Channels;

/// Connections that a client may have at a time, those among them that are not complete too.
const MAX_PAIRS: usize = 512;
/// Ports that a session in channels may have: each is two streams, which the client opens all at once.
pub(super) const MAX_FIXED_PORTS: usize = MAX_ARRIVALS / 2;
/// Longest request id.
const MAX_REQUEST_ID: usize = 128;
/// How long a connection to the pod may take.
const DIAL_DEADLINE: Duration = Duration::from_secs(10);
/// How long the client may take to make room for the reason of a failure.
const REASON_DEADLINE: Duration = Duration::from_secs(30);
/// How long a client that says nothing keeps a connection that the pod has ended.
const LINGER: Duration = Duration::from_secs(30);
/// Connections to pods of all clients together: each takes two buffers of [`CHUNK`].
pub(super) const MAX_PAIRS_OF_ALL: usize = 2048;
/// Bytes that are copied at once.
const CHUNK: usize = 16 << 10;

/// Runs the session to its end, however it ends.
pub(super) async fn serve<T>(
    transport: T,
    protocol: &Protocol,
    request: PortForwardRequest,
    backend: Arc<dyn Backend>,
    places: &Arc<Semaphore>,
    terms: &Terms,
) where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let pod: Arc<str> = request.pod_id.as_str().into();
    let limits = Limits { streams: 2 * MAX_PAIRS, ..terms.limits.clone() };
    let (connection, mut arrivals) = protocol.start(transport, limits, || channels(&request.ports));
    tracing::debug!(%pod, protocol = protocol.name, "port-forward begins");
    let mut halves = Halves { deadline: terms.stream_creation, waiting: BTreeMap::new() };
    let mut pairs = JoinSet::new();
    let mut left = protocol.is_fixed().then_some(request.ports.len());
    loop {
        if left == Some(0) {
            return connection.finish().await;
        }
        tokio::select! {
            arrival = arrivals.next() => {
                let Some(arrival) = arrival else { break };
                if let Some(pair) = halves.take(arrival, Instant::now()) {
                    pairs.spawn(pair.run(backend.clone(), places.clone(), pod.clone(), !protocol.is_fixed()));
                }
            }
            () = halves.late() => halves.expire(Instant::now()),
            Some(_) = pairs.join_next() => left = left.map(|left| left - 1),
        }
    }
    let why = connection.why_closed().map(|why| why.to_string());
    tracing::debug!(%pod, why, "port-forward ended");
}

/// The streams of a session in channels, two for each port. The client hears on each which port it is of.
fn channels(ports: &[u16]) -> Channels {
    let mut channels = Channels::default();
    for (port, index) in ports.iter().zip(0_u8..) {
        for (kind, channel) in [(StreamType::Data, 2 * index), (StreamType::Error, 2 * index + 1)] {
            let headers = Headers::new()
                .with(STREAM_TYPE, kind.as_str())
                .with(PORT, port.to_string())
                .with(REQUEST_ID, index.to_string());
            channels.streams.push((channel, headers));
            channels.preface.push((channel, port.to_le_bytes().to_vec()));
        }
    }
    channels
}

/// What makes a pair of two streams.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    RequestId(String),
    /// The error stream's number, of a client that does not tell: its data stream is its next one.
    Number(u32),
}

/// A stream whose other half has not come.
struct Half {
    kind: StreamType,
    stream: Stream,
    port: u16,
    since: Instant,
}

/// The streams whose other halves have not come. There are no more of them than the connection may have streams.
struct Halves {
    deadline: Duration,
    waiting: BTreeMap<Key, Half>,
}

/// A connection to a port.
struct Pair {
    port: u16,
    data: Stream,
    error: Stream,
}

// === impl Halves ===

impl Halves {
    /// Takes a stream that the client has opened, or refuses it.
    fn take(&mut self, arrival: Arrival, now: Instant) -> Option<Pair> {
        let Some((key, kind, port)) = read(&arrival) else {
            arrival.refuse(Status::PROTOCOL_ERROR);
            return None;
        };
        match self.waiting.remove(&key) {
            None => {
                let half = Half { kind, stream: arrival.accept(), port, since: now };
                self.waiting.insert(key, half);
                None
            }
            Some(first) if first.kind == kind || first.port != port => {
                self.waiting.insert(key, first);
                arrival.refuse(Status::PROTOCOL_ERROR);
                None
            }
            Some(first) => {
                let second = arrival.accept();
                let (data, error) =
                    if kind == StreamType::Data { (second, first.stream) } else { (first.stream, second) };
                Some(Pair { port, data, error })
            }
        }
    }

    /// Comes to its end when a half has waited for too long.
    fn late(&self) -> impl Future<Output = ()> + use<> {
        let first = self.waiting.values().map(|half| half.since + self.deadline).min();
        async move {
            match first {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    fn expire(&mut self, now: Instant) {
        for (_, half) in self.waiting.extract_if(.., |_, half| now.duration_since(half.since) >= self.deadline) {
            tracing::debug!(port = half.port, "client opened one stream of two");
            half.stream.split().1.reset(Status::CANCEL);
        }
    }
}

/// What a stream is, by its headers.
fn read(arrival: &Arrival) -> Option<(Key, StreamType, u16)> {
    let headers = arrival.headers();
    let kind = headers.get(STREAM_TYPE).and_then(StreamType::parse)?;
    let port = headers.get(PORT)?.parse().ok().filter(|port| *port != 0)?;
    let key = match (headers.get(REQUEST_ID).filter(|id| !id.is_empty()), kind) {
        (Some(id), _) if id.len() > MAX_REQUEST_ID => return None,
        (Some(id), _) => Key::RequestId(id.to_owned()),
        (None, StreamType::Error) => Key::Number(arrival.id()),
        (None, StreamType::Data) => Key::Number(arrival.id().checked_sub(2)?),
    };
    Some((key, kind, port))
}

// === impl Pair ===

impl Pair {
    /// Without `half_close` the client cannot say that it ends its side: then the connection ends with the pod's.
    async fn run(self, backend: Arc<dyn Backend>, places: Arc<Semaphore>, pod: Arc<str>, half_close: bool) {
        let Self { port, data, error } = self;
        let (reading, mut reason) = error.split();
        // The client says nothing on it.
        drop(reading);
        let (from_client, mut to_client) = data.split();
        let dialed = match places.try_acquire() {
            Ok(place) => dial(&*backend, &pod, port).await.map(|ends| (ends, place)),
            Err(_full) => Err("too many connections are forwarded by this node; close some, or try again later".into()),
        };
        match dialed {
            Ok((ends, _place)) => {
                if let Err(error) = relay(ends, from_client, &mut to_client, half_close).await {
                    tracing::debug!(%pod, port, %error, "connection to a pod's port was cut off");
                    to_client.reset(Status::CANCEL);
                }
            }
            Err(error) => {
                drop(from_client);
                let why = chain(&*error);
                tracing::debug!(%pod, port, error = why, "pod's port did not take a connection");
                let text = format!("error forwarding port {port} to pod {pod}, uid : {why}");
                let _ = timeout(REASON_DEADLINE, reason.write_all(text.as_bytes())).await;
                drop(reason);
                to_client.reset(Status::CANCEL);
            }
        }
    }
}

async fn dial(backend: &dyn Backend, pod: &str, port: u16) -> Result<(Input, Output), SessionError> {
    let late = |_| {
        format!("no connection within {} s; does the guest run, and let the port through?", DIAL_DEADLINE.as_secs())
    };
    timeout(DIAL_DEADLINE, backend.dial(pod, port)).await.map_err(late)?
}

/// Copies both ways. An end of either side is passed on to the other, which may go on. Fails if the pod breaks off.
async fn relay(
    (mut from_pod, mut to_pod): (Input, Output),
    mut from_client: ReadHalf,
    to_client: &mut WriteHalf,
    half_close: bool,
) -> io::Result<()> {
    let sent = AtomicU64::new(0);
    let mut up = pin!(async {
        match copy(&mut from_client, &mut to_pod, &sent).await {
            // The client ends its side; if the pod does not take that, it has ended too.
            Ok(()) => drop(to_pod.shutdown().await),
            // What the pod has said, and why it takes no more, comes the other way.
            Err(Side::Writer) => {}
            Err(Side::Reader(_)) => return Up::ClientGone,
        }
        Up::Ended
    });
    let mut down = pin!(async {
        match copy(&mut from_pod, to_client, &AtomicU64::new(0)).await {
            Ok(()) => to_client.shutdown().await,
            // The other direction hears of it too.
            Err(Side::Writer) => Ok(()),
            Err(Side::Reader(error)) => Err(error),
        }
    });
    tokio::select! {
        up = &mut up => match up {
            Up::ClientGone => Ok(()),
            Up::Ended => down.await,
        },
        ended = &mut down => {
            ended?;
            // Who has nothing more to say does not hold a place of the node's.
            let mut before = None;
            while half_close && before != Some(sent.load(Ordering::Relaxed)) {
                before = Some(sent.load(Ordering::Relaxed));
                if timeout(LINGER, &mut up).await.is_ok() {
                    break;
                }
            }
            Ok(())
        }
    }
}

/// How the way from the client to the pod ended.
enum Up {
    Ended,
    ClientGone,
}

/// Which side of a copy failed.
enum Side {
    Reader(io::Error),
    Writer,
}

/// Copies to the end, and counts what was copied.
async fn copy(
    reader: &mut (impl AsyncRead + Unpin),
    writer: &mut (impl AsyncWrite + Unpin),
    count: &AtomicU64,
) -> Result<(), Side> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = reader.read(&mut buffer).await.map_err(Side::Reader)?;
        if read == 0 {
            return Ok(());
        }
        writer.write_all(buffer.get(..read).unwrap_or_default()).await.map_err(|_| Side::Writer)?;
        count.fetch_add(read as u64, Ordering::Relaxed);
    }
}
