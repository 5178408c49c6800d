//! The steps that a data path consists of.
//!
//! In each, both ends get their filters before either is up for the guest, so no frame crosses unjudged.
//!
//! | data path | from the guest | to the guest | what keeps the namespace's stack deaf |
//! |---|---|---|---|
//! | `tc` | tap ingress: guard, redirect out of the link | link ingress: guard, redirect out of the tap | the redirects |
//! | `bridge` | tap ingress: guard, then the bridge | link ingress: guard, then the bridge | the bridge takes all; its own ingress drops all |
//! | `macvtap` | macvtap egress: guard, then the link | link ingress: guard, redirect into the macvtap | the redirect |

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{DataPath, IfName, MacAddr, Nic};

use super::PlanError;
use crate::net::filter::{Guard, Identity, Served};
use crate::net::{bridge_name, tap_name};
use crate::sys::tc::{Hook, Toward};

/// The most that a tap takes (`MAX_MTU` less the Ethernet header in the kernel's `tun.c`).
pub(super) const TAP_MAX_MTU: u32 = 65_521;

/// One change of the namespace. Displays as what it tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Make a persistent tap.
    CreateTap {
        /// Its name.
        tap: IfName,
        /// Its queues.
        queues: u16,
    },
    /// Spare a tap of several queues the kernel's packet queues.
    Unqueue {
        /// The tap.
        tap: IfName,
    },
    /// Set the tap's MTU and silence it.
    ShapeTap {
        /// The tap.
        tap: IfName,
        /// The MTU.
        mtu: u32,
    },
    /// Make a bridge.
    CreateBridge {
        /// Its name.
        bridge: IfName,
        /// Its own address.
        mac: MacAddr,
    },
    /// Make a macvtap on a link.
    CreateMacvtap {
        /// Its name.
        tap: IfName,
        /// The link.
        link: IfName,
    },
    /// Give a link the queueing discipline for filters.
    AddClsact {
        /// The link.
        link: IfName,
    },
    /// Drop what must not cross.
    AddGuard {
        /// At this link.
        link: IfName,
        /// On this side of it.
        hook: Hook,
        /// What is dropped.
        guard: Guard,
    },
    /// Drop all that the namespace's stack would hear of a link.
    Deafen {
        /// The link.
        link: IfName,
    },
    /// Take what comes in on one link to another.
    AddRedirect {
        /// From here.
        from: IfName,
        /// There.
        to: IfName,
        /// Out of that or into it.
        toward: Toward,
    },
    /// Make a link a port of a bridge.
    Enslave {
        /// The link.
        link: IfName,
        /// The bridge.
        bridge: IfName,
    },
    /// Have the bridge send what is for the guest to its port.
    Pin {
        /// The port.
        port: IfName,
        /// The guest's address.
        mac: MacAddr,
    },
    /// Bring a link up that is down.
    Raise {
        /// The link.
        link: IfName,
    },
    /// Open the packet socket for what the guest asks of its pod.
    Listen {
        /// On this tap.
        tap: IfName,
        /// The link whose permanent neighbours it asks for too.
        link: IfName,
    },
}

/// The guards of a NIC.
#[derive(Debug, Clone)]
pub(crate) struct Guards {
    /// On what its guest sends.
    from_guest: Guard,
    /// On what it is sent.
    to_guest: Guard,
}

/// How the NIC at `place` is joined with its link, which may have to be brought up.
pub(crate) fn steps(nic: &Nic, place: usize, link_up: bool, guards: &Guards) -> Vec<Step> {
    let (link, tap, bridge) = (|| nic.name.clone(), || tap_name(place), || bridge_name(place));
    let Guards { from_guest, to_guest } = guards.clone();
    let mut steps = Vec::new();
    if nic.data_path == DataPath::Ebpf {
        // What an earlier release made is left as it is, until the pod is detached.
        return steps;
    }
    if nic.data_path == DataPath::Macvtap {
        steps.push(Step::CreateMacvtap { tap: tap(), link: link() });
    } else {
        steps.push(Step::CreateTap { tap: tap(), queues: nic.queues });
        if nic.queues > 1 {
            steps.push(Step::Unqueue { tap: tap() });
        }
        steps.push(Step::ShapeTap { tap: tap(), mtu: tap_mtu(nic) });
    }
    match nic.data_path {
        DataPath::Tc => {
            steps.extend(filtered(tap(), Hook::Ingress, from_guest));
            steps.push(Step::AddRedirect { from: tap(), to: link(), toward: Toward::Wire });
            steps.extend(filtered(link(), Hook::Ingress, to_guest));
            steps.push(Step::AddRedirect { from: link(), to: tap(), toward: Toward::Wire });
        }
        DataPath::Ebpf => {}
        DataPath::Bridge => {
            steps.extend(filtered(tap(), Hook::Ingress, from_guest));
            steps.extend(filtered(link(), Hook::Ingress, to_guest));
            steps.push(Step::CreateBridge { bridge: bridge(), mac: bridge_mac(nic.mac) });
            steps.push(Step::AddClsact { link: bridge() });
            steps.push(Step::Deafen { link: bridge() });
            steps.push(Step::Raise { link: bridge() });
            steps.push(Step::Enslave { link: tap(), bridge: bridge() });
            steps.push(Step::Enslave { link: link(), bridge: bridge() });
            steps.push(Step::Pin { port: tap(), mac: nic.mac });
        }
        DataPath::Macvtap => {
            steps.extend(filtered(tap(), Hook::Egress, from_guest));
            steps.extend(filtered(link(), Hook::Ingress, to_guest));
            steps.push(Step::AddRedirect { from: link(), to: tap(), toward: Toward::Stack });
        }
    }
    if !link_up {
        steps.push(Step::Raise { link: link() });
    }
    steps.push(Step::Raise { link: tap() });
    // A packet socket on a macvtap can say nothing to the guest.
    if nic.data_path != DataPath::Macvtap {
        steps.push(Step::Listen { tap: tap(), link: link() });
    }
    steps
}

