//! The network of one pod: joins each link that CNI plugins made with a tap, which becomes a NIC of the guest.
//!
//! Called by the pod's actor. [`join`] looks at the namespace ([`observe`]), decides what to do ([`plan`], pure) and
//! does it ([`apply`] on [`kernel`]), all on one short thread inside the namespace. [`filter`] says which frames cross
//! between guest and network; the data path ([`path`]) says how they cross. [`compare`] finds later what is not as it
//! was made, and how to mend it.
//!
//! On every data path:
//! - Addresses, routes, MAC address and MTU that CNI plugins made are never modified, as CHECK and DEL need them. The
//!   guest gets copies.
//! - A frame that comes in on one end goes out of the other or is dropped: the namespace's own stack gets none.
//! - The daemon keeps no descriptor of a tap.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use common::Reason;
use ipnetwork::IpNetwork;
use proto::tap::{DataPath, IfName, MacAddr, Nic, NicStats, Route};
use serde::{Deserialize, Serialize};
use sriov::settings::VfSettings;

use crate::cni::Device;
use crate::config::MAX_QUEUES;
use crate::faults::Faults;
use crate::sys::link;
use crate::sys::neighbour::Neighbour;
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::packet::PacketSocket;
use crate::sys::tap::{self, TapError};
use crate::sys::tc::{self, Hook};
use crate::sys::vhost;

mod apply;
mod compare;
mod drift;
pub(crate) mod filter;
mod kernel;
pub(crate) mod lent;
mod observe;
pub(crate) mod path;
mod plan;
mod state;
mod stats;
mod step;
pub(crate) mod way;

use compare::Guarded;
use drift::Drift;
use lent::Renamed;

/// As many PCI slots as `vmwrapper` has for NICs.
const MAX_NICS: usize = 15;
/// All queues of all NICs, each with its vhost descriptor, go into one message.
const _: () = assert!(MAX_NICS * MAX_QUEUES as usize * 2 <= proto::tap::MAX_FDS);
const SYSFS: &str = "/sys";

/// A pod's network, joined.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The guest's NICs, in its order.
    pub(crate) nics: Vec<Nic>,
    /// Where the guest of each asks its pod; none of a NIC on which nothing can be said to it.
    pub(crate) ports: Vec<Option<Port>>,
    /// Those of the NICs whose virtual functions are still to be claimed.
    pub(crate) passed_through: Vec<PassedThrough>,
    /// What of the networks the guest has otherwise than a process would, for people.
    pub(crate) notes: Vec<String>,
}

/// A virtual function that the guest is to drive itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PassedThrough {
    /// Where it is.
    pub(crate) vf: sriov::PciAddr,
    /// The network that it is of.
    pub(crate) network: String,
    /// Its link in the pod's namespace; `None` if it is on vfio-pci and has none.
    pub(crate) link: Option<IfName>,
    /// The address that its guest goes by.
    pub(crate) mac: MacAddr,
    /// Settings that its network asks for by name.
    pub(crate) asked: VfSettings,
}

/// The guest's side of a NIC, as its servers have it.
#[derive(Debug)]
pub(crate) struct Port {
    /// On which the guest asks, and is answered.
    pub(crate) socket: PacketSocket,
    /// The permanent neighbours of its link: nobody else answers for them.
    pub(crate) neighbours: Vec<Neighbour>,
}

/// How a pod's links are joined: what its request left open, as it was decided. Is on record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Choices {
    /// How a link and its tap are joined.
    pub(crate) data_path: DataPath,
    /// Most queues of a tap.
    pub(crate) queues: u16,
    /// Whether the guest is held to its own addresses.
    pub(crate) anti_spoof: bool,
}

/// What the CNI plugins reported of one network, as far as joining needs it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reported {
    /// Name of the network.
    pub(crate) network: String,
    /// Links on the container's side, in order; may be empty, then addresses tell the links.
    pub(crate) links: Vec<IfName>,
    /// Addresses, in order.
    pub(crate) addresses: Vec<IpNetwork>,
    /// PCI devices that the links are, or stand for, by the links' names.
    pub(crate) devices: BTreeMap<IfName, Device>,
    /// Routes, for a device that has no link to read them from.
    pub(crate) routes: Vec<Route>,
    /// What it says of the size of packets on its routes, which plugins do not enter into the kernel.
    pub(crate) sizes: Vec<RouteSize>,
    /// Settings of its virtual functions that it asks for by name.
    pub(crate) asked: VfSettings,
}

