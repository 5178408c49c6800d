//! The way to `tapmanager`: its control socket and nothing else.
//!
//! Each sort of requests has connections of its own, which are kept: so many are asked at a time, the others wait here, and no
//! sort waits for another. A plugin may take minutes: pods whose networks hang while they are taken away keep none from
//! being made, nor a machine from being started, nor anybody from knowing. One more connection is [watched](watch): it says
//! what state tapmanager is in without asking, and that it is gone as soon as it is.

mod line;
mod lines;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use proto::tap::{
    Arm, Attach, Client, ClientError, ErrorCode, Hello, List, PciAddress, PfSummary, PodId, PodNet, PodStats,
    PodSummary, ProcessId, QemuUser, Reply, Request, ServerStatus, Token, VfRequest,
};
use vmspec::error::{Error, Kind, Result};

use self::lines::{LineError, Lines};
pub use self::watch::State;
use self::watch::Watch;
use crate::trace;

/// Networks that are made, or mended, at a time. All together are less than tapmanager works on, as others ask it too.
const MAKES: usize = 128;
/// Networks that are taken away at a time.
const ENDS: usize = 256;
/// Machines that are started at a time: each may wait some seconds for a pod that is being recovered.
const STARTS: usize = 32;
/// Questions for counters at a time, for which tapmanager goes through its pods or its node's cards.
const COUNTS: usize = 2;
/// Other requests at a time, whose answers tapmanager has at hand.
const QUICK: usize = 8;

/// Calls to `tapmanager`. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tap {
    shared: Arc<Shared>,
}

/// A pod whose machine may start.
#[derive(Debug)]
pub struct Armed {
    /// For vmwrapper.
    pub token: Token,
    /// Devices of the pod's NICs that libvirt has to pass through.
    pub hostdevs: Vec<PciAddress>,
}

#[derive(Debug)]
struct Shared {
    makes: Lines,
    ends: Lines,
    starts: Lines,
    counts: Lines,
    quick: Lines,
    watch: Watch,
}

