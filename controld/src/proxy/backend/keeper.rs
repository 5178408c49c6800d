//! Keeps the connection to the default: makes it, says when it is lost, makes it anew.
//!
//! Between attempts it waits 100 ms, then twice as long, up to a second; a change in the socket's directory (inotify) ends the wait. A
//! connection counts when `Version` was answered over it; until then nobody else has it. When something was not answered in time, `Version`
//! is asked again: unanswered within the deadline, the default is away, until that same question is answered or the connection ends.
//!
//! Who listens at the socket is asked of the kernel: our own socket has more than one path, and to be one's own default is a call that
//! goes round for ever.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Chain;
use common::watch::Watcher;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tonic::Status;
use tonic::body::Body;
use tower::service_fn;

use super::{Backend, Failure, send};
use crate::proxy::ask::{self, Question};

/// Between two attempts the shortest, after a change in the socket's directory.
const LEAST: Duration = Duration::from_millis(20);
/// For a connection, and for `Version` over a new one.
const CONNECT: Duration = Duration::from_secs(10);
/// What one answer, and all of them, may have under way before it is taken. One that nobody takes leaves room for the rest,
/// 128 of them leave none.
const STREAM_WINDOW: u32 = 512 << 10;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// Of headers, as grpc-go's clients take them.
const HEADERS: u32 = 16 << 20;
/// How much of requests is kept before the default takes it, of each.
const SEND_BUFFER: usize = 512 << 10;

pub(super) const VERSION: &str = "/runtime.v1.RuntimeService/Version";

/// Characters of a reason for which it cannot be asked: some of it may be the default's own text.
const REASON: usize = 256;

/// How long it is waited between two attempts.
#[derive(Debug, Clone, Copy)]
pub(in crate::proxy) struct Pace {
    pub(in crate::proxy) first: Duration,
    pub(in crate::proxy) longest: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(1) }
    }
}

/// Who hears of new connections.
pub(in crate::proxy) trait Greeted: Send + Sync + 'static {
    /// There is a connection, over which `Version` was answered with this. Calls go over it from now on.
    fn connected(&self, version: Bytes);

    /// Whether it can be asked has changed.
    fn reachable(&self, is: bool);
}

/// Keeps the connection until it is dropped.
pub(in crate::proxy) async fn keep(backend: Backend, greeted: impl Greeted, watcher: Watcher, pace: Pace) {
    let mut wait = pace.first;
    let mut told: Option<String> = None;
    loop {
        // Before the attempt, so that a socket that is made meanwhile ends the wait.
        let watch = backend.socket().parent().and_then(|dir| watcher.watch(dir).ok());
        match connect(&backend).await {
            Ok(connection) => {
                (wait, told) = (pace.first, None);
                let socket = backend.socket().display();
                tracing::info!(%socket, "connected to the container runtime");
                backend.sender().replace(connection.sender.clone());
                backend.reach().connected(Instant::now());
                backend.0.connections.send_modify(|number| *number += 1);
                backend.0.back.notify_waiters();
                greeted.reachable(true);
                greeted.connected(connection.version.clone());
                let why = shown(&until_lost(&backend, connection, &greeted).await);
                backend.sender().take();
                greeted.reachable(false);
                tracing::warn!(socket = %backend.socket().display(), why, "connection to the container runtime lost");
                backend.reach().lost(Instant::now(), why);
            }
            Err(why) => {
                let why = shown(&why);
                // Each reason once: a runtime may be away for long, and count meanwhile.
                if told.as_ref().is_none_or(|told| !is_alike(told, &why)) {
                    tracing::warn!(socket = %backend.socket().display(), why, "container runtime not reached; trying on");
                }
                backend.reach().lost(Instant::now(), why.clone());
                told = Some(why);
            }
        }
        let changed = async {
            match watch {
                Some(mut watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {
                // A socket is there before anybody listens on it. And a directory in which much happens is no reason to run.
                sleep(LEAST).await;
                wait = pace.first;
            }
            () = sleep(wait) => wait = (wait * 2).min(pace.longest),
        }
    }
}

struct Connected {
    sender: SendRequest<Body>,
    /// Ends with the connection, and says why.
    driver: JoinHandle<Result<(), hyper::Error>>,
    version: Bytes,
}

/// A connection that is not kept.
impl Drop for Connected {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn connect(backend: &Backend) -> Result<Connected, String> {
    let made = async {
        let stream = UnixStream::connect(backend.socket()).await.map_err(|error| reason(&error))?;
        let listens = stream.peer_cred().map_err(|error| reason(&error))?.pid();
        if listens.and_then(|pid| u32::try_from(pid).ok()) == Some(backend.0.us) {
            return Err("it is controld's own; name that of the other runtime in `proxy.runtime_endpoint`".into());
        }
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS)
            .max_send_buf_size(SEND_BUFFER)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await.map_err(|error| Chain(&error).to_string())?;
        let driver = tokio::spawn(connection);
        let mut connected = Connected { sender, driver, version: Bytes::new() };
        connected.version = version(connected.sender.clone())
            .await
            .map_err(|status| format!("it does not answer `Version`: {}", status.message()))?;
        Ok(connected)
    };
    let late =
        |_| Err(format!("it accepted a connection, and did not answer `Version` within {} s", CONNECT.as_secs()));
    timeout(CONNECT, made).await.unwrap_or_else(late)
}

/// Of a reason what fits a log and each refusal.
fn shown(why: &str) -> String {
    common::shown(why, REASON)
}

/// Whether two reasons are one but for their numbers.
fn is_alike(one: &str, other: &str) -> bool {
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    words(one) == words(other)
}

fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such socket".into(),
        io::ErrorKind::ConnectionRefused => "nobody listens on its socket".into(),
        io::ErrorKind::WouldBlock => "it does not accept connections, and more wait than may".into(),
        _ => error.to_string(),
    }
}