/// How large packets on a route may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteSize {
    /// Destination.
    pub(crate) dst: IpNetwork,
    /// Its metric, if there are several to that destination.
    pub(crate) priority: Option<u32>,
    /// As [`link::KernelRoute`] has it.
    pub(crate) mtu: Option<u32>,
    /// As [`link::KernelRoute`] has it.
    pub(crate) advmss: Option<u32>,
}

/// Something that is not as [`join`] left it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// What, for people.
    pub(crate) line: String,
    /// Whether the guest is cut off by it, or not guarded.
    pub(crate) breaks: bool,
    /// Whether [`repair`] makes it again.
    pub(crate) ours: bool,
}

/// The descriptors of a NIC that is a tap, for its machine.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// One for each queue of its tap.
    pub(crate) queues: Vec<OwnedFd>,
    /// One of `/dev/vhost-net` for each queue, or none.
    pub(crate) vhost: Vec<OwnedFd>,
}

/// Why a pod's network was not joined, joined again or taken apart.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JoinError {
    /// No way into the namespace.
    #[error(transparent)]
    Namespace(#[from] NetnsError),
    /// The kernel cannot be spoken to.
    #[error("failed to speak to the kernel in the pod's namespace")]
    Netlink(#[from] NetlinkError),
    /// The namespace could not be looked at.
    #[error(transparent)]
    Observe(Reason),
    /// What the plugins made does not suit a machine.
    #[error("network does not suit a virtual machine")]
    Plan(#[from] plan::PlanError),
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] Box<apply::ApplyError>),
    /// Not as it was joined.
    #[error("{}; detach the pod and attach it again", listed(found))]
    Changed {
        /// In what.
        found: Vec<Drift>,
    },
    /// No packet socket.
    #[error("failed to open a packet socket on `{tap}`")]
    Listen {
        /// The tap.
        tap: IfName,
        /// The kernel's word.
        #[source]
        cause: std::io::Error,
    },
    /// A tap could not be opened.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The device is there and does not open.
    #[error("failed to open `{}`", vhost::DEVICE)]
    Vhost(#[source] std::io::Error),
}

fn listed(found: &[Drift]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The name of the tap of the guest's NIC at `place`, from 0.
pub(crate) fn tap_name(place: usize) -> IfName {
    numbered("tap", place)
}

fn numbered(name: &str, place: usize) -> IfName {
    // A machine word has at most 20 digits, but a pod has at most 15 NICs.
    format!("{name}{}", place % 1_000_000).parse().expect("at most ten letters and digits")
}

/// Joins the links of a pod with taps, or changes nothing. `faults` counts each change of the kernel.
pub(crate) async fn join(
    netns: &Netns,
    reported: &[Reported],
    choices: Choices,
    faults: &Arc<Faults>,
) -> Result<Joined, JoinError> {
    let (reported, faults) = (reported.to_vec(), Arc::clone(faults));
    netns.visit(move || join_here(&reported, choices, &faults)).await?
}

/// Takes up a joined pod again after a restart or a repair: checks that its guest is connected and guarded, and opens
/// packet sockets.
pub(crate) async fn rejoin(netns: &Netns, nics: &[Nic]) -> Result<Vec<Option<Port>>, JoinError> {
    // Whether the guards are those of today does not matter here.
    let nics = guarded(nics, false)?;
    netns.visit(move || rejoin_here(&nics)).await?
}

/// What is not as [`join`] left it when this was reported; nothing when all is well.
pub(crate) async fn check(
    netns: &Netns,
    nics: &[Nic],
    choices: Choices,
    reported: Vec<Reported>,
) -> Result<Vec<Finding>, JoinError> {
    let nics = guarded(nics, choices.anti_spoof)?;
    let look = move || {
        let mut state = compare::look(&mut Netlink::open()?, &nics)?;
        state.observed.enter_sizes(&reported);
        Ok(compare::drift(&state, &nics))
    };
    let drift: Result<Vec<Drift>, JoinError> = netns.visit(look).await?;
    Ok(drift?.iter().map(Drift::found).collect())
}

/// Makes again what our side lost, and tells what that was; what still stands is left alone. Packet sockets have to be
/// opened again ([`rejoin`]). A machine that held a tap which is gone is not connected to the new one.
pub(crate) async fn repair(
    netns: &Netns,
    nics: &[Nic],
    choices: Choices,
    faults: &Arc<Faults>,
) -> Result<Vec<String>, JoinError> {
    let (nics, faults) = (guarded(nics, choices.anti_spoof)?, Arc::clone(faults));
    netns.visit(move || repair_here(&nics, &faults)).await?
}

/// Counters of a pod's NICs, in their order.
pub(crate) async fn stats(netns: &Netns, nics: &[Nic]) -> Result<Vec<NicStats>, JoinError> {
    let nics = nics.to_vec();
    netns.visit(move || Ok(stats::of(&nics, &count(&mut Netlink::open()?, &nics)?))).await?
}

/// What this thread's namespace has counted of `nics`.
fn count(netlink: &mut Netlink, nics: &[Nic]) -> Result<stats::Counts, JoinError> {
    let (counted, refused) = (link::counters(netlink)?, tc::drops(netlink)?);
    let mut redirected = BTreeMap::new();
    for nic in nics.iter().filter(|nic| path::of(nic.kind).counts_at_redirect()) {
        if let Some((index, _)) = counted.iter().find(|(_, (name, _))| *name == nic.name) {
            redirected.insert(*index, tc::redirected(netlink, *index)?);
        }
    }
    Ok(stats::Counts { counted, refused, redirected })
}

/// Gives a link of the node that is in the pod a way back, if the node has another one of its name by now.
pub(crate) async fn make_way(netns: &Netns, link: &IfName, node: &Netns) -> Result<Option<Renamed>, JoinError> {
    let (link, taken) = (link.clone(), names_on(node).await?);
    netns.visit(move || Ok(lent::make_way(&mut Netlink::open()?, &link, &taken)?)).await?
}

/// Moves a link of the node that is in the pod back, under a name that is free there.
pub(crate) async fn send_back(netns: &Netns, link: &IfName, node: Netns) -> Result<Option<Renamed>, JoinError> {
    let (link, taken) = (link.clone(), names_on(&node).await?);
    netns.visit(move || Ok(lent::send_back(&mut Netlink::open()?, &link, &node, &taken)?)).await?
}

async fn names_on(node: &Netns) -> Result<BTreeSet<String>, JoinError> {
    node.visit(|| Ok(link::names(&mut Netlink::open()?)?)).await?
}

/// Takes what is ours off a pod's links, so that its CNI plugins find them as they left them; fine if there is nothing.
/// Taps stay, joined with nothing, and go with the namespace.
pub(crate) async fn unjoin(netns: &Netns) -> Result<(), JoinError> {
    netns.visit(unjoin_here).await?
}

fn join_here(reported: &[Reported], choices: Choices, faults: &Faults) -> Result<Joined, JoinError> {
    let mut netlink = Netlink::open()?;
    let mut observed = observe::observe(&mut netlink, Path::new(SYSFS)).map_err(JoinError::Observe)?;
    observed.enter_sizes(reported);
    let plan = plan::plan(&observed, reported, choices)?;
    let mut kernel = kernel::Kernel::new(netlink, &observed);
    let mut opened = apply::apply(&mut kernel, &plan.steps, faults)?.into_iter();
    let ports =
        plan.nics.iter().map(|nic| if path::of(nic.kind).hears_guest() { opened.next() } else { None }).collect();
    Ok(Joined { nics: plan.nics, ports, passed_through: plan.passed_through, notes: plan.notes })
}

impl Port {
    /// Listens on the link `tap` of this thread's namespace.
    fn open(tap: u32, neighbours: Vec<Neighbour>) -> std::io::Result<Self> {
        let v4 = |neighbour: &Neighbour| if let IpAddr::V4(ip) = neighbour.ip { Some(ip) } else { None };
        let asked: Vec<_> = neighbours.iter().filter_map(v4).collect();
        Ok(Self { socket: PacketSocket::open(tap, &filter::guest_requests(&asked))?, neighbours })
    }
}

fn guarded(nics: &[Nic], anti_spoof: bool) -> Result<Vec<Guarded>, JoinError> {
    let guarded = |nic: &Nic| Ok(Guarded { nic: nic.clone(), guards: plan::guards(nic, anti_spoof)? });
    nics.iter().map(guarded).collect()
}

fn rejoin_here(nics: &[Guarded]) -> Result<Vec<Option<Port>>, JoinError> {
    let state = compare::look(&mut Netlink::open()?, nics)?;
    let found: Vec<_> = compare::drift(&state, nics).into_iter().filter(Drift::is_break).collect();
    if !found.is_empty() {
        return Err(JoinError::Changed { found });
    }
    let listen = |(place, Guarded { nic, .. }): (usize, &Guarded)| {
        let tap = tap_name(place);
        let link = state.link(&tap).filter(|_| path::of(nic.kind).hears_guest());
        let neighbours = || state.link(&nic.name).map(|link| state.observed.neighbours_of(link));
        let port = link.map(|link| Port::open(link.index, neighbours().unwrap_or_default())).transpose();
        port.map_err(|cause| JoinError::Listen { tap, cause })
    };
    nics.iter().enumerate().map(listen).collect()
}

fn repair_here(nics: &[Guarded], faults: &Faults) -> Result<Vec<String>, JoinError> {
    let mut netlink = Netlink::open()?;
    let state = compare::look(&mut netlink, nics)?;
    let steps = compare::repairs(&state, nics).map_err(|found| JoinError::Changed { found })?;
    apply::apply(&mut kernel::Kernel::new(netlink, &state.observed), &steps, faults)?;
    Ok(steps.iter().map(ToString::to_string).collect())
}

fn unjoin_here() -> Result<(), JoinError> {
    let mut netlink = Netlink::open()?;
    for link in link::links(&mut netlink)? {
        // A join refuses a pod in which somebody else has taken the names of ours.
        if path::made(&link) {
            link::delete(&mut netlink, link.index)?;
        } else if !link.loopback && tc::our_filters(&mut netlink, link.index, Hook::Ingress)?.any() {
            // Only ours is taken away: had another program filtered there before, join would have refused the link.
            tc::delete_clsact(&mut netlink, link.index)?;
        }
    }
    Ok(())
}

/// Opens the taps of a pod's NICs for a machine, in their order, and `/dev/vhost-net` if it is there and `vhost` is
/// wanted; nothing for a NIC that is no tap. This thread is in the pod's namespace. The caller hands them on and closes
/// them at once.
pub(crate) fn open_taps(nics: &[Nic], vhost: bool) -> Result<Vec<Opened>, JoinError> {
    // A look is only taken where a name is not enough.
    let by_name = |nic: &Nic| path::of(nic.kind).opens_by_name(nic);
    let links = if nics.iter().all(by_name) { Vec::new() } else { link::links(&mut Netlink::open()?)? };
    let open = |(place, nic): (usize, &Nic)| {
        if nic.tap().is_none() {
            return Ok(Opened::default());
        }
        let queues = if by_name(nic) {
            tap::open(&tap_name(place), 1)?
        } else {
            let name = tap_name(place);
            let link = links.iter().find(|link| link.name == name);
            path::of(nic.kind).open(nic, link.ok_or(TapError::Absent { name })?)?
        };
        let count = if vhost { queues.len() } else { 0 };
        let vhost = vhost::open(Path::new(vhost::DEVICE), count).map_err(JoinError::Vhost)?;
        Ok(Opened { queues, vhost })
    };
    nics.iter().enumerate().map(open).collect()
}

#[cfg(test)]
mod tests;
