//! What a pod's actor does to the kernel and by plugins, as a trait that tests fake.
//!
//! [`super::kernel::Kernel`] implements it, and in tests a fake that can fail at any verb. Each verb that makes
//! something undoes its own part when it fails. Each verb that removes something succeeds if the thing is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Attach, Dns, IfName, Nic, NicStats, PciAddress, PodId, PodNet};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::names::{NetnsNames, NetnsOwner};
use super::sysctl::SysctlError;
use crate::cni::{CniError, ConfError, Gate, Leftover, NetworkList, PluginError, Ready};
use crate::faults::Faults;
use crate::journal::{Attachment, Record};
use crate::net::lent::Renamed;
use crate::net::{Choices, Finding, JoinError, Joined, Opened, PassedThrough, Port, Reported};
use crate::sys::netns::NetnsError;
use crate::vf::{Devices, VfError};

/// How long a DHCP server may take to end once it is told to: the close of its socket waits 10 to 16 ms for the kernel.
const SERVERS_END_WITHIN: Duration = Duration::from_secs(5);

/// What is found at the path of a pod's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetnsState {
    /// A namespace.
    Present,
    /// A file that no namespace is mounted on.
    OtherFile,
    /// No file.
    Absent,
}

/// What the CNI plugins made.
#[derive(Debug)]
pub(crate) struct Network {
    /// Their result, verbatim.
    pub(crate) raw: Value,
    /// What the join has to know of it: the network's own part first, then those that a meta plugin added.
    pub(crate) reported: Vec<Reported>,
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
    #[error(transparent)]
    Sysctl(Box<SysctlError>),
    #[error(transparent)]
    Vf(Box<VfError>),
    #[error("failed to list the namespaces in `{}`", dir.display())]
    List {
        dir: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("its network namespace is gone")]
    NoNetns,
    #[error("{0}")]
    Beyond(String),
    #[cfg(test)]
    #[error("{verb} fails as the test wants")]
    Fake { verb: &'static str, culprits: Vec<Culprit> },
}

/// A plugin that did not do what it was asked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Culprit {
    /// Its position in the network, from 0.
    pub(crate) place: usize,
    /// It is not installed.
    pub(crate) absent: bool,
}

/// What became of a CHECK.
#[derive(Debug)]
pub(crate) enum Checked {
    /// All plugins say that it is well.
    Well,
    /// They were not asked, for this reason.
    NotAsked(String),
}

/// The attachments to one network that are on record.
#[derive(Debug)]
pub(crate) struct OfNetwork {
    /// As the latest of them has it.
    pub(crate) network: NetworkList,
    /// Container id and name of the link of each.
    pub(crate) valid: Vec<(PodId, IfName)>,
}

