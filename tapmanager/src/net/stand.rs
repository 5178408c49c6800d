//! How a joined pod stands: compared with its NICs, and what of ours has to be made again.
//!
//! Called by [`crate::net`] for `check`, `repair` and after a restart. Looking and comparing are apart: [`Standing::look`]
//! asks the kernel, all else is pure. Only what our side made is made again, and a filter that is another one than it
//! should be is replaced in one step: without it, the namespace's own stack, which has the guest's addresses, would hear
//! the guest's connections and reset them. A link of a plugin that is gone, or has
//! another MAC address, is the plugin's to bring back; addresses and routes that it lost are told and left alone, as the
//! guest keeps its own copies.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use proto::tap::{DataPath, IfName, MacAddr, Nic};

use super::observe::Observed;
use super::plan::{Guards, Step, routes, steps};
use super::{Found, bridge_name, tap_name};
use crate::sys::bpf::Program;
use crate::sys::link::{self, Link};
use crate::sys::neighbour;
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::tc::{self, Hook, Mark, Ours};

const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

/// A NIC, and what its guards should be.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    pub(crate) nic: Nic,
    pub(crate) guards: Guards,
}

/// A namespace with the filters of ours in it.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Links, addresses and routes.
    pub(crate) observed: Observed,
    /// What stands at which hook of which link.
    ours: Vec<(u32, Hook, Ours)>,
    /// What filters hang on, by link.
    hung_on: BTreeMap<u32, String>,
}

/// Something that is not as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The plugin's link is gone.
    LinkGone { link: IfName },
    /// The plugin's link has another MAC address than the guest.
    MacChanged { link: IfName, mac: MacAddr },
    /// The plugin's link, or its default route, has another MTU than the guest was told.
    MtuChanged { link: IfName, was: u32, is: u32 },
    /// A link is administratively down.
    Down { link: IfName },
    /// A link of ours is gone.
    OursGone { link: IfName },
    /// A link that is not ours has the name of ours.
    NameTaken { link: IfName, kind: Option<String> },
    /// Filters of ours are lost, or other ones, and what is not ours stands in their place.
    InTheWay { link: IfName, what: String, breaks: bool },
    /// Frames do not go from one link to another.
    NotJoined { from: IfName, to: IfName },
    /// A guard is gone.
    Unguarded { link: IfName },
    /// A guard is not the one that it should be.
    OtherGuard { link: IfName },
    /// The guest has an address that the link does not have any more.
    AddressGone { link: IfName, address: IpAddr },
    /// The link has an address that the guest was not given.
    AddressNew { link: IfName, address: IpAddr },
    /// The link has other routes than the guest was given.
    RoutesChanged { link: IfName },
}

// === impl Standing ===

impl Standing {
    /// Looks at this thread's namespace, as far as `nics` are concerned.
    pub(crate) fn look(netlink: &mut Netlink, nics: &[Guarded]) -> Result<Self, NetlinkError> {
        let links = link::links(netlink)?;
        let (addresses, routes) = (link::addresses(netlink)?, link::routes(netlink)?);
        let neighbours = neighbour::permanent(netlink)?;
        let observed = Observed { links, addresses, routes, neighbours, ..Observed::default() };
        let mut standing = Self { observed, ours: vec![], hung_on: tc::hung_on(netlink)? };
        for (place, Guarded { nic, .. }) in nics.iter().enumerate() {
            for name in filtered(nic, place) {
                let Some(index) = standing.index(&name).filter(|index| standing.hung_on.contains_key(index)) else {
                    continue;
                };
                for hook in HOOKS {
                    standing.ours.push((index, hook, tc::ours(netlink, index, hook)?));
                }
            }
        }
        Ok(standing)
    }

    /// The link of this name.
    pub(crate) fn link(&self, name: &IfName) -> Option<&Link> {
        self.observed.links.iter().find(|link| link.name == *name)
    }

    fn index(&self, name: &IfName) -> Option<u32> {
        self.link(name).map(|link| link.index)
    }

