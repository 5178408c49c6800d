//! What to do to join a pod's links with taps, and what NICs its guest gets: decided from what was seen, without doing.
//!
//! Called by [`crate::net`] between looking ([`super::observe`]) and doing ([`super::apply`]). Pure.
//!
//! The guest is to reach what a process in the namespace would. The prefix length of an address says to a guest "these
//! neighbours are on the link"; to the kernel it is only where the route to them first came from. The `ptp` plugin, for
//! one, sets `10.77.0.2/24` and then replaces the route to `10.77.0.0/24` by one through the gateway. Therefore an
//! address keeps its prefix length only if the kernel still has the route that it implies, and is a host address (/32,
//! /128) otherwise; all other routes of the link go to the guest as they are ([`routes`]). A gateway that nothing says
//! how to reach (an `onlink` route) gets a route of its own. Routes on the link come first and default routes last, so
//! that a guest that sets them one by one finds each gateway reachable.
//!
//! The NICs stand in the order of the networks, then of each network's result. A link that several networks report (a
//! meta plugin's result lists those of others) is the first one's, and addresses of each may be on it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{DataPath, IfName, MacAddr, Nic, NicKind, Tap, Vfio};
use sriov::settings::VfSettings;

use super::filter::Guards;
use super::observe::Observed;
use super::step::Step;
use super::{Choices, MAX_NICS, PassedThrough, Reported, path};
use crate::cni::Device;
use crate::config::MAX_QUEUES;
use crate::sys::link::{Address, Link};
use crate::vf;

mod differences;
mod error;
pub(crate) mod routes;

pub(crate) use error::PlanError;

/// Of a device whose network says none: what a driver begins with (`ETH_DATA_LEN` of the kernel).
const ETHERNET_MTU: u32 = 1500;

/// What is to be done and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// In this order.
    pub(crate) steps: Vec<Step>,
    /// NIC by NIC, as the guest sees them.
    pub(crate) nics: Vec<Nic>,
    /// Those of them that the guest drives itself.
    pub(crate) passed_through: Vec<PassedThrough>,
    /// What the guest has otherwise than a process would, for people.
    pub(crate) notes: Vec<String>,
}

/// What becomes a NIC, and the networks that report it.
struct Chosen<'a> {
    what: What<'a>,
    networks: Vec<&'a Reported>,
}

#[derive(Clone, Copy, PartialEq)]
enum What<'a> {
    /// A link in the namespace.
    Link(&'a Link),
    /// A virtual function on vfio-pci, which has none; and the name that its link would have.
    Device(&'a IfName, &'a Device),
}

/// Decides how to join the links that the plugins reported; for a network without any, those that have its addresses.
pub(crate) fn plan(observed: &Observed, reported: &[Reported], choices: Choices) -> Result<Plan, PlanError> {
    let mut chosen: Vec<Chosen<'_>> = Vec::new();
    for network in reported {
        for what in links_of(observed, network, reported)? {
            match chosen.iter_mut().find(|known| known.what == what) {
                Some(known) => known.networks.push(network),
                None => chosen.push(Chosen { what, networks: vec![network] }),
            }
        }
    }
    if chosen.len() > MAX_NICS {
        return Err(PlanError::TooMany { count: chosen.len() });
    }
    let mut plan = Plan { steps: Vec::new(), nics: Vec::new(), passed_through: Vec::new(), notes: Vec::new() };
    for (place, chosen) in chosen.iter().enumerate() {
        for name in path::names(place) {
            if observed.links.iter().any(|other| other.name == name) {
                return Err(PlanError::NameTaken { name });
            }
        }
        let nic = match chosen.what {
            What::Link(link) => {
                let nic = nic_of_link(observed, chosen, link, choices)?;
                differences::refuse(observed, link, &nic)?;
                let guards = guards(&nic, choices.anti_spoof)?;
                plan.notes.extend(differences::notes(observed, link, &nic));
                plan.steps.extend(path::steps(&nic, place, link.up, &guards));
                nic
            }
            What::Device(name, device) => {
                let nic = nic_of_device(chosen, name, device)?;
                let sizes = chosen.networks.iter().flat_map(|network| network.sizes.iter().copied());
                plan.notes.extend(differences::sizes(&nic, mtu_of_device(device), sizes));
                nic
            }
        };
        if let Some(vfio) = nic.vfio() {
            let link = matches!(chosen.what, What::Link(_)).then(|| nic.name.clone());
            let mut asked = VfSettings::default();
            let all = chosen.networks.iter().flat_map(|network| network.asked.attributes());
            all.for_each(|attribute| asked.set(attribute));
            let (vf, network) = (vf::local(vfio.device), nic.network.clone());
            plan.passed_through.push(PassedThrough { vf, network, link, mac: nic.mac, asked });
        }
        plan.nics.push(nic);
    }
    check_addresses(reported, &chosen, &plan.nics)?;
    Ok(plan)
}

