//! A pod's way from its guest to the node, NIC by NIC, as the kernel has it now.
//!
//! Called by the tool `explain`, which is on the node and root's; nothing is changed. [`look`] enters the pod's namespace and the
//! node's once each. What follows from that is pure ([`Seen::way`]).

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::Path;

use proto::tap::{IfName, MacAddr, Nic, NicStats};
use serde::Serialize;

use super::compare::{self, Guarded};
use super::drift::Drift;
use super::state::State;
use super::{JoinError, SYSFS, count, guarded, path, stats, tap_name};
use crate::sys::link::{self, Link};
use crate::sys::netlink::Netlink;
use crate::sys::netns::Netns;
use crate::sys::nsid;

/// Most links that are followed beyond the pod's own.
const MAX_STOPS: usize = 4;

/// Of one NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Way {
    /// Its name.
    pub(crate) nic: IfName,
    /// The guest's end; `None` if it is gone, or the NIC is passed through.
    pub(crate) tap: Option<End>,
    /// What the data path made between tap and link, if it makes something there.
    pub(crate) helper: Option<End>,
    /// The plugin's link; `None` if it is gone, or went to the guest.
    pub(crate) link: Option<End>,
    /// Where it goes on from there, nearest first.
    pub(crate) beyond: Vec<Stop>,
    /// From the guest's point of view; `None` of a NIC that is passed through: its card counts.
    pub(crate) counters: Option<NicStats>,
    /// What is not as it was made, or does not fit together.
    pub(crate) marks: Vec<Mark>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct End {
    pub(crate) name: IfName,
    /// What made it, such as `veth`; `None` for hardware.
    pub(crate) kind: Option<String>,
    pub(crate) mac: Option<MacAddr>,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    /// A tap has one while a program holds it.
    pub(crate) carrier: bool,
    /// Frames that its guard dropped.
    pub(crate) refused: u64,
}

/// A place beyond the pod's link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Stop {
    /// What it is to the link before.
    pub(crate) relation: Relation,
    /// Whether it is in the node's namespace; if not, it is in the pod's, or nobody knows where.
    pub(crate) on_node: bool,
    /// The PCI address of a physical function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// `None` if it is in neither namespace.
    pub(crate) link: Option<End>,
}

/// What a link is to one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relation {
    /// The other end of a veth.
    Peer,
    /// What it lies on.
    Parent,
    /// The bridge or the like that it is a member of.
    Master,
    /// The physical function whose virtual one it is.
    Pf,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mark {
    /// The link that it is about.
    pub(crate) at: IfName,
    /// What it is, for people.
    pub(crate) line: String,
    /// Whether the guest is cut off by it, or not guarded.
    pub(crate) breaks: bool,
}

/// What was seen of both namespaces.
#[derive(Debug, Default)]
struct Seen {
    state: State,
    counters: Vec<NicStats>,
    /// Frames that guards of the pod dropped, by links.
    refused: BTreeMap<u32, u64>,
    /// Of the pod, by links: namespaces that these lead to.
    elsewhere: BTreeMap<u32, i32>,
    /// The node's number in the pod's namespace.
    node: Option<i32>,
    /// The node's.
    links: Vec<Link>,
    /// Of the node.
    leads_away: BTreeMap<u32, i32>,
    /// Physical functions by their virtual ones.
    pfs: BTreeMap<String, String>,
}

/// Looks at the pod's ways, in the order of `nics`. Whether guards hold the guest to its addresses is compared only if `anti_spoof` is
/// known. Blocks.
pub(crate) fn look(pod: &Netns, node: &Netns, nics: &[Nic], anti_spoof: Option<bool>) -> Result<Vec<Way>, JoinError> {
    let guarded = guarded(nics, anti_spoof.unwrap_or(true))?;
    let mut seen = pod.inside(|| -> Result<Seen, JoinError> {
        let mut netlink = Netlink::open()?;
        let state = compare::look(&mut netlink, &guarded)?;
        let counts = count(&mut netlink, nics)?;
        let counters = stats::of(nics, &counts);
        let elsewhere = nsid::elsewhere(&mut netlink)?;
        // A kernel that does not tell leaves the rest of the way unknown.
        let node = nsid::of(&mut netlink, node.as_fd()).unwrap_or_default();
        Ok(Seen { state, counters, refused: counts.refused, elsewhere, node, ..Seen::default() })
    })??;
    (seen.links, seen.leads_away) = node.inside(|| -> Result<_, JoinError> {
        let mut netlink = Netlink::open()?;
        Ok((link::links(&mut netlink)?, nsid::elsewhere(&mut netlink)?))
    })??;
    let of_links = seen.state.observed.links.iter().filter_map(|link| link.pci.clone());
    let of_guest = nics.iter().filter_map(|nic| Some(nic.vfio()?.device.to_string()));
    seen.pfs = of_links.chain(of_guest).filter_map(|vf| Some((vf.clone(), physical(&vf)?))).collect();
    let ways = guarded.iter().enumerate();
    Ok(ways.map(|(place, nic)| seen.way(nic, place, anti_spoof.is_some())).collect())
}

/// The physical function of the virtual one at an address; `None` if there is none, or none to be seen.
fn physical(vf: &str) -> Option<String> {
    let found = sriov::virtual_function(Path::new(SYSFS), vf.parse().ok()?).ok()?;
    Some(found?.pf.to_string())
}