    fn ours(&self, link: &IfName, hook: Hook) -> Option<&Ours> {
        let index = self.index(link)?;
        self.ours.iter().find(|(at, side, _)| (*at, *side) == (index, hook)).map(|(.., ours)| ours)
    }

    fn guard(&self, link: &IfName, hook: Hook) -> Option<Mark> {
        self.ours(link, hook)?.guard
    }

    fn leads(&self, from: &IfName, to: &IfName) -> bool {
        let target = self.ours(from, Hook::Ingress).and_then(|ours| ours.redirect_to);
        target.is_some() && target == self.index(to)
    }

    /// All that is not as it was made, NIC by NIC.
    pub(crate) fn findings(&self, nics: &[Guarded]) -> Vec<Finding> {
        nics.iter().enumerate().flat_map(|(place, nic)| self.findings_of(nic, place)).collect()
    }

    fn findings_of(&self, Guarded { nic, guards }: &Guarded, place: usize) -> Vec<Finding> {
        let name = || nic.name.clone();
        let Some(link) = self.link(&nic.name) else { return vec![Finding::LinkGone { link: name() }] };
        let mut findings = Vec::new();
        if link.mac != Some(nic.mac) {
            findings.push(Finding::MacChanged { link: name(), mac: nic.mac });
        }
        let mtu = routes::guest_mtu(link, &nic.addresses, &routes::of_link(&self.observed, link));
        if mtu != nic.mtu {
            findings.push(Finding::MtuChanged { link: name(), was: nic.mtu, is: mtu });
        }
        let mut taken: Vec<IfName> = Vec::new();
        for step in steps(nic, place, false, guards) {
            // Of a link that is not ours no more is told.
            if self.holds(&step) || taken.iter().any(|name| subject(&step) == name) {
                continue;
            }
            let filters = filters(&step).map(|(link, hook)| (link.clone(), hook));
            let Some(lack) = self.lack(step) else { continue };
            if let Finding::NameTaken { link, .. } = &lack {
                taken.push(link.clone());
            }
            let in_the_way = filters.and_then(|(link, hook)| {
                Some(Finding::InTheWay { what: self.foreign(&link, hook)?, breaks: lack.is_break(), link })
            });
            match in_the_way {
                None => findings.push(lack),
                Some(foreign) if findings.contains(&foreign) => {}
                Some(foreign) => findings.push(foreign),
            }
        }
        findings.extend(self.addressing(nic, link));
        findings
    }

    fn addressing(&self, nic: &Nic, link: &Link) -> Vec<Finding> {
        let name = || nic.name.clone();
        let here: Vec<_> = self.observed.addresses.iter().filter(|address| address.link == link.index).collect();
        let gone = nic.addresses.iter().map(|net| net.ip()).filter(|ip| here.iter().all(|own| own.net.ip() != *ip));
        let known = |ip: IpAddr| nic.addresses.iter().any(|net| net.ip() == ip);
        let new = here.iter().filter(|own| own.lasting && !known(own.net.ip())).map(|own| own.net.ip());
        let gone = gone.map(|address| Finding::AddressGone { link: name(), address });
        let new = new.map(|address| Finding::AddressNew { link: name(), address });
        let mut findings: Vec<Finding> = gone.chain(new).collect();
        let kernel = routes::of_link(&self.observed, link);
        if routes::guest_routes(&nic.name, &nic.addresses, &kernel).as_ref() != Ok(&nic.routes) {
            findings.push(Finding::RoutesChanged { link: name() });
        }
        findings
    }