fn links_of<'a>(
    observed: &'a Observed,
    network: &'a Reported,
    reported: &[Reported],
) -> Result<Vec<What<'a>>, PlanError> {
    let mut links: Vec<What<'_>> = Vec::new();
    for name in &network.links {
        let link = observed.links.iter().find(|link| link.name == *name).map(What::Link);
        let device = || network.devices.get_key_value(name).map(|(name, device)| What::Device(name, device));
        let link = link.or_else(device).ok_or_else(|| PlanError::Missing { name: name.clone() })?;
        // Chained plugins may report a link once each.
        if !links.contains(&link) {
            links.push(link);
        }
    }
    if network.links.is_empty() {
        // Results of old plugins name no interfaces. Those that another network names are not meant: networks may have
        // the same addresses.
        let elsewhere = |link: &Link| reported.iter().any(|other| other.links.contains(&link.name));
        let addressed = |link: &&Link| {
            let mut own = observed.addresses.iter().filter(|address| address.link == link.index);
            !elsewhere(link) && own.any(|own| network.addresses.iter().any(|address| address.ip() == own.net.ip()))
        };
        links = observed.links.iter().filter(addressed).map(What::Link).collect();
    }
    let name = || network.network.clone();
    if links.is_empty() {
        let reported = network.addresses.first().filter(|_| network.links.is_empty());
        return Err(match reported.map(IpNetwork::ip) {
            Some(address) => PlanError::AddressMissing { address, network: name() },
            None => PlanError::NoLinks { network: name() },
        });
    }
    links.retain(|what| !matches!(what, What::Link(link) if link.loopback));
    if links.is_empty() { Err(PlanError::OnlyLoopback { network: name() }) } else { Ok(links) }
}

fn nic_of_link(observed: &Observed, chosen: &Chosen<'_>, link: &Link, choices: Choices) -> Result<Nic, PlanError> {
    let mac = usable_mac(link)?;
    let named = chosen.networks.iter().find_map(|network| network.devices.get(&link.name));
    let vf = observed.vfs.get(&link.name);
    if let (Some(vf), Some(named)) = (vf, named)
        && vf.addr != named.addr
    {
        let (name, by) = (link.name.clone(), named.by.clone());
        return Err(PlanError::OtherDevice { name, is: vf.addr, named: named.addr, by });
    }
    let kind = match vf {
        Some(vf) => NicKind::Vfio(Vfio { device: vf::wire(vf.addr) }),
        None => {
            check_data_path(link, choices.data_path)?;
            let queues = choices.queues.clamp(1, MAX_QUEUES);
            NicKind::Tap(Tap { data_path: choices.data_path, queues })
        }
    };
    let own = own_addresses(observed, chosen, link);
    if !link.up && !own.is_empty() {
        return Err(PlanError::Down { name: link.name.clone() });
    }
    let kernel = routes::of_link(observed, link);
    let addresses = routes::with_prefixes(own, &kernel);
    let mtu = routes::guest_mtu(link.mtu, &addresses, kernel.iter().map(|route| route.mtu));
    Ok(Nic {
        name: link.name.clone(),
        network: chosen.network(),
        mac,
        mtu,
        kind,
        routes: routes::guest_routes(&link.name, &addresses, &kernel)?,
        addresses,
    })
}

