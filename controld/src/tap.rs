//! The way to `tapmanager`: its control socket and nothing else.
//!
//! Three sorts of requests go over connections that are kept: slow ones (a plugin may take minutes), of which so many are
//! asked at a time and the others wait here; those of starts, which wait for their pods; and quick ones, which wait for neither. One more connection is
//! [watched](watch): it says what state tapmanager is in without asking, and that it is gone as soon as it is.

mod line;
mod lines;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use proto::tap::{
    Arm, Attach, Client, ClientError, ErrorCode, Hello, List, PodId, PodNet, PodStats, PodSummary, QemuUser, Reply,
    Request, ServerStatus, Token,
};

use self::lines::{LineError, Lines};
pub use self::watch::State;
use self::watch::Watch;
use crate::error::{Error, Kind, Result};

/// Slow requests at a time. tapmanager serves 64 connections, of others too.
const SLOW: usize = 32;
/// Quick requests at a time.
const QUICK: usize = 8;
/// Starts at a time: each waits for its pod's recovery, and no quick request is to wait for that.
const STARTS: usize = 8;

/// Calls to `tapmanager`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tap {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    slow: Lines,
    quick: Lines,
    starts: Lines,
    watch: Watch,
}

impl Tap {
    /// A way to the socket at `path`, where an answer may take until `deadline`.
    #[must_use]
    pub fn new(path: std::path::PathBuf, deadline: Duration) -> Self {
        let client = Client::new(path, deadline);
        let shared = Shared {
            slow: Lines::new(client.clone(), SLOW, deadline),
            quick: Lines::new(client.clone(), QUICK, deadline),
            starts: Lines::new(client.clone(), STARTS, deadline),
            watch: Watch::new(client),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Watches tapmanager, for ever.
    pub async fn keep_watch(self) {
        let lines = || {
            self.shared.slow.close_idle();
            self.shared.quick.close_idle();
            self.shared.starts.close_idle();
        };
        self.shared.watch.run(lines).await;
    }

    /// What state tapmanager is in, as of a moment ago.
    pub async fn state(&self) -> State {
        self.shared.watch.state().await
    }

    /// Waits for a connection to tapmanager that is not the one of this number; gives its number.
    pub async fn connected(&self, before: u64) -> u64 {
        self.shared.watch.connected(before).await
    }

    /// Says who we are and who QEMU runs as.
    ///
    /// # Errors
    /// When tapmanager does not answer or refuses.
    pub async fn hello(&self, qemu: Option<QemuUser>) -> Result<ServerStatus> {
        let client = format!("controld {}", env!("CARGO_PKG_VERSION"));
        match self.quick(Request::Hello(Hello { client, qemu }), "greet tapmanager").await? {
            Reply::Status(status) => Ok(status),
            _ => Err(wrong_reply()),
        }
    }

    /// Gives a pod its network.
    ///
    /// # Errors
    /// When that failed; then tapmanager has undone it.
    pub async fn attach(&self, attach: Attach) -> Result<PodNet> {
        match self.slow(Request::Attach(attach), "set up the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Mints the token of a start of a machine that QEMU's user `qemu` will run.
    ///
    /// # Errors
    /// When the pod has no network, or tapmanager does not answer.
    pub async fn arm(&self, pod: PodId, qemu: QemuUser) -> Result<Token> {
        let arm = Arm { pod, qemu: Some(qemu) };
        let armed = self.shared.starts.ask(&Request::Arm(arm)).await;
        match armed.map_err(|cause| failed("arm the pod's network for a start", cause))? {
            Reply::Armed { token } => Ok(token),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes a pod's network away; fine if there is none.
    ///
    /// # Errors
    /// When that failed; it can be tried again.
    pub async fn detach(&self, pod: PodId) -> Result<()> {
        match self.slow(Request::Detach { pod }, "take down the pod's network").await? {
            Reply::Detached => Ok(()),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes up a pod that is in trouble again.
    ///
    /// # Errors
    /// When it stays in trouble, or tapmanager does not answer.
    pub async fn recover(&self, pod: PodId) -> Result<PodNet> {
        match self.slow(Request::Recover { pod }, "recover the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Counters of all pods that have a network, or of one.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn stats(&self, pod: Option<&PodId>) -> Result<Vec<PodStats>> {
        let mut all: Vec<PodStats> = Vec::new();
        loop {
            let list = page(all.last().map(|last| &last.pod), pod);
            match self.quick(Request::Stats(list), "read the counters of tapmanager").await? {
                Reply::Stats(page) if goes_on(page.more, page.pods.len()) => all.extend(page.pods),
                Reply::Stats(page) => {
                    all.extend(page.pods);
                    return Ok(all);
                }
                _ => return Err(wrong_reply()),
            }
        }
    }

    /// All pods that have a network, or had one and it is being taken away; or one.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn pods(&self, pod: Option<&PodId>) -> Result<Vec<PodSummary>> {
        let mut all: Vec<PodSummary> = Vec::new();
        loop {
            let list = page(all.last().map(|last| &last.pod), pod);
            match self.quick(Request::List(list), "list the pods of tapmanager").await? {
                Reply::Pods(page) if goes_on(page.more, page.pods.len()) => all.extend(page.pods),
                Reply::Pods(page) => {
                    all.extend(page.pods);
                    return Ok(all);
                }
                _ => return Err(wrong_reply()),
            }
        }
    }

    async fn slow(&self, request: Request, action: &'static str) -> Result<Reply> {
        self.shared.slow.ask(&request).await.map_err(|cause| failed(action, cause))
    }

    async fn quick(&self, request: Request, action: &'static str) -> Result<Reply> {
        self.shared.quick.ask(&request).await.map_err(|cause| failed(action, cause))
    }
}

fn page(after: Option<&PodId>, pod: Option<&PodId>) -> List {
    List { after: after.cloned(), pod: pod.cloned(), owner: None }
}

/// An empty page that promises more would go on for ever.
fn goes_on(more: bool, pods: usize) -> bool {
    more && pods > 0
}

fn failed(action: &'static str, cause: LineError) -> Error {
    let kind = match &cause {
        LineError::Queue { .. } => Kind::Deadline,
        LineError::Call(cause) => kind_of(cause),
    };
    Error::because(kind, format!("failed to {action}"), cause)
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

#[cfg(test)]
pub(crate) mod tests;