    /// Whether what `step` makes is there.
    fn holds(&self, step: &Step) -> bool {
        let kind = |name: &IfName| self.link(name).and_then(|link| link.kind.as_deref());
        match step {
            Step::CreateTap { tap, .. } => kind(tap) == Some("tun"),
            Step::CreateBridge { bridge, .. } => kind(bridge) == Some("bridge"),
            Step::CreateMacvtap { tap, link } => {
                let lower = self.link(tap).and_then(|tap| tap.lower);
                kind(tap) == Some("macvtap") && lower.is_some() && lower == self.index(link)
            }
            Step::AddGuard { link, hook, guard } => self.guard(link, *hook) == Some(Mark::of(&guard.program())),
            Step::Deafen { link } => self.guard(link, Hook::Ingress) == Some(Mark::of(&Program::always(tc::DROP))),
            Step::AddRedirect { from, to, .. } => self.leads(from, to),
            Step::Enslave { link, bridge } => {
                let controller = self.link(link).and_then(|link| link.controller);
                controller.is_some() && controller == self.index(bridge)
            }
            Step::Raise { link } => self.link(link).is_some_and(|link| link.up),
            // Said by the link, or by a guard or redirect on it, or not to be seen.
            Step::Unqueue { tap: link }
            | Step::ShapeTap { tap: link, .. }
            | Step::AddClsact { link }
            | Step::Pin { port: link, .. }
            | Step::Listen { tap: link, .. } => self.link(link).is_some(),
        }
    }

    /// What it is called that a step's work is not there; of a link of ours that is gone, only that.
    fn lack(&self, step: Step) -> Option<Finding> {
        let there = |link: &IfName| self.link(link).is_some();
        match step {
            Step::CreateTap { tap: link, .. }
            | Step::CreateBridge { bridge: link, .. }
            | Step::CreateMacvtap { tap: link, .. } => Some(match self.link(&link) {
                Some(other) => Finding::NameTaken { kind: other.kind.clone(), link },
                None => Finding::OursGone { link },
            }),
            Step::AddGuard { link, hook, .. } if there(&link) => Some(match self.guard(&link, hook) {
                Some(_) => Finding::OtherGuard { link },
                None => Finding::Unguarded { link },
            }),
            Step::Deafen { link } if there(&link) => Some(Finding::Unguarded { link }),
            Step::AddRedirect { from, to, .. } | Step::Enslave { link: from, bridge: to } if there(&from) => {
                Some(Finding::NotJoined { from, to })
            }
            Step::Raise { link } if there(&link) => Some(Finding::Down { link }),
            _ => None,
        }
    }

    /// What has to be done so that `nics` are joined again, or why that cannot be.
    pub(crate) fn repairs(&self, nics: &[Guarded]) -> Result<Vec<Step>, Vec<Finding>> {
        let lost: Vec<Finding> = self.findings(nics).into_iter().filter(Finding::is_beyond_us).collect();
        if !lost.is_empty() {
            return Err(lost);
        }
        Ok(nics.iter().enumerate().flat_map(|(place, nic)| self.repairs_of(nic, place)).collect())
    }

    fn repairs_of(&self, Guarded { nic, guards }: &Guarded, place: usize) -> Vec<Step> {
        let mut repairs = Vec::new();
        for step in steps(nic, place, false, guards) {
            let wanted = match &step {
                Step::AddClsact { link } => self.index(link).is_none_or(|index| !self.hung_on.contains_key(&index)),
                // It cannot be seen, and goes with links and ports; a filter that is replaced leaves it.
                Step::Pin { .. } => repairs.iter().any(|step| filters(step).is_none()),
                Step::Listen { .. } => false,
                step => !self.holds(step),
            };
            if wanted {
                repairs.push(step);
            }
        }
        repairs
    }

    /// What is not ours where filters of a link hang, and in their place.
    fn foreign(&self, link: &IfName, hook: Hook) -> Option<String> {
        let kind = self.hung_on.get(&self.index(link)?)?;
        if kind != tc::CLSACT {
            return Some(format!("a qdisc `{kind}`"));
        }
        self.ours(link, hook)?.foreign.map(|priority| format!("a filter of priority {priority}"))
    }
}

/// The link whose filter a step makes, and on which side.
fn filters(step: &Step) -> Option<(&IfName, Hook)> {
    match step {
        Step::AddGuard { link, hook, .. } => Some((link, *hook)),
        Step::Deafen { link } | Step::AddRedirect { from: link, .. } => Some((link, Hook::Ingress)),
        _ => None,
    }
}