/// The NIC of a virtual function that has no link: all of it is as the network reported.
fn nic_of_device(chosen: &Chosen<'_>, name: &IfName, device: &Device) -> Result<Nic, PlanError> {
    let no_mac = || PlanError::DeviceWithoutMac { name: name.clone(), device: device.addr };
    let reported = || chosen.networks.iter();
    let addresses: Vec<_> = reported().flat_map(|network| network.addresses.iter().copied()).collect();
    let of_routes = reported().flat_map(|network| network.sizes.iter().map(|size| size.mtu));
    Ok(Nic {
        name: name.clone(),
        network: chosen.network(),
        mac: device.mac.ok_or_else(no_mac)?,
        mtu: routes::guest_mtu(mtu_of_device(device), &addresses, of_routes),
        kind: NicKind::Vfio(Vfio { device: vf::wire(device.addr) }),
        addresses,
        routes: reported().flat_map(|network| network.routes.iter().copied()).collect(),
    })
}

fn mtu_of_device(device: &Device) -> u32 {
    device.mtu.unwrap_or(ETHERNET_MTU)
}

fn usable_mac(link: &Link) -> Result<MacAddr, PlanError> {
    let name = || link.name.clone();
    let refuse = |kind: &str, advice| Err(PlanError::Kind { name: name(), kind: kind.to_owned(), advice });
    match link.kind.as_deref() {
        // It receives by the addresses that it has itself, and its pods share one MAC address: a guest behind it gets
        // nothing, and the guard would take other pods' frames for reflections.
        Some(kind @ "ipvlan") => return refuse(kind, "use macvlan, bridge or ptp"),
        // What comes out of it is for the program that holds it, so behind it is the namespace and no network.
        Some(kind @ "tun") => {
            return refuse(kind, "use a plugin that makes an ordinary pod link, such as bridge or ptp");
        }
        _ => {}
    }
    if !link.ethernet {
        return Err(PlanError::NotEthernet { name: name() });
    }
    link.mac.ok_or_else(|| PlanError::NoMac { name: name() })
}

fn check_data_path(link: &Link, data_path: DataPath) -> Result<(), PlanError> {
    path::named(data_path)
        .refusal(link)
        .map_or(Ok(()), |why| Err(PlanError::DataPath { name: link.name.clone(), data_path: data_path.name(), why }))
}

/// The guards of a NIC whose guest is held to its identity, or may be anybody.
pub(crate) fn guards(nic: &Nic, anti_spoof: bool) -> Result<Guards, PlanError> {
    Guards::of(nic, anti_spoof).map_err(|cause| PlanError::Identity { name: nic.name.clone(), cause })
}

/// Addresses in the order of the plugins' results, then other lasting ones in the kernel's.
fn own_addresses(observed: &Observed, chosen: &Chosen<'_>, link: &Link) -> Vec<IpNetwork> {
    let own: Vec<&Address> = observed.addresses.iter().filter(|address| address.link == link.index).collect();
    let reported = || chosen.networks.iter().flat_map(|network| &network.addresses);
    let is_reported = |own: &Address| reported().any(|address| address.ip() == own.net.ip());
    let first = reported().filter_map(|address| own.iter().find(|own| own.net.ip() == address.ip()));
    let others = own.iter().filter(|own| own.lasting && !is_reported(own));
    let mut addresses: Vec<IpNetwork> = Vec::new();
    for address in first.chain(others) {
        if !addresses.contains(&address.net) {
            addresses.push(address.net);
        }
    }
    addresses
}

/// Every address of a network is on a link of that network.
fn check_addresses(reported: &[Reported], chosen: &[Chosen<'_>], nics: &[Nic]) -> Result<(), PlanError> {
    for network in reported {
        let has = |ip: IpAddr| {
            let mut joined = chosen.iter().zip(nics);
            joined.any(|(chosen, nic)| {
                let is_of = chosen.networks.iter().any(|other| std::ptr::eq(*other, network));
                is_of && nic.addresses.iter().any(|net| net.ip() == ip)
            })
        };
        // The loopback plugin reports its own, which no guest needs to be given.
        let mut expected = network.addresses.iter().map(IpNetwork::ip).filter(|ip| !ip.is_loopback());
        if let Some(address) = expected.find(|ip| !has(*ip)) {
            return Err(PlanError::AddressMissing { address, network: network.network.clone() });
        }
    }
    if nics.iter().all(|nic| nic.addresses.is_empty()) { Err(PlanError::NoAddress) } else { Ok(()) }
}

impl Chosen<'_> {
    fn network(&self) -> String {
        // There is one at least: it is why this was chosen.
        self.networks.first().map_or_else(String::new, |network| network.network.clone())
    }
}

#[cfg(test)]
mod tests;