/// Asks for `Version` over a connection that calls may not have yet, or that is in doubt.
async fn version(sender: SendRequest<Body>) -> Result<Bytes, Status> {
    let side = service_fn(move |request| {
        let sender = sender.clone();
        async move {
            send(sender, request).await.map_err(|failure| match failure {
                Failure::Broken(error) => Status::unavailable(Chain(&error).to_string()),
                Failure::Rubbish(status) => status,
            })
        }
    });
    ask::one(side, Question::new(VERSION, Bytes::new())).await.map(tonic::Response::into_inner)
}

/// Watches over a connection; why it has ended.
async fn until_lost(backend: &Backend, mut connection: Connected, greeted: &impl Greeted) -> String {
    loop {
        tokio::select! {
            ended = &mut connection.driver => return why(ended),
            () = backend.0.doubted.notified() => {}
        }
        let deadline = backend.deadline();
        let mut asked = std::pin::pin!(version(connection.sender.clone()));
        let answered = tokio::select! {
            ended = &mut connection.driver => return why(ended),
            answered = timeout(deadline, &mut asked) => answered,
        };
        if answered.is_ok() {
            // Any answer will do: it is there.
            continue;
        }
        tracing::warn!(socket = %backend.socket().display(), deadline_s = deadline.as_secs(), "container runtime answers nothing");
        backend.reach().silent(Instant::now());
        greeted.reachable(false);
        tokio::select! {
            ended = &mut connection.driver => return why(ended),
            _answer = asked => {
                tracing::info!(socket = %backend.socket().display(), "container runtime answers again");
                backend.reach().answered();
                greeted.reachable(true);
                backend.0.back.notify_waiters();
            }
        }
    }
}

fn why(ended: Result<Result<(), hyper::Error>, tokio::task::JoinError>) -> String {
    match ended {
        Ok(Ok(())) => "it closed the connection".into(),
        Ok(Err(error)) => Chain(&error).to_string(),
        Err(error) => Chain(&error).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_and_one_that_counts_is_no_news() {
        let long = format!("it says \n{}", "x".repeat(10_000));
        assert_eq!((shown(&long).chars().count(), shown(&long).contains("it says ?x")), (REASON, true));
        assert!(is_alike("away for 9 s", "away for 10 s") && !is_alike("away for 9 s", "refused"));
    }
}