/// The verbs.
pub(crate) trait World: Send + Sync + 'static {
    /// Reads the networks that the pod asks for, in order, and refuses those that cannot do what it asks of them. Runs
    /// and changes nothing.
    fn networks(&self, request: &Attach) -> impl Future<Output = Result<Vec<NetworkList>, WorldError>> + Send;
    /// All networks of the node that can be read.
    fn configured(&self) -> impl Future<Output = Vec<NetworkList>> + Send;
    /// Looks at the path of a namespace.
    fn look(&self, netns: &Path) -> impl Future<Output = Result<NetnsState, WorldError>> + Send;
    /// Makes a namespace.
    fn create_netns(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Removes a namespace, or the file in its place.
    fn remove_netns(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// The mounted namespaces of our kind of name, in order, each with its owner.
    fn namespaces(
        &self,
        names: &NetnsNames,
    ) -> impl Future<Output = Result<Vec<(PathBuf, NetnsOwner)>, WorldError>> + Send;
    /// Sets what the pod wants of its namespace.
    fn sysctls(
        &self,
        netns: &Path,
        sysctls: &BTreeMap<String, String>,
    ) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Runs CNI ADD of one network, with nothing done before `gate` opens. The one verb that undoes nothing: whoever
    /// called it runs [`Self::del`].
    fn add(
        &self,
        record: &Record,
        attachment: &Attachment,
        gate: Option<Gate<'_>>,
    ) -> impl Future<Output = Result<Network, WorldError>> + Send;
    /// Runs CNI DEL of one network with the recorded configuration and result; plugins are told of the namespace as
    /// long as it is there.
    fn del(
        &self,
        record: &Record,
        attachment: &Attachment,
        seen: NetnsState,
    ) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Runs CNI CHECK of one network.
    fn check_network(
        &self,
        record: &Record,
        attachment: &Attachment,
    ) -> impl Future<Output = Result<Checked, WorldError>> + Send;
    /// Joins taps to the links that CNI made.
    fn join(
        &self,
        netns: &Path,
        reported: &[Reported],
        choices: Choices,
        faults: &Arc<Faults>,
    ) -> impl Future<Output = Result<Joined, WorldError>> + Send;
    /// Opens the sockets of an existing join again.
    fn rejoin(&self, netns: &Path, nics: &[Nic]) -> impl Future<Output = Result<Vec<Option<Port>>, WorldError>> + Send;
    /// What is done after a DEL that failed: a link of the node that the network has put into the pod gets another name there, if
    /// its own is taken by now.
    fn make_way(
        &self,
        record: &Record,
        attachment: &Attachment,
    ) -> impl Future<Output = Result<Option<Renamed>, WorldError>> + Send;
    /// Moves such a link back, without its plugin.
    fn send_back(
        &self,
        record: &Record,
        attachment: &Attachment,
    ) -> impl Future<Output = Result<Option<Renamed>, WorldError>> + Send;
    /// What is not as [`Self::join`] left it.
    fn check_join(
        &self,
        record: &Record,
        net: &PodNet,
    ) -> impl Future<Output = Result<Vec<Finding>, WorldError>> + Send;
    /// Makes again what our side of the join lost.
    fn repair(
        &self,
        netns: &Path,
        nics: &[Nic],
        choices: Choices,
        faults: &Arc<Faults>,
    ) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Takes our filters off the links that CNI made.
    fn unjoin(&self, netns: &Path) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Serves the guest's requests on the sockets, which are the NICs' in order.
    fn serve(&self, net: &Arc<PodNet>, request: &Attach, ports: Vec<Option<Port>>) -> Serving;
    /// Claims the virtual functions that the pod's machine is to have. What was taken stays taken if it fails.
    fn claim(&self, record: &Record, vfs: &[PassedThrough]) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Gives back all virtual functions that the pod has; its machine has ended.
    fn give_back(&self, pod: &PodId) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Notes that a machine may have the virtual functions of the pod's NICs from now on. Returns those that libvirt has to
    /// give to QEMU: none of them if that takes descriptors and the kernel has such.
    fn hand_out(
        &self,
        pod: &PodId,
        net: &PodNet,
        by_descriptor: bool,
    ) -> impl Future<Output = Result<Vec<PciAddress>, WorldError>> + Send;
    /// What is not as [`Self::claim`] left it, for people.
    fn check_vfs(&self, pod: &PodId, net: &PodNet) -> impl Future<Output = Vec<Finding>> + Send;
    /// The pods that have virtual functions, on record or not.
    fn vf_owners(&self) -> BTreeSet<PodId>;
    /// Opens the devices of the pod's virtual functions for a machine; `None` if it has none that go so. Blocks.
    fn open_devices(&self, pod: &PodId, net: &PodNet) -> Result<Option<Devices>, WorldError>;
    /// Opens the taps of the NICs for a machine. Blocks, and leaves this thread in the namespace.
    fn open_taps(&self, netns: &Path, nics: &[Nic]) -> Result<Vec<Opened>, WorldError>;
    /// Counters of the NICs.
    fn stats(&self, netns: &Path, nics: &[Nic]) -> impl Future<Output = Result<Vec<NicStats>, WorldError>> + Send;
    /// The attachments that the CNI result cache tells of, of daemons like this one.
    fn leftovers(&self) -> impl Future<Output = Result<Vec<Leftover>, WorldError>> + Send;
    /// Runs CNI DEL of an attachment that only the CNI result cache tells of.
    fn del_leftover(&self, leftover: &Leftover) -> impl Future<Output = Result<(), WorldError>> + Send;
    /// Has the network's plugins take away what they find of attachments that are not on record, anybody's.
    fn gc(&self, network: &OfNetwork) -> impl Future<Output = Result<Checked, WorldError>> + Send;
    /// Whether a pod could be given a network now.
    fn ready(&self) -> impl Future<Output = Ready> + Send;
    /// The same from memory.
    fn known_ready(&self) -> Ready;
    /// Time spent on CNI plugins since the start, waits for their turn included, in microseconds.
    fn plugin_micros(&self) -> u64;
    /// A line for each network whose last ADD failed.
    fn failed_adds(&self) -> Vec<String>;
    /// Seconds since 1970.
    fn now(&self) -> u64;
}

/// The servers of one pod. Dropping it ends them as well.
#[derive(Debug)]
pub(crate) struct Serving {
    cancel: CancellationToken,
    servers: TaskTracker,
    /// Cancelled when a server ends that was not told to.
    broken: CancellationToken,
}

// === impl Serving ===

impl Serving {
    /// Lets `start` start servers.
    pub(crate) fn start(start: impl FnOnce(&Starter<'_>)) -> Self {
        let cancel = CancellationToken::new();
        let serving = Self { cancel, servers: TaskTracker::new(), broken: CancellationToken::new() };
        start(&Starter(&serving));
        serving.servers.close();
        serving
    }

    /// Tells the servers to end, and does not wait.
    pub(crate) fn stop(&self) {
        self.cancel.cancel();
    }

    /// Is cancelled when a server has ended that was not told to.
    pub(crate) const fn broken(&self) -> &CancellationToken {
        &self.broken
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

/// Starts servers.
#[derive(Debug)]
pub(crate) struct Starter<'a>(&'a Serving);

impl Starter<'_> {
    /// Starts one server, which ends when the token that it is given is cancelled.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(&self, server: impl FnOnce(CancellationToken) -> F) {
        let (cancel, broken) = (self.0.cancel.clone(), self.0.broken.clone());
        let server = server(cancel.clone());
        // A panic ends it as well.
        let ended = broken.drop_guard();
        self.0.servers.spawn(async move {
            server.await;
            if cancel.is_cancelled() {
                ended.disarm();
            }
        });
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

impl From<SysctlError> for WorldError {
    fn from(error: SysctlError) -> Self {
        Self::Sysctl(Box::new(error))
    }
}

impl From<VfError> for WorldError {
    fn from(error: VfError) -> Self {
        Self::Vf(Box::new(error))
    }
}

impl From<JoinError> for WorldError {
    fn from(error: JoinError) -> Self {
        Self::Join(Box::new(error))
    }
}

impl WorldError {
    /// The plugins that failed; none if something else did.
    pub(crate) fn culprits(&self) -> Vec<Culprit> {
        match self {
            Self::Cni(error) => culprits(error),
            #[cfg(test)]
            Self::Fake { culprits, .. } => culprits.clone(),
            Self::Conf(_)
            | Self::Netns(_)
            | Self::Join(_)
            | Self::Sysctl(_)
            | Self::Vf(_)
            | Self::List { .. }
            | Self::NoNetns
            | Self::Beyond(_) => Vec::new(),
        }
    }

    /// Of how many of the network's plugins ADD was begun, if this is why ADD as a whole failed.
    pub(crate) fn begun(&self, network: &NetworkList) -> usize {
        match self {
            Self::Cni(error) => error.begun(network),
            #[cfg(test)]
            Self::Fake { culprits, .. } => {
                let first = culprits.iter().map(|culprit| culprit.place + usize::from(!culprit.absent)).min();
                first.unwrap_or_else(|| network.kinds().count())
            }
            _ => network.kinds().count(),
        }
    }
}

fn culprits(error: &CniError) -> Vec<Culprit> {
    match error {
        CniError::Plugin { place, cause, .. } => {
            vec![Culprit { place: *place, absent: matches!(**cause, PluginError::Absent { .. }) }]
        }
        CniError::Several(errors) => errors.iter().flat_map(culprits).collect(),
        _ => Vec::new(),
    }
}
