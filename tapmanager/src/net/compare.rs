//! Compares a pod's namespace with what the daemon made in it: what differs, and which steps mend it.
//!
//! Called by [`crate::net`] for `check`, `repair` and after a restart. The steps of the pod's data path say what should
//! be there ([`super::path`]); [`super::state`] says what is there. Pure but for [`look`].
//!
//! Only what the daemon made is made again. A filter that differs is replaced in one step: without a filter the
//! namespace's own stack, which has the guest's addresses, would receive the packets of the guest's connections and
//! reset them. If a plugin's link is gone or has another MAC address, the plugin has to bring it back. Addresses and
//! routes that a link lost are reported and left alone, as the guest keeps its own copies.

use std::net::IpAddr;

use proto::tap::{IfName, Nic};

use super::drift::Drift;
use super::filter::Guards;
use super::path;
use super::plan::routes;
use super::state::State;
use super::step::Step;
use crate::sys::link::Link;
use crate::sys::netlink::{Netlink, NetlinkError};

/// A NIC, and what its guards should be.
#[derive(Debug, Clone)]
pub(crate) struct Guarded {
    pub(crate) nic: Nic,
    pub(crate) guards: Guards,
}

/// Looks at this thread's namespace, as far as `nics` are concerned.
pub(crate) fn look(netlink: &mut Netlink, nics: &[Guarded]) -> Result<State, NetlinkError> {
    let steps = |(place, Guarded { nic, guards }): (usize, &Guarded)| path::steps(nic, place, false, guards);
    let steps: Vec<Step> = nics.iter().enumerate().flat_map(steps).collect();
    let mut filtered: Vec<IfName> = steps.iter().filter_map(Step::filter).map(|(link, _)| link.clone()).collect();
    filtered.sort();
    filtered.dedup();
    State::look(netlink, &filtered)
}

/// All that is not as it was made, NIC by NIC.
pub(crate) fn drift(state: &State, nics: &[Guarded]) -> Vec<Drift> {
    nics.iter().enumerate().flat_map(|(place, nic)| drift_of(state, nic, place)).collect()
}

/// The same of the NIC at `place`.
pub(super) fn drift_of(state: &State, Guarded { nic, guards }: &Guarded, place: usize) -> Vec<Drift> {
    let name = || nic.name.clone();
    if nic.tap().is_none() {
        // Its link went to the guest.
        return Vec::new();
    }
    let Some(link) = state.link(&nic.name) else { return vec![Drift::LinkGone { link: name() }] };
    let mut found = Vec::new();
    if link.mac != Some(nic.mac) {
        found.push(Drift::MacChanged { link: name(), mac: nic.mac });
    }
    let of_routes = routes::of_link(&state.observed, link);
    let mtu = routes::guest_mtu(link.mtu, &nic.addresses, of_routes.iter().map(|route| route.mtu));
    if mtu != nic.mtu {
        found.push(Drift::MtuChanged { link: name(), was: nic.mtu, is: mtu });
    }
    let mut taken: Vec<IfName> = Vec::new();
    for step in path::steps(nic, place, false, guards) {
        // Of a link that is not ours no more is told.
        if step.holds(state) || taken.iter().any(|name| step.subject() == name) {
            continue;
        }
        let filter = step.filter().map(|(link, hook)| (link.clone(), hook));
        let Some(lack) = step.lack(state) else { continue };
        if let Drift::NameTaken { link, .. } = &lack {
            taken.push(link.clone());
        }
        let in_the_way = filter.and_then(|(link, hook)| {
            Some(Drift::InTheWay { what: state.foreign(&link, hook)?, breaks: lack.is_break(), link })
        });
        match in_the_way {
            None => found.push(lack),
            Some(foreign) if found.contains(&foreign) => {}
            Some(foreign) => found.push(foreign),
        }
    }
    found.extend(addressing(state, nic, link));
    found
}

fn addressing(state: &State, nic: &Nic, link: &Link) -> Vec<Drift> {
    let name = || nic.name.clone();
    let here: Vec<_> = state.observed.addresses.iter().filter(|address| address.link == link.index).collect();
    let gone = nic.addresses.iter().map(|net| net.ip()).filter(|ip| here.iter().all(|own| own.net.ip() != *ip));
    let known = |ip: IpAddr| nic.addresses.iter().any(|net| net.ip() == ip);
    let new = here.iter().filter(|own| own.lasting && !known(own.net.ip())).map(|own| own.net.ip());
    let gone = gone.map(|address| Drift::AddressGone { link: name(), address });
    let new = new.map(|address| Drift::AddressNew { link: name(), address });
    let mut found: Vec<Drift> = gone.chain(new).collect();
    let kernel = routes::of_link(&state.observed, link);
    if routes::guest_routes(&nic.name, &nic.addresses, &kernel).as_ref() != Ok(&nic.routes) {
        found.push(Drift::RoutesChanged { link: name() });
    }
    found
}

/// What has to be done so that `nics` are joined again, or why that cannot be.
pub(crate) fn repairs(state: &State, nics: &[Guarded]) -> Result<Vec<Step>, Vec<Drift>> {
    let lost: Vec<Drift> = drift(state, nics).into_iter().filter(Drift::is_beyond_us).collect();
    if !lost.is_empty() {
        return Err(lost);
    }
    Ok(nics.iter().enumerate().flat_map(|(place, nic)| repairs_of(state, nic, place)).collect())
}

fn repairs_of(state: &State, Guarded { nic, guards }: &Guarded, place: usize) -> Vec<Step> {
    let mut repairs = Vec::new();
    for step in path::steps(nic, place, false, guards) {
        if step.is_due(state, &repairs) {
            repairs.push(step);
        }
    }
    repairs
}

#[cfg(test)]
pub(super) mod tests;
