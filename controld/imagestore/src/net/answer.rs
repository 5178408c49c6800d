//! An answer and its body, with the watch over stalls and lengths.
//!
//! The connection is driven by whoever reads the body, in the same task: no hand-over between threads, and dropping
//! the stream closes the connection.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
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
use tokio::time::{Instant, timeout};

use super::dial::Io;
use super::{Body, FetchError, MAX_HEAD, Timeouts};

/// How long a server may take to close its end once its answer is complete. Then it is taken to say nothing more.
const CLOSE_DEADLINE: Duration = Duration::from_millis(250);

/// The connection, polled beside whatever is read from it.
struct Driver {
    connection: Connection<Io, Full<Bytes>>,
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
    timeouts: Timeouts,
}

impl Answer {
    /// Sends the request and waits for the head of the answer.
    pub(super) async fn to(request: Request<Full<Bytes>>, io: Io, timeouts: Timeouts) -> Result<Self, FetchError> {
        let (mut sender, connection) =
            Builder::new().max_header_size(MAX_HEAD).handshake(io).await.map_err(FetchError::Protocol)?;
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
        match timeout(timeouts.stall, answered).await {
            Ok(Ok(response)) => Ok(Self { response, driver, timeouts }),
            Ok(Err(cause)) => Err(FetchError::Protocol(cause)),
            Err(_) => Err(FetchError::Stalled { bytes: 0, window: timeouts.stall }),
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

    pub(super) fn into_body(self) -> Wire {
        Wire {
            announced: self.length(),
            body: self.response.into_body(),
            driver: Some(self.driver),
            left: Bytes::new(),
            received: 0,
            watch: StallWatch::new(self.timeouts),
        }
    }
}

/// A body as it comes over the wire.
pub(super) struct Wire {
    body: Incoming,
    /// Gone once the body has ended soundly.
    driver: Option<Driver>,
    announced: Option<u64>,
    /// What came and was not handed out yet.
    left: Bytes,
    received: u64,
    watch: StallWatch,
}

impl Body for Wire {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            while self.left.is_empty() {
                match self.next().await? {
                    Some(bytes) => self.left = bytes,
                    None => return self.finish().await.map(|()| 0),
                }
            }
            let count = room.len().min(self.left.len());
            self.left.copy_to_slice(&mut room[..count]);
            Ok(count)
        }
        .boxed()
    }
}

impl Wire {
    async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            let started = Instant::now();
            let Some(driver) = &mut self.driver else { return Ok(None) };
            let (body, driver) = (&mut self.body, driver);
            let frame = poll_fn(|cx| poll_frame(body, driver, cx));
            let Ok(frame) = timeout(self.watch.left(), frame).await else { return Err(self.watch.stalled()) };
            match frame {
                None => return Ok(None),
                Some(Err(cause)) => return Err(self.interrupted(Some(cause))),
                // Trailers end the body; nothing in them matters.
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        self.received += bytes.len() as u64;
                        self.watch.note(bytes.len() as u64, started.elapsed());
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }

    fn interrupted(&self, cause: Option<hyper::Error>) -> FetchError {
        FetchError::Interrupted { received: self.received, announced: self.announced, cause }
    }

    /// The body is at its end: it must be whole, and nothing may follow.
    async fn finish(&mut self) -> Result<(), FetchError> {
        let (Some(announced), Some(mut driver)) = (self.announced, self.driver.take()) else { return Ok(()) };
        if self.received != announced {
            return Err(self.interrupted(None));
        }
        let rest = async {
            // How it ends does not matter to a body that is whole, only whether bytes are left over.
            poll_fn(|cx| driver.poll(cx)).await;
            let parts = driver.connection.into_parts();
            !parts.read_buf.is_empty() || matches!(TokioIo::new(parts.io).read(&mut [0]).await, Ok(1..))
        };
        match timeout(CLOSE_DEADLINE, rest).await {
            Ok(true) => Err(FetchError::Overlong { announced }),
            Ok(false) | Err(_) => Ok(()),
        }
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

    fn note(&mut self, bytes: u64, waited: Duration) {
        self.came += bytes;
        self.waited += waited;
        if self.came >= self.wanted {
            (self.came, self.waited) = (0, Duration::ZERO);
        }
    }

    fn stalled(&self) -> FetchError {
        FetchError::Stalled { bytes: self.came, window: self.window }
    }
}