impl Tap {
    /// A way to the socket at `path`, where an answer may take until `deadline`.
    #[must_use]
    pub fn new(path: std::path::PathBuf, deadline: Duration) -> Self {
        let client = Client::new(path, deadline);
        let lines = |places| Lines::new(client.clone(), places, deadline);
        let shared = Shared {
            makes: lines(MAKES),
            ends: lines(ENDS),
            starts: lines(STARTS),
            counts: lines(COUNTS),
            quick: lines(QUICK),
            watch: Watch::new(client),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Watches tapmanager, for ever.
    pub async fn keep_watch(self) {
        let Shared { makes, ends, starts, counts, quick, watch } = &*self.shared;
        watch.run(|| [makes, ends, starts, counts, quick].into_iter().for_each(Lines::close_idle)).await;
    }

    /// How many requests are under way on each sort of connections.
    #[must_use]
    pub fn running(&self) -> [(&'static str, u64); 5] {
        let Shared { makes, ends, starts, counts, quick, .. } = &*self.shared;
        [("makes", makes), ("ends", ends), ("starts", starts), ("counts", counts), ("quick", quick)]
            .map(|(name, lines)| (name, lines.running()))
    }

    /// What state tapmanager is in, as of a moment ago. One that was ready and is being started again counts as ready for a
    /// while.
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
        match self.ask(Request::Hello(Hello { client, qemu }), "greet tapmanager").await? {
            Reply::Status(status) => Ok(status),
            _ => Err(wrong_reply()),
        }
    }

    /// Gives a pod its network.
    ///
    /// # Errors
    /// When that failed; then tapmanager has undone it.
    pub async fn attach(&self, attach: Attach) -> Result<PodNet> {
        match self.ask(Request::Attach(attach), "set up the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Mints the token of a start of a machine that QEMU's user `qemu` will run. `iommufd` says whether QEMU takes devices
    /// by their descriptors; it is `None` for a pod that has none to pass through.
    ///
    /// # Errors
    /// When the pod has no network, or tapmanager does not answer.
    pub async fn arm(&self, pod: PodId, qemu: QemuUser, iommufd: Option<bool>) -> Result<Armed> {
        let arm = Arm { pod, qemu: Some(qemu), iommufd };
        match self.ask(Request::Arm(arm), "arm the pod's network for a start").await? {
            Reply::Armed { token, hostdevs } => Ok(Armed { token, hostdevs }),
            _ => Err(wrong_reply()),
        }
    }

    /// The process that took the pod's NICs last, which is its machine's; `None` if tapmanager has not seen one since it was started.
    ///
    /// # Errors
    /// When tapmanager does not answer, or is of a release that does not know.
    pub async fn machine(&self, pod: PodId) -> Result<Option<ProcessId>> {
        match self.ask(Request::Machine { pod }, "ask which process took the pod's NICs").await? {
            Reply::Machine(process) => Ok(process),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes a pod's network away; fine if there is none.
    ///
    /// # Errors
    /// When that failed; it can be tried again.
    pub async fn detach(&self, pod: PodId) -> Result<()> {
        match self.ask(Request::Detach { pod }, "take down the pod's network").await? {
            Reply::Detached => Ok(()),
            _ => Err(wrong_reply()),
        }
    }

    /// Takes up a pod that is in trouble again.
    ///
    /// # Errors
    /// When it stays in trouble, or tapmanager does not answer.
    pub async fn recover(&self, pod: PodId) -> Result<PodNet> {
        match self.ask(Request::Recover { pod }, "recover the pod's network").await? {
            Reply::Attached(net) => Ok(net),
            _ => Err(wrong_reply()),
        }
    }

    /// Counters of all pods that have a network, or of one.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn stats(&self, pod: Option<&PodId>) -> Result<Vec<PodStats>> {
        let ask = |after| Request::Stats(page(after, pod));
        let answer = |reply| match reply {
            Reply::Stats(page) => Some((page.pods, page.more)),
            _ => None,
        };
        self.pages("read the counters of tapmanager", ask, answer, |stats| &stats.pod).await
    }

    /// All pods that have a network, or had one and it is being taken away; or one.
    ///
    /// # Errors
    /// When tapmanager does not answer.
    pub async fn pods(&self, pod: Option<&PodId>) -> Result<Vec<PodSummary>> {
        let ask = |after| Request::List(page(after, pod));
        let answer = |reply| match reply {
            Reply::Pods(page) => Some((page.pods, page.more)),
            _ => None,
        };
        self.pages("list the pods of tapmanager", ask, answer, |summary| &summary.pod).await
    }

    /// The node's physical functions, and how many of their virtual ones are in use.
    ///
    /// # Errors
    /// When tapmanager does not answer, or is of a release that knows none.
    pub async fn pfs(&self) -> Result<Vec<PfSummary>> {
        let first = Request::Vf(VfRequest::List { after: None });
        match self.ask(first, "list the physical functions of tapmanager").await? {
            Reply::Vfs(page) => Ok(page.pfs),
            _ => Err(wrong_reply()),
        }
    }

    /// What is on all pages. `answer` takes a page out of the reply, and whether there are more.
    async fn pages<T>(
        &self,
        action: &'static str,
        ask: impl Fn(Option<PodId>) -> Request,
        answer: impl Fn(Reply) -> Option<(Vec<T>, bool)>,
        pod_of: impl Fn(&T) -> &PodId,
    ) -> Result<Vec<T>> {
        let mut all = Vec::new();
        loop {
            let after = all.last().map(|last| pod_of(last).clone());
            let (page, more) = answer(self.ask(ask(after), action).await?).ok_or_else(wrong_reply)?;
            // An empty page that promises more would go on for ever.
            let goes_on = more && !page.is_empty();
            all.extend(page);
            if !goes_on {
                return Ok(all);
            }
        }
    }

    async fn ask(&self, request: Request, action: &'static str) -> Result<Reply> {
        let lines = match request {
            Request::Attach(_) | Request::Recover { .. } => &self.shared.makes,
            Request::Detach { .. } => &self.shared.ends,
            Request::Arm(_) => &self.shared.starts,
            Request::Stats(_) | Request::Vf(_) => &self.shared.counts,
            _ => &self.shared.quick,
        };
        let asked = async { lines.ask(&request).await.map_err(|cause| failed(action, cause)) };
        trace::step("tapmanager", request.name(), asked).await
    }
}

fn page(after: Option<PodId>, pod: Option<&PodId>) -> List {
    List { after, pod: pod.cloned(), owner: None }
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