impl Seen {
    fn way(&self, guarded: &Guarded, place: usize, knows_guard: bool) -> Way {
        let nic = &guarded.nic;
        if nic.tap().is_none() {
            return self.passed_through(nic);
        }
        let own = |name: &IfName| self.state.link(name).map(|link| self.end(link));
        let helper = path::of(nic.kind).helper(place).as_ref().and_then(own);
        let link = self.state.link(&nic.name);
        let beyond = link.map_or_else(Vec::new, |link| self.beyond(link));
        let drift = compare::drift_of(&self.state, guarded, place);
        // What the guest was told may be less than the link has, by what a plugin said of its routes: only too much is wrong.
        let drift = drift.into_iter().filter(|drift| match drift {
            Drift::MtuChanged { .. } => false,
            Drift::OtherGuard { .. } => knows_guard,
            _ => true,
        });
        let mut marks: Vec<Mark> = drift
            .map(|drift| Mark { at: drift.link().clone(), line: drift.to_string(), breaks: drift.is_break() })
            .collect();
        marks.extend(misfits(nic, link, &beyond));
        Way {
            nic: nic.name.clone(),
            tap: own(&tap_name(place)),
            helper,
            link: link.map(|link| self.end(link)),
            beyond,
            counters: self.counters.get(place).cloned(),
            marks,
        }
    }

    fn passed_through(&self, nic: &Nic) -> Way {
        let device = nic.vfio().map(|vfio| vfio.device.to_string()).unwrap_or_default();
        let beyond = self.pf(&device).into_iter().collect();
        Way { nic: nic.name.clone(), tap: None, helper: None, link: None, beyond, counters: None, marks: Vec::new() }
    }

    /// The physical function of a virtual one, if that is one.
    fn pf(&self, vf: &str) -> Option<Stop> {
        let pf = self.pfs.get(vf)?;
        let link = self.links.iter().find(|link| link.pci.as_ref() == Some(pf));
        let link = link.map(|link| end(link, 0));
        Some(Stop { relation: Relation::Pf, on_node: true, device: Some(pf.clone()), link })
    }

    /// Where a link of the pod leads.
    fn beyond(&self, from: &Link) -> Vec<Stop> {
        let mut stops: Vec<Stop> = Vec::new();
        let (mut link, mut on_node, mut has_crossed) = (from, false, false);
        while stops.len() < MAX_STOPS {
            let is_peer = link.kind.as_deref() == Some("veth");
            let controller = link.controller.filter(|_| on_node);
            // The other end of a veth on which the way came leads back.
            let lower = link.lower.filter(|_| !(is_peer && has_crossed));
            has_crossed |= is_peer;
            let (relation, index, goes_on) = match (controller, lower) {
                (Some(master), _) => (Relation::Master, master, Some(on_node)),
                (None, Some(lower)) => {
                    let away = if on_node { &self.leads_away } else { &self.elsewhere };
                    let goes_on = match away.get(&link.index) {
                        None => Some(on_node),
                        Some(id) => (!on_node && self.node == Some(*id)).then_some(true),
                    };
                    (if is_peer { Relation::Peer } else { Relation::Parent }, lower, goes_on)
                }
                (None, None) => {
                    stops.extend(link.pci.as_ref().and_then(|pci| self.pf(pci)));
                    break;
                }
            };
            let there = goes_on.map(|node| if node { &self.links } else { &self.state.observed.links });
            let next = there.and_then(|links| links.iter().find(|link| link.index == index));
            on_node = goes_on.unwrap_or(false);
            let end = next.map(|next| if on_node { end(next, 0) } else { self.end(next) });
            stops.push(Stop { relation, on_node, device: None, link: end });
            let Some(next) = next else { break };
            link = next;
        }
        stops
    }

    /// A link of the pod.
    fn end(&self, link: &Link) -> End {
        end(link, self.refused.get(&link.index).copied().unwrap_or(0))
    }
}

fn end(link: &Link, refused: u64) -> End {
    let Link { name, kind, mac, mtu, up, carrier, .. } = link;
    End { name: name.clone(), kind: kind.clone(), mac: *mac, mtu: *mtu, up: *up, carrier: *carrier, refused }
}

/// Where sizes of frames do not fit together, and what is down outside of the pod.
fn misfits(nic: &Nic, link: Option<&Link>, beyond: &[Stop]) -> Vec<Mark> {
    let Some(link) = link else { return Vec::new() };
    let mut found = Vec::new();
    if link.mtu < nic.mtu {
        let line = format!("the guest was told an MTU of {}, and `{}` has {}", nic.mtu, link.name, link.mtu);
        found.push(Mark { at: link.name.clone(), line, breaks: false });
    }
    let mut before = (&link.name, link.mtu);
    for Stop { relation, link, .. } in beyond {
        let Some(End { name, mtu, up, .. }) = link else { break };
        let differs = if *relation == Relation::Peer { *mtu != before.1 } else { *mtu < before.1 };
        if differs {
            let line = format!("`{name}` has an MTU of {mtu}, and `{}` before it {}", before.0, before.1);
            found.push(Mark { at: name.clone(), line, breaks: false });
        }
        if !up {
            found.push(Mark { at: name.clone(), line: format!("`{name}` is down"), breaks: true });
        }
        before = (name, *mtu);
    }
    found
}

#[cfg(test)]
mod tests;
