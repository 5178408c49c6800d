//! One change of a pod's namespace: its name, how to see that it is done, and what is wrong if it is not.
//!
//! Data paths ([`super::path`]) consist of steps. [`super::apply`] does them, [`super::compare`] looks for them
//! afterwards.

use std::fmt;

use proto::tap::{IfName, MacAddr};

use super::drift::Drift;
use super::filter::Guard;
use super::state::State;
use crate::sys::bpf::Program;
use crate::sys::tc::{self, Fingerprint, Hook, Redirect};

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
    SetNoqueue {
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
    DropIngress {
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
        redirect: Redirect,
    },
    /// Make a link a port of a bridge.
    SetMaster {
        /// The link.
        link: IfName,
        /// The bridge.
        bridge: IfName,
    },
    /// Have the bridge send what is for the guest to its port.
    ReplaceFdbEntry {
        /// The port.
        port: IfName,
        /// The guest's address.
        mac: MacAddr,
    },
    /// Bring a link up that is down.
    SetUp {
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

// === impl Step ===

impl Step {
    /// Whether what it makes is there.
    pub(crate) fn holds(&self, state: &State) -> bool {
        let kind = |name: &IfName| state.link(name).and_then(|link| link.kind.as_deref());
        match self {
            Self::CreateTap { tap, .. } => kind(tap) == Some("tun"),
            Self::CreateBridge { bridge, .. } => kind(bridge) == Some("bridge"),
            Self::CreateMacvtap { tap, link } => {
                let lower = state.link(tap).and_then(|tap| tap.lower);
                kind(tap) == Some("macvtap") && lower.is_some() && lower == state.index(link)
            }
            Self::AddGuard { link, hook, guard } => state.guard(link, *hook) == Some(Fingerprint::of(&guard.program())),
            Self::DropIngress { link } => {
                state.guard(link, Hook::Ingress) == Some(Fingerprint::of(&Program::always(tc::DROP)))
            }
            Self::AddRedirect { from, to, .. } => state.leads(from, to),
            Self::SetMaster { link, bridge } => {
                let controller = state.link(link).and_then(|link| link.controller);
                controller.is_some() && controller == state.index(bridge)
            }
            Self::SetUp { link } => state.link(link).is_some_and(|link| link.up),
            // Said by the link, or by a guard or redirect on it, or not to be seen.
            Self::SetNoqueue { tap: link }
            | Self::ShapeTap { tap: link, .. }
            | Self::AddClsact { link }
            | Self::ReplaceFdbEntry { port: link, .. }
            | Self::Listen { tap: link, .. } => state.link(link).is_some(),
        }
    }

    /// Whether it has to be done again, after `repairs`.
    pub(crate) fn is_due(&self, state: &State, repairs: &[Self]) -> bool {
        match self {
            Self::AddClsact { link } => !state.has_qdisc(link),
            // It cannot be seen, and goes with links and ports; a filter that is replaced leaves it.
            Self::ReplaceFdbEntry { .. } => repairs.iter().any(|step| step.filter().is_none()),
            Self::Listen { .. } => false,
            step => !step.holds(state),
        }
    }

    /// What it is called that its work is not there; of a link of ours that is gone, only that.
    pub(crate) fn lack(self, state: &State) -> Option<Drift> {
        let there = |link: &IfName| state.link(link).is_some();
        match self {
            Self::CreateTap { tap: link, .. }
            | Self::CreateBridge { bridge: link, .. }
            | Self::CreateMacvtap { tap: link, .. } => Some(match state.link(&link) {
                Some(other) => Drift::NameTaken { kind: other.kind.clone(), link },
                None => Drift::OursGone { link },
            }),
            Self::AddGuard { link, hook, .. } if there(&link) => Some(match state.guard(&link, hook) {
                Some(_) => Drift::OtherGuard { link },
                None => Drift::Unguarded { link },
            }),
            Self::DropIngress { link } if there(&link) => Some(Drift::Unguarded { link }),
            Self::AddRedirect { from, to, .. } | Self::SetMaster { link: from, bridge: to } if there(&from) => {
                Some(Drift::NotJoined { from, to })
            }
            Self::SetUp { link } if there(&link) => Some(Drift::Down { link }),
            _ => None,
        }
    }

    /// The link whose filter it makes, and on which side.
    pub(crate) fn filter(&self) -> Option<(&IfName, Hook)> {
        match self {
            Self::AddGuard { link, hook, .. } => Some((link, *hook)),
            Self::DropIngress { link } | Self::AddRedirect { from: link, .. } => Some((link, Hook::Ingress)),
            _ => None,
        }
    }

    /// The link that it changes.
    pub(crate) const fn subject(&self) -> &IfName {
        match self {
            Self::CreateTap { tap: link, .. }
            | Self::SetNoqueue { tap: link }
            | Self::ShapeTap { tap: link, .. }
            | Self::CreateBridge { bridge: link, .. }
            | Self::CreateMacvtap { tap: link, .. }
            | Self::AddClsact { link }
            | Self::AddGuard { link, .. }
            | Self::DropIngress { link }
            | Self::AddRedirect { from: link, .. }
            | Self::SetMaster { link, .. }
            | Self::ReplaceFdbEntry { port: link, .. }
            | Self::SetUp { link }
            | Self::Listen { tap: link, .. } => link,
        }
    }

    /// What to call the step when it is done.
    pub(crate) fn done(&self) -> &'static str {
        match self {
            Self::CreateTap { .. } => "tap created",
            Self::SetNoqueue { .. } => "tap unqueued",
            Self::ShapeTap { .. } => "tap shaped",
            Self::CreateBridge { .. } => "bridge created",
            Self::CreateMacvtap { .. } => "macvtap created",
            Self::AddClsact { .. } => "clsact added",
            Self::AddGuard { .. } => "guard added",
            Self::DropIngress { .. } => "stack deafened",
            Self::AddRedirect { .. } => "redirect added",
            Self::SetMaster { .. } => "port added",
            Self::ReplaceFdbEntry { .. } => "address pinned",
            Self::SetUp { .. } => "link up",
            Self::Listen { .. } => "packet socket opened",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateTap { tap, queues: 1 } => write!(f, "create tap `{tap}`"),
            Self::CreateTap { tap, queues } => write!(f, "create tap `{tap}` of {queues} queues"),
            Self::SetNoqueue { tap } => write!(f, "take the packet queues off `{tap}`"),
            Self::ShapeTap { tap, mtu } => write!(f, "set tap `{tap}` to MTU {mtu}"),
            Self::CreateBridge { bridge, mac } => write!(f, "create bridge `{bridge}` with the address `{mac}`"),
            Self::CreateMacvtap { tap, link } => write!(f, "create macvtap `{tap}` on `{link}`"),
            Self::AddClsact { link } => write!(f, "add the clsact qdisc to `{link}`"),
            Self::AddGuard { link, guard: Guard::FromGuestAntiSpoof(_) | Guard::FromGuest(_), .. } => {
                write!(f, "filter what the guest sends on `{link}`")
            }
            Self::AddGuard { link, guard: Guard::ToGuestAntiSpoof(mac) | Guard::ToGuest(mac, _), .. } => {
                write!(f, "filter what `{link}` gets for `{mac}`")
            }
            Self::DropIngress { link } => write!(f, "keep what `{link}` hears from the namespace's stack"),
            Self::AddRedirect { from, to, .. } => write!(f, "redirect from `{from}` to `{to}`"),
            Self::SetMaster { link, bridge } => write!(f, "make `{link}` a port of `{bridge}`"),
            Self::ReplaceFdbEntry { port, mac } => write!(f, "lead `{mac}` to `{port}`"),
            Self::SetUp { link } => write!(f, "bring up `{link}`"),
            Self::Listen { tap, .. } => write!(f, "open a packet socket on `{tap}`"),
        }
    }
}
