//! The way to `tapmanager`: its control socket and nothing else.
//!
//! Each call runs the blocking client of [`proto::tap`] off the reactor. A call that the caller gives up on still ends
//! by the client's deadline.

use std::time::Duration;

use proto::tap::{
    Arm, Attach, Client, ClientError, ErrorCode, Hello, PodId, PodNet, PodStats, PodSummary, QemuUser, Reply, Request,
    ServerStatus, Token,
};

use crate::error::{Error, Kind, Result};

/// Calls to `tapmanager`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tap {
    client: Client,
}

impl Tap {
    /// A way to the socket at `path`.
    #[must_use]
    pub fn new(path: std::path::PathBuf, deadline: Duration) -> Self {
        Self { client: Client::new(path, deadline) }
    }

    /// Says who we are and who QEMU runs as.
    ///
    /// # Errors
    /// When tapmanager does not answer or refuses.
    pub async fn hello(&self, qemu: Option<QemuUser>) -> Result<ServerStatus> {
        let client = format!("controld {}", env!("CARGO_PKG_VERSION"));
        match self.call(Request::Hello(Hello { client, qemu }), "greet tapmanager").await? {
            Reply::Status(status) => Ok(status),
            _ => Err(wrong_reply()),
        }
    }

    /// Its state.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn status(&self) -> Result<ServerStatus> {
        match self.call(Request::Status, "ask tapmanager for its state").await? {
            Reply::Status(status) => Ok(status),
            _ => Err(wrong_reply()),
        }
    }

    /// Gives a pod its network.
    ///
    /// # Errors
    /// When that failed; then tapmanager has undone it.
    pub async fn attach(&self, attach: Attach) -> Result<PodNet> {
        match self.call(Request::Attach(attach), "set up the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Mints the token of a start.
    ///
    /// # Errors
    /// When the pod has no network, or tapmanager does not answer.
    pub async fn arm(&self, pod: PodId) -> Result<Token> {
        match self.call(Request::Arm(Arm { pod, qemu: None }), "arm the pod's network for a start").await? {
            Reply::Armed { token } => Ok(token),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes a pod's network away; fine if there is none.
    ///
    /// # Errors
    /// When that failed; it can be tried again.
    pub async fn detach(&self, pod: PodId) -> Result<()> {
        match self.call(Request::Detach { pod }, "take down the pod's network").await? {
            Reply::Detached => Ok(()),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes up a pod that is in trouble again.
    ///
    /// # Errors
    /// When it stays in trouble, or tapmanager does not answer.
    pub async fn recover(&self, pod: PodId) -> Result<PodNet> {
        match self.call(Request::Recover { pod }, "recover the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Counters of all pods that have a network.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn stats(&self) -> Result<Vec<PodStats>> {
        self.ask("read the counters of tapmanager", Client::stats).await
    }

    /// All pods that have a network, or had one and it is being taken away.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn pods(&self) -> Result<Vec<PodSummary>> {
        self.ask("list the pods of tapmanager", |client| client.pods(None)).await
    }

    async fn call(&self, request: Request, action: &'static str) -> Result<Reply> {
        self.ask(action, move |client| client.call(&request)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&Client) -> std::result::Result<T, ClientError> + Send + 'static,
    ) -> Result<T> {
        let client = self.client.clone();
        let called = tokio::task::spawn_blocking(move || work(&client)).await;
        let called = called.map_err(|_cancelled| Error::new(Kind::Unavailable, "controld is shutting down"))?;
        called.map_err(|cause| match cause {
            ClientError::WrongReply => wrong_reply(),
            cause => Error::because(kind_of(&cause), format!("failed to {action}"), cause),
        })
    }
}

fn kind_of(error: &ClientError) -> Kind {
    match error.code() {
        ErrorCode::BadRequest => Kind::Invalid,
        ErrorCode::NotFound => Kind::NotFound,
        ErrorCode::Conflict => Kind::State,
        ErrorCode::Denied => Kind::Denied,
        ErrorCode::Unavailable => Kind::Unavailable,
        ErrorCode::Deadline => Kind::Deadline,
        ErrorCode::Exhausted => Kind::Exhausted,
        ErrorCode::Version | ErrorCode::Internal => Kind::Internal,
    }
}

fn wrong_reply() -> Error {
    Error::new(Kind::Internal, "tapmanager answered another question; install one release of both daemons")
}