/// The link that a step changes.
const fn subject(step: &Step) -> &IfName {
    match step {
        Step::CreateTap { tap: link, .. }
        | Step::Unqueue { tap: link }
        | Step::ShapeTap { tap: link, .. }
        | Step::CreateBridge { bridge: link, .. }
        | Step::CreateMacvtap { tap: link, .. }
        | Step::AddClsact { link }
        | Step::AddGuard { link, .. }
        | Step::Deafen { link }
        | Step::AddRedirect { from: link, .. }
        | Step::Enslave { link, .. }
        | Step::Pin { port: link, .. }
        | Step::Raise { link }
        | Step::Listen { tap: link, .. } => link,
    }
}

/// The links on which filters of ours stand for a NIC.
fn filtered(nic: &Nic, place: usize) -> Vec<IfName> {
    let mut links = vec![tap_name(place), nic.name.clone()];
    if nic.data_path == DataPath::Bridge {
        links.push(bridge_name(place));
    }
    links
}

// === impl Finding ===

impl Finding {
    /// Whether what it tells is not ours to make again.
    fn is_beyond_us(&self) -> bool {
        matches!(self, Self::LinkGone { .. } | Self::MacChanged { .. } | Self::NameTaken { .. } | Self::InTheWay { .. })
    }

    /// For whoever asked.
    pub(crate) fn found(&self) -> Found {
        let breaks = self.is_break();
        Found { line: self.to_string(), breaks, ours: !self.is_beyond_us() && (breaks || self.is_guard()) }
    }

    fn is_guard(&self) -> bool {
        matches!(self, Self::Unguarded { .. } | Self::OtherGuard { .. })
    }

    /// Whether the guest is cut off by it, or not guarded. What an earlier release guarded is guarded.
    pub(crate) fn is_break(&self) -> bool {
        match self {
            Self::LinkGone { .. }
            | Self::MacChanged { .. }
            | Self::Down { .. }
            | Self::OursGone { .. }
            | Self::NameTaken { .. }
            | Self::NotJoined { .. }
            | Self::Unguarded { .. } => true,
            Self::InTheWay { breaks, .. } => *breaks,
            Self::MtuChanged { .. }
            | Self::OtherGuard { .. }
            | Self::AddressGone { .. }
            | Self::AddressNew { .. }
            | Self::RoutesChanged { .. } => false,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkGone { link } => write!(f, "link `{link}`, which a CNI plugin made, is gone"),
            Self::MacChanged { link, mac } => write!(f, "link `{link}` no longer has the guest's MAC address `{mac}`"),
            Self::MtuChanged { link, was, is } => {
                write!(f, "link `{link}` has the MTU {is}, the guest was told {was}; restart the machine")
            }
            Self::Down { link } => write!(f, "link `{link}` is down"),
            Self::OursGone { link } => {
                write!(f, "link `{link}` is gone; a running machine that held it has to be started anew")
            }
            Self::NameTaken { link, kind } => {
                let kind = kind.as_deref().unwrap_or("hardware");
                write!(f, "link `{link}` is another one, of kind `{kind}`, where ours was; remove it")
            }
            Self::InTheWay { link, what, .. } => {
                write!(f, "link `{link}` has lost filters, and {what} is in the way of making them anew; remove it")
            }
            Self::NotJoined { from, to } => write!(f, "link `{from}` does not lead to `{to}` any more"),
            Self::Unguarded { link } => write!(f, "link `{link}` has lost its filter"),
            Self::OtherGuard { link } => write!(f, "link `{link}` has another filter than it should have"),
            Self::AddressGone { link, address } => write!(f, "link `{link}` has lost the address `{address}`"),
            Self::AddressNew { link, address } => {
                write!(f, "link `{link}` has the address `{address}`, which the guest was not given")
            }
            Self::RoutesChanged { link } => write!(f, "link `{link}` has other routes than the guest was given"),
        }
    }
}

#[cfg(test)]
mod tests;
