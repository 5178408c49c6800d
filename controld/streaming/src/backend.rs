//! What a streaming session offers to those who serve it: plain bytes, whatever protocol the client speaks.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::request::ExecRequest;

/// Bytes from the other end. End of file means that the other end sends no more.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;
/// Bytes to the other end, which waits when the other end does not read. Dropping it ends it.
pub type Output = Box<dyn AsyncWrite + Send + Unpin>;
/// Why a session failed; its text, and that of its causes, is shown to the client.
pub type SessionError = Box<dyn std::error::Error + Send + Sync>;

/// Serves the sessions of a [`crate::Server`]. A session is over when its future is. The future is dropped when the client
/// goes away.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Joins the client to a container that runs. The session is to end when the container ends, and after
    /// [`Session::stdin`] has ended if [`Session::stdin_once`] is set.
    fn attach<'a>(&'a self, container_id: &'a str, session: Session) -> BoxFuture<'a, Result<(), SessionError>>;

    /// Runs a command in a container that runs, and answers with the command's exit code. The command is to be killed when
    /// the future is dropped.
    fn exec<'a>(&'a self, request: &'a ExecRequest, session: Session) -> BoxFuture<'a, Result<u8, SessionError>> {
        drop(session);
        let error = format!("failed to run a command in container `{}`: exec is not served here", request.container_id);
        Box::pin(async { Err(error.into()) })
    }

    /// Connects to a port of a pod. [`crate::Server`] gives it a deadline.
    fn dial<'a>(&'a self, pod_id: &'a str, port: u16) -> BoxFuture<'a, Result<(Input, Output), SessionError>> {
        let error = format!("failed to connect to port {port} of pod `{pod_id}`: port-forward is not served here");
        Box::pin(async { Err(error.into()) })
    }
}

/// A client that is joined to a container or to a command in it.
pub struct Session {
    /// What the client types, if it wants to type.
    pub stdin: Option<Input>,
    /// What the client sees, if it wants to see it.
    pub stdout: Option<Output>,
    /// What the client sees as errors.
    pub stderr: Option<Output>,
    /// Sizes of the client's terminal, if it has one.
    pub resize: Option<ResizeEvents>,
    /// Whether the session ends with its stdin.
    pub stdin_once: bool,
    /// Fires when the client is gone.
    pub closed: CancellationToken,
}

/// Size of a terminal in characters, neither of them zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TermSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Sizes of a terminal as they change. One that is replaced before somebody looks is not seen.
#[derive(Debug)]
pub struct ResizeEvents(watch::Receiver<Option<TermSize>>);

impl ResizeEvents {
    pub(crate) fn channel() -> (watch::Sender<Option<TermSize>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// The next size; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<TermSize> {
        loop {
            self.0.changed().await.ok()?;
            if let Some(size) = *self.0.borrow_and_update() {
                return Some(size);
            }
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("stdin", &self.stdin.is_some())
            .field("stdout", &self.stdout.is_some())
            .field("stderr", &self.stderr.is_some())
            .field("resize", &self.resize.is_some())
            .field("stdin_once", &self.stdin_once)
            .finish_non_exhaustive()
    }
}
