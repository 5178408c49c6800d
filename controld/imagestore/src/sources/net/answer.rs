//! An answer and its body, with the watch over stalls and lengths.
//!
//! The connection is driven by whoever reads the body, in the same task: no hand-over between threads, and dropping
//! the stream closes the connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Builder, Connection};
use hyper::header::HeaderMap;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout, timeout_at};

use super::io::Io;
use super::{Body, Deadline, FetchError, MAX_HEAD, Timeouts};

/// How long a server may take to close its end once its answer is complete. Then it is taken to say nothing more.
const CLOSE_DEADLINE: Duration = Duration::from_millis(250);

/// The connection, polled beside whatever is read from it.
struct Driver {
    connection: Connection<TokioIo<Io>, Full<Bytes>>,
    /// Its end, which is not to be polled for twice.
    done: Option<hyper::Result<()>>,
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.done.is_none() {
            match self.connection.poll_without_shutdown(cx) {
                Poll::Ready(end) => self.done = Some(end),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

/// An answer whose body was not read yet.
pub(super) struct Answer {
    response: Response<Incoming>,
    driver: Driver,
    clock: Clock,
}

impl Answer {
    /// Sends the request and waits for the head of the answer.
    pub(super) async fn to(
        request: Request<Full<Bytes>>,
        io: Io,
        timeouts: Timeouts,
        deadline: Option<Deadline>,
    ) -> Result<Self, FetchError> {
        let (mut sender, connection) =
            Builder::new().max_header_size(MAX_HEAD).handshake(TokioIo::new(io)).await.map_err(FetchError::Protocol)?;
        let mut driver = Driver { connection, done: None };
        let mut sent = std::pin::pin!(sender.send_request(request));
        let answered = poll_fn(|cx| {
            if let Poll::Ready(response) = sent.as_mut().poll(cx) {
                return Poll::Ready(response);
            }
            // If it fails, the sender says why.
            let _ = driver.poll(cx);
            sent.as_mut().poll(cx)
        });
        let clock = Clock { watch: StallWatch::new(timeouts), deadline };
        match timeout(timeouts.stall, answered).await {
            Ok(Ok(response)) => Ok(Self { response, driver, clock }),
            Ok(Err(cause)) => Err(FetchError::Protocol(cause)),
            Err(_) => Err(clock.watch.stalled()),
        }
    }

    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// What was announced, if the body's end goes by that.
    pub(super) fn length(&self) -> Option<u64> {
        self.response.body().size_hint().exact()
    }

    /// The body, which must have that many bytes if that is known. One whose length the answer itself announces is read
    /// from the connection, past the HTTP library and its buffers.
    pub(super) fn into_body(self, bytes: Option<u64>) -> Box<dyn Body> {
        let announced = self.length();
        let (body, driver, clock) = (self.response.into_body(), self.driver, self.clock);
        match announced {
            Some(length) => Box::new(Announced::new(body, driver, length, clock)),
            None => Box::new(Framed { body, driver, left: Bytes::new(), expected: bytes, received: 0, clock }),
        }
    }
}

/// A body whose end its framing tells: chunks, or the close of the connection.
struct Framed {
    body: Incoming,
    driver: Driver,
    /// What came and was not handed out yet.
    left: Bytes,
    /// What a range announced.
    expected: Option<u64>,
    received: u64,
    clock: Clock,
}

impl Body for Framed {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            while self.left.is_empty() {
                let (body, driver) = (&mut self.body, &mut self.driver);
                let frame = self.clock.wait(poll_fn(|cx| poll_frame(body, driver, cx))).await?;
                let (received, announced) = (self.received, self.expected);
                match frame {
                    None if announced.is_none_or(|announced| announced == received) => return Ok(0),
                    None => return Err(FetchError::Interrupted { received, announced, cause: None }),
                    Some(Err(cause)) => {
                        let cause = Some(io::Error::other(cause));
                        return Err(FetchError::Interrupted { received, announced, cause });
                    }
                    // Trailers end the body; nothing in them matters.
                    Some(Ok(frame)) => self.left = frame.into_data().unwrap_or_default(),
                }
                self.received += self.left.len() as u64;
                if let Some(announced) = announced.filter(|announced| self.received > *announced) {
                    return Err(FetchError::Overlong { announced });
                }
                self.clock.watch.note(self.left.len() as u64);
            }
            Ok(hand_out(&mut self.left, room))
        }
        .boxed()
    }
}

fn poll_frame(
    body: &mut Incoming,
    driver: &mut Driver,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
        return Poll::Ready(frame);
    }
    // If it fails, the body says why.
    let _ = driver.poll(cx);
    Pin::new(body).poll_frame(cx)
}

