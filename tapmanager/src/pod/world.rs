//! What a pod's actor can do to the world, at the level of whole verbs: the seam at which tests put a fake.
//!
//! Implemented by [`super::kernel::Kernel`] and, in tests, by a fake that can fail at any verb. Each verb that makes
//! something undoes its own part when it fails; each verb that removes something is fine if the thing is gone.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Dns, Nic, PodNet};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cni::{CniError, ConfError, NetworkList, PluginError};
use crate::faults::Faults;
use crate::journal::Record;
use crate::net::{JoinError, Joined, Reported, Wish};
use crate::sys::netns::NetnsError;
use crate::sys::packet::PacketSocket;

/// How long a DHCP server may take to end once it is told to: the close of its socket waits 10 to 16 ms for the kernel.
const SERVERS_END_WITHIN: Duration = Duration::from_secs(5);

/// What is found at the path of a pod's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A namespace.
    Netns,
    /// A file that no namespace is mounted on.
    OtherFile,
    /// No file.
    Nothing,
}

/// What the CNI plugins made.
#[derive(Debug)]
pub(crate) struct Network {
    /// Their result, verbatim.
    pub(crate) raw: Value,
    /// What the join has to know of it.
    pub(crate) reported: Reported,
    /// Resolver settings that they say.
    pub(crate) dns: Dns,
}

/// A verb failed. Boxed, because it goes through many hands.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorldError {
    #[error(transparent)]
    Conf(Box<ConfError>),
    #[error(transparent)]
    Netns(Box<NetnsError>),
    #[error(transparent)]
    Cni(Box<CniError>),
    #[error(transparent)]
    Join(Box<JoinError>),
    #[error("its network namespace is gone")]
    NoNetns,
    #[cfg(test)]
    #[error("{verb} fails as the test wants")]
    Fake { verb: &'static str, culprits: Vec<(&'static str, bool)> },
}

/// A plugin that did not do what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Culprit<'a> {
    /// File name of the plugin.
    pub(crate) plugin: &'a str,
    /// It is not installed.
    pub(crate) absent: bool,
}

/// The verbs.
pub(crate) trait World: Send + Sync + 'static {
    /// Reads the node's default network, without running or changing anything.
    fn default_network(&self) -> impl Future<Output = Result<NetworkList, WorldError>> + Send;
    /// Looks at the path of a namespace.
    fn look(&self, netns: &Path) -> impl Future<Output = Result<Seen, WorldError>> + Send;
    /// Makes a namespace.
    fn create_netns(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Removes a namespace, or the file in its place.
    fn remove_netns(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Runs CNI ADD. The one verb that undoes nothing: whoever called it runs [`Self::del`].
    fn add(&self, record: &Record) -> impl Future<Output = Result<Network, WorldError>> + Send;
    /// Runs CNI DEL with the recorded configuration and result.
    fn del(&self, record: &Record) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Joins taps to the links that CNI made.
    fn join(
        &self,
        netns: &Path,
        reported: &[Reported],
        wish: &Wish,
        faults: &Arc<Faults>,
    ) -> impl Future<Output = Result<Joined, WorldError>> + Send;
    /// Opens the sockets of an existing join again.
    fn rejoin(&self, netns: &Path, nics: &[Nic]) -> impl Future<Output = Result<Vec<PacketSocket>, WorldError>> + Send;
    /// Takes our filters off the links that CNI made.
    fn unjoin(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Serves DHCP on the sockets, which are the NICs' in order.
    fn serve(&self, net: &Arc<PodNet>, hostname: &str, sockets: Vec<PacketSocket>) -> Serving;
    /// Opens the taps of the NICs, queue by queue.
    fn open_taps(&self, netns: &Path, nics: &[Nic]) -> impl Future<Output = Result<Vec<OwnedFd>, WorldError>> + Send;
    /// Whether a pod could be given a network now.
    fn ready(&self) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Time spent in CNI plugins since the start, in microseconds.
    fn plugin_micros(&self) -> u64;
}

/// The servers of one pod. Dropping it ends them as well.
#[derive(Debug)]
pub(crate) struct Serving {
    cancel: CancellationToken,
    servers: TaskTracker,
}

// === impl Serving ===

impl Serving {
    /// Starts one server for each of `start`'s calls to the tracker; they end when the token is cancelled.
    pub(crate) fn start(start: impl FnOnce(&TaskTracker, &CancellationToken)) -> Self {
        let serving = Self { cancel: CancellationToken::new(), servers: TaskTracker::new() };
        start(&serving.servers, &serving.cancel);
        serving.servers.close();
        serving
    }

    /// Tells the servers to end, and does not wait.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
    }

    /// Waits for the end of the servers after [`Self::stop`], so that their sockets keep no namespace alive.
    pub(crate) async fn ended(self) {
        self.stop();
        if tokio::time::timeout(SERVERS_END_WITHIN, self.servers.wait()).await.is_err() {
            tracing::warn!("a DHCP server did not end within {} s", SERVERS_END_WITHIN.as_secs());
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

// === impl WorldError ===

impl From<ConfError> for WorldError {
    fn from(error: ConfError) -> Self {
        Self::Conf(Box::new(error))
    }
}

impl From<NetnsError> for WorldError {
    fn from(error: NetnsError) -> Self {
        Self::Netns(Box::new(error))
    }
}

impl From<CniError> for WorldError {
    fn from(error: CniError) -> Self {
        Self::Cni(Box::new(error))
    }
}

impl From<JoinError> for WorldError {
    fn from(error: JoinError) -> Self {
        Self::Join(Box::new(error))
    }
}

impl WorldError {
    /// The plugins that failed; none if something else did.
    pub(crate) fn culprits(&self) -> Vec<Culprit<'_>> {
        match self {
            Self::Cni(error) => culprits(error),
            #[cfg(test)]
            Self::Fake { culprits, .. } => {
                culprits.iter().map(|&(plugin, absent)| Culprit { plugin, absent }).collect()
            }
            Self::Conf(_) | Self::Netns(_) | Self::Join(_) | Self::NoNetns => Vec::new(),
        }
    }
}

fn culprits(error: &CniError) -> Vec<Culprit<'_>> {
    match error {
        CniError::Plugin { kind, cause, .. } => {
            vec![Culprit { plugin: kind, absent: matches!(cause, PluginError::Absent { .. }) }]
        }
        CniError::Several(errors) => errors.iter().flat_map(culprits).collect(),
        _ => Vec::new(),
    }
}