/// Some links, as a macvlan, receive frames that are longer than they may send: their neighbours' MTU counts. A redirect
/// does not look at the tap's MTU, so such frames reach the guest; a bridge drops what is longer than its port's
/// (`is_skb_forwardable` in the kernel's `net/core/dev.c`), so its port must not be the narrow place.
fn tap_mtu(nic: &Nic) -> u32 {
    if nic.data_path == DataPath::Bridge { TAP_MAX_MTU } else { nic.mtu.min(TAP_MAX_MTU) }
}

fn filtered(link: IfName, hook: Hook, guard: Guard) -> [Step; 2] {
    [Step::AddClsact { link: link.clone() }, Step::AddGuard { link, hook, guard }]
}

/// An address for the bridge itself, which nobody speaks to: the guest's with a bit turned, and locally administered.
fn bridge_mac(guest: MacAddr) -> MacAddr {
    let mut octets = guest.octets();
    octets[0] = (octets[0] | 0x02) ^ 0x40;
    MacAddr::new(octets).expect("a station's address, as the guest's is: only other bits are turned")
}

// === impl Guards ===

impl Guards {
    /// Of a NIC whose guest is held to its identity, or may be anybody.
    pub(crate) fn of(nic: &Nic, anti_spoof: bool) -> Result<Self, PlanError> {
        if !anti_spoof {
            // As `addressing` serves it.
            let served = Served {
                v4: nic.addresses.iter().any(IpNetwork::is_ipv4),
                v6: nic.addresses.iter().any(IpNetwork::is_ipv6),
            };
            return Ok(Self { from_guest: Guard::FromFree(served), to_guest: Guard::ToFree(nic.mac, served) });
        }
        let addresses: Vec<IpAddr> = nic.addresses.iter().map(IpNetwork::ip).collect();
        let gateways: Vec<IpAddr> = nic.routes.iter().filter_map(|route| route.gateway).collect();
        let tell = |cause| PlanError::Identity { name: nic.name.clone(), cause };
        let identity = Identity::new(nic.mac, &addresses, &gateways).map_err(tell)?;
        Ok(Self { from_guest: Guard::FromHeld(identity), to_guest: Guard::ToHeld(nic.mac) })
    }
}

// === impl Step ===

impl Step {
    /// What to call the step when it is done.
    pub(crate) fn done(&self) -> &'static str {
        match self {
            Self::CreateTap { .. } => "tap created",
            Self::Unqueue { .. } => "tap unqueued",
            Self::ShapeTap { .. } => "tap shaped",
            Self::CreateBridge { .. } => "bridge created",
            Self::CreateMacvtap { .. } => "macvtap created",
            Self::AddClsact { .. } => "clsact added",
            Self::AddGuard { .. } => "guard added",
            Self::Deafen { .. } => "stack deafened",
            Self::AddRedirect { .. } => "redirect added",
            Self::Enslave { .. } => "port added",
            Self::Pin { .. } => "address pinned",
            Self::Raise { .. } => "link up",
            Self::Listen { .. } => "packet socket opened",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTap { tap, queues: 1 } => write!(f, "create tap `{tap}`"),
            Self::CreateTap { tap, queues } => write!(f, "create tap `{tap}` of {queues} queues"),
            Self::Unqueue { tap } => write!(f, "take the packet queues off `{tap}`"),
            Self::ShapeTap { tap, mtu } => write!(f, "set tap `{tap}` to MTU {mtu}"),
            Self::CreateBridge { bridge, mac } => write!(f, "create bridge `{bridge}` with the address `{mac}`"),
            Self::CreateMacvtap { tap, link } => write!(f, "create macvtap `{tap}` on `{link}`"),
            Self::AddClsact { link } => write!(f, "add the clsact qdisc to `{link}`"),
            Self::AddGuard { link, guard: Guard::FromHeld(_) | Guard::FromFree(_), .. } => {
                write!(f, "filter what the guest sends on `{link}`")
            }
            Self::AddGuard { link, guard: Guard::ToHeld(mac) | Guard::ToFree(mac, _), .. } => {
                write!(f, "filter what `{link}` gets for `{mac}`")
            }
            Self::Deafen { link } => write!(f, "keep what `{link}` hears from the namespace's stack"),
            Self::AddRedirect { from, to, .. } => write!(f, "redirect from `{from}` to `{to}`"),
            Self::Enslave { link, bridge } => write!(f, "make `{link}` a port of `{bridge}`"),
            Self::Pin { port, mac } => write!(f, "lead `{mac}` to `{port}`"),
            Self::Raise { link } => write!(f, "bring up `{link}`"),
            Self::Listen { tap, .. } => write!(f, "open a packet socket on `{tap}`"),
        }
    }
}
