//! The state of a pod's namespace, as far as a join shows in it: links, what is on them, and the daemon's filters.
//!
//! [`super::compare`] reads it; [`super::step`] looks in it for what a step should have made.

use std::collections::BTreeMap;

use proto::tap::IfName;

use super::observe::Observed;
use crate::sys::link::{self, Link};
use crate::sys::neighbour;
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::tc::{self, Fingerprint, Hook, OurFilters};

const HOOKS: [Hook; 2] = [Hook::Ingress, Hook::Egress];

/// A namespace with the filters of ours in it.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Links, addresses and routes.
    pub(crate) observed: Observed,
    /// What stands at which hook of which link.
    pub(super) ours: Vec<(u32, Hook, OurFilters)>,
    /// What filters hang on, by link.
    pub(super) qdiscs: BTreeMap<u32, String>,
}

impl State {
    /// Looks at this thread's namespace, and for filters of ours on the links `filtered`.
    pub(crate) fn look(netlink: &mut Netlink, filtered: &[IfName]) -> Result<Self, NetlinkError> {
        let links = link::links(netlink)?;
        let (addresses, routes) = (link::addresses(netlink)?, link::routes(netlink)?);
        let neighbours = neighbour::permanent(netlink)?;
        let observed = Observed { links, addresses, routes, neighbours, ..Observed::default() };
        let mut state = Self { observed, ours: vec![], qdiscs: tc::filter_qdiscs(netlink)? };
        for name in filtered {
            let Some(index) = state.index(name).filter(|index| state.qdiscs.contains_key(index)) else { continue };
            for hook in HOOKS {
                state.ours.push((index, hook, tc::our_filters(netlink, index, hook)?));
            }
        }
        Ok(state)
    }

    /// The link of this name.
    pub(crate) fn link(&self, name: &IfName) -> Option<&Link> {
        self.observed.links.iter().find(|link| link.name == *name)
    }

    pub(crate) fn index(&self, name: &IfName) -> Option<u32> {
        self.link(name).map(|link| link.index)
    }

    pub(crate) fn ours(&self, link: &IfName, hook: Hook) -> Option<&OurFilters> {
        let index = self.index(link)?;
        self.ours.iter().find(|(at, side, _)| (*at, *side) == (index, hook)).map(|(.., ours)| ours)
    }

    pub(crate) fn guard(&self, link: &IfName, hook: Hook) -> Option<Fingerprint> {
        self.ours(link, hook)?.guard
    }

    pub(crate) fn leads(&self, from: &IfName, to: &IfName) -> bool {
        let target = self.ours(from, Hook::Ingress).and_then(|ours| ours.redirect_to);
        target.is_some() && target == self.index(to)
    }

    /// Whether filters can hang on the link.
    pub(crate) fn has_qdisc(&self, link: &IfName) -> bool {
        self.index(link).is_some_and(|index| self.qdiscs.contains_key(&index))
    }

    /// What is not ours where filters of a link hang, and in their place.
    pub(crate) fn foreign(&self, link: &IfName, hook: Hook) -> Option<String> {
        let kind = self.qdiscs.get(&self.index(link)?)?;
        if kind != tc::CLSACT {
            return Some(format!("a qdisc `{kind}`"));
        }
        self.ours(link, hook)?.foreign.map(|priority| format!("a filter of priority {priority}"))
    }
}
