//! The network of one pod: joins each link that the CNI plugins made with a tap, which its guest is then given.
//!
//! Called by the pod's actor. [`join`] looks at the namespace ([`observe`]), decides ([`plan`], pure) and does it
//! ([`apply`] on [`kernel`]), all on one short thread inside the namespace. What crosses between guest and network,
//! and what does not, is [`filter`]'s.
//!
//! Invariants: addresses, routes, MAC and MTU stay on the CNI's link as its plugin left them (their DEL needs them), the
//! guest gets copies; whatever comes in on either link goes out of the other or is dropped, so the namespace's own
//! stack hears nothing; no descriptor of a tap is kept.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use proto::tap::{DataPath, IfName, MacAddr, Nic};

use crate::faults::Faults;
use crate::sys::link::{self, Link};
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::packet::PacketSocket;
use crate::sys::tap::{self, TapError};
use crate::sys::tc;

mod apply;
pub(crate) mod filter;
mod kernel;
mod observe;
mod plan;

const SYSFS: &str = "/sys";

/// A pod's network, joined.
#[derive(Debug)]
pub(crate) struct Joined {
    /// The guest's NICs, in its order.
    pub(crate) nics: Vec<Nic>,
    /// The packet socket of each, on which its guest asks for DHCP.
    pub(crate) dhcp: Vec<PacketSocket>,
}

/// How a pod's links are to be joined, where they allow a choice.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
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
    Observe(#[from] observe::ObserveError),
    /// What the plugins made does not suit a machine.
    #[error("network does not suit a virtual machine")]
    Plan(#[from] plan::PlanError),
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] Box<apply::ApplyError>),
    /// A link of the pod is gone.
    #[error("link `{name}` is gone from the pod's namespace; detach the pod and attach it again")]
    LinkGone {
        /// The link.
        name: IfName,
    },
    /// A link of the pod has another MAC address than the guest.
    #[error("link `{name}` no longer has the MAC address `{mac}`; detach the pod and attach it again")]
    MacChanged {
        /// The link.
        name: IfName,
        /// What it had.
        mac: MacAddr,
    },
    /// The filters are not there as they were.
    #[error("link `{name}` is no longer joined with `{other}`; detach the pod and attach it again")]
    NotJoined {
        /// The one.
        name: IfName,
        /// The other.
        other: IfName,
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
}

/// The name of the tap of the guest's NIC at `place`, from 0.
pub(crate) fn tap_name(place: usize) -> IfName {
    // A machine word has at most 20 digits, but a pod has at most 15 NICs.
    format!("tap{}", place % 1_000_000).parse().expect("at most ten letters and digits")
}

/// Joins the links of a pod with taps, or changes nothing. `faults` counts each change of the kernel.
pub(crate) async fn join(
    netns: &Netns,
    reported: &[Reported],
    wish: &Wish,
    faults: &Arc<Faults>,
) -> Result<Joined, JoinError> {
    let (reported, wish, faults) = (reported.to_vec(), wish.clone(), Arc::clone(faults));
    netns.visit(move || join_here(&reported, &wish, &faults)).await?
}

/// Takes up a joined pod again after a restart: checks that all stands as [`join`] left it, and opens packet sockets.
pub(crate) async fn rejoin(netns: &Netns, nics: &[Nic]) -> Result<Vec<PacketSocket>, JoinError> {
    let nics: Vec<(IfName, MacAddr)> = nics.iter().map(|nic| (nic.name.clone(), nic.mac)).collect();
    netns.visit(move || rejoin_here(&nics)).await?
}

/// Takes our filters off a pod's links, so that its CNI plugins find them as they left them; fine if there are none.
/// The taps stay, joined with nothing, and go with the namespace.
pub(crate) async fn unjoin(netns: &Netns) -> Result<(), JoinError> {
    netns.visit(unjoin_here).await?
}

/// Opens the taps of a pod's NICs for a machine, in their order. The caller hands them on and closes them at once.
pub(crate) async fn open_taps(netns: &Netns, count: usize) -> Result<Vec<OwnedFd>, JoinError> {
    let open = move || (0..count).map(|place| tap::open(&tap_name(place))).collect::<Result<_, _>>();
    Ok(netns.visit(open).await??)
}

fn join_here(reported: &[Reported], wish: &Wish, faults: &Faults) -> Result<Joined, JoinError> {
    let mut netlink = Netlink::open()?;
    let observed = observe::observe(&mut netlink, Path::new(SYSFS))?;
    let plan = plan::plan(&observed, reported, wish)?;
    let mut kernel = kernel::Kernel::new(netlink, &observed);
    let dhcp = apply::apply(&mut kernel, &plan.steps, faults)?;
    Ok(Joined { nics: plan.nics, dhcp })
}

fn rejoin_here(nics: &[(IfName, MacAddr)]) -> Result<Vec<PacketSocket>, JoinError> {
    let mut netlink = Netlink::open()?;
    let links = link::links(&mut netlink)?;
    let find = |name: &IfName| {
        let link = links.iter().find(|link| link.name == *name);
        link.ok_or_else(|| JoinError::LinkGone { name: name.clone() })
    };
    let mut sockets = Vec::new();
    for (place, (name, mac)) in nics.iter().enumerate() {
        let (link, tap) = (find(name)?, find(&tap_name(place))?);
        if link.mac != Some(*mac) {
            return Err(JoinError::MacChanged { name: name.clone(), mac: *mac });
        }
        check_joined(&mut netlink, tap, link)?;
        check_joined(&mut netlink, link, tap)?;
        let socket = PacketSocket::open(tap.index, &filter::guest_requests());
        sockets.push(socket.map_err(|cause| JoinError::Listen { tap: tap.name.clone(), cause })?);
    }
    Ok(sockets)
}

fn check_joined(netlink: &mut Netlink, from: &Link, to: &Link) -> Result<(), JoinError> {
    let whole = tc::Ours { guard: true, redirect_to: Some(to.index) };
    if from.up && tc::ours(netlink, from.index)? == whole {
        return Ok(());
    }
    Err(JoinError::NotJoined { name: from.name.clone(), other: to.name.clone() })
}

fn unjoin_here() -> Result<(), JoinError> {
    let mut netlink = Netlink::open()?;
    for link in link::links(&mut netlink)? {
        // Only ours is taken away: had another program filtered there before, join would have refused the link.
        if !link.loopback && tc::ours(&mut netlink, link.index)?.any() {
            tc::remove_clsact(&mut netlink, link.index)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