/// A body of a length that was announced.
struct Announced {
    io: Io,
    /// What the library had read already.
    left: VecDeque<Bytes>,
    announced: u64,
    received: u64,
    /// Whether it was seen to be whole.
    ended: bool,
    clock: Clock,
}

impl Announced {
    fn new(mut body: Incoming, driver: Driver, announced: u64, clock: Clock) -> Self {
        let mut left = VecDeque::new();
        // The library hands on what it reads in pieces; what is not there now stays in its buffer or in the kernel. Its
        // failures come again when the connection is read.
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
            left.extend(frame.into_data());
        }
        let parts = driver.connection.into_parts();
        left.push_back(parts.read_buf);
        Self { io: parts.io.into_inner(), left, announced, received: 0, ended: false, clock }
    }

    /// Nothing may follow. Servers that let the connection stand are taken to say nothing more.
    async fn end(&mut self) -> Result<(), FetchError> {
        let mut more = self.left.iter().any(|left| !left.is_empty());
        if !more {
            more = matches!(timeout(CLOSE_DEADLINE, self.io.read(&mut [0])).await, Ok(Ok(1..)));
        }
        if more {
            return Err(FetchError::Overlong { announced: self.announced });
        }
        self.ended = true;
        Ok(())
    }
}

impl Body for Announced {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            if self.ended {
                return Ok(0);
            }
            let wanted = usize::try_from(self.announced - self.received).unwrap_or(usize::MAX);
            if wanted == 0 {
                return self.end().await.map(|()| 0);
            }
            let room_length = room.len().min(wanted);
            let room = &mut room[..room_length];
            while self.left.front().is_some_and(Bytes::is_empty) {
                self.left.pop_front();
            }
            let count = match self.left.front_mut() {
                Some(left) => hand_out(left, room),
                None => {
                    let interrupted = |cause| FetchError::Interrupted {
                        received: self.received,
                        announced: Some(self.announced),
                        cause,
                    };
                    match self.clock.wait(self.io.read(room)).await? {
                        Ok(0) => return Err(interrupted(None)),
                        Ok(count) => count,
                        Err(cause) => return Err(interrupted(Some(cause))),
                    }
                }
            };
            self.received += count as u64;
            self.clock.watch.note(count as u64);
            Ok(count)
        }
        .boxed()
    }
}

fn hand_out(left: &mut Bytes, room: &mut [u8]) -> usize {
    let count = room.len().min(left.len());
    left.copy_to_slice(&mut room[..count]);
    count
}

/// When waiting ends.
struct Clock {
    watch: StallWatch,
    deadline: Option<Deadline>,
}

impl Clock {
    /// Waits for the server.
    async fn wait<T>(&mut self, what: impl Future<Output = T>) -> Result<T, FetchError> {
        let started = Instant::now();
        let stalled = started + self.watch.left();
        let until = self.deadline.map_or(stalled, |deadline| stalled.min(deadline.at));
        match timeout_at(until, what).await {
            Ok(done) => {
                self.watch.waited += started.elapsed();
                Ok(done)
            }
            Err(_) => match self.deadline {
                Some(Deadline { at, limit }) if at <= stalled => Err(FetchError::Timeout { limit }),
                _ => Err(self.watch.stalled()),
            },
        }
    }
}

/// Demands so many bytes within each window. Only time spent waiting for the server counts: a slow disk of ours is no
/// fault of the server.
struct StallWatch {
    window: Duration,
    wanted: u64,
    waited: Duration,
    came: u64,
}

impl StallWatch {
    fn new(timeouts: Timeouts) -> Self {
        Self { window: timeouts.stall, wanted: timeouts.stall_bytes, waited: Duration::ZERO, came: 0 }
    }

    fn left(&self) -> Duration {
        self.window.saturating_sub(self.waited)
    }

    fn note(&mut self, bytes: u64) {
        self.came += bytes;
        if self.came >= self.wanted {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
    }

    fn stalled(&self) -> FetchError {
        FetchError::Stalled { bytes: self.came, window: self.window }
    }
}
