//! What there is in a pod's namespace after its CNI plugins ran.
//!
//! Called by [`crate::net`] inside the namespace, before [`super::plan`] decides on it. A plugin's result may say
//! another prefix length or MTU than the kernel has; the kernel is what counts.

use std::collections::BTreeMap;
use std::path::Path;

use common::Reason;
use proto::tap::IfName;
use sriov::VirtualFunction;

use super::{Reported, RouteSize};
use crate::sys::link::{self, Address, KernelRoute, Link};
use crate::sys::neighbour::{self, Neighbour};
use crate::sys::netlink::{Netlink, NetlinkError};

/// Most neighbours of a link that a guest is answered for: what listens for it compares with each in turn.
const MAX_NEIGHBOURS: usize = 64;

/// A namespace as the kernel has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    /// All links.
    pub(crate) links: Vec<Link>,
    /// All addresses.
    pub(crate) addresses: Vec<Address>,
    /// All routes.
    pub(crate) routes: Vec<KernelRoute>,
    /// All neighbours that are entered for good.
    pub(crate) neighbours: Vec<Neighbour>,
    /// Those links that are SR-IOV virtual functions.
    pub(crate) vfs: BTreeMap<IfName, VirtualFunction>,
}

/// Looks at this thread's namespace. `sysfs` is asked about PCI devices alone, which belong to no namespace.
pub(crate) fn observe(netlink: &mut Netlink, sysfs: &Path) -> Result<Observed, Reason> {
    let failed = |what| {
        move |cause: NetlinkError| Reason::new(format!("failed to list {what} of the pod's namespace")).with(cause)
    };
    let links = link::links(netlink).map_err(failed("links"))?;
    let addresses = link::addresses(netlink).map_err(failed("addresses"))?;
    let routes = link::routes(netlink).map_err(failed("routes"))?;
    let neighbours = neighbour::permanent(netlink).map_err(failed("neighbours"))?;
    let vfs = virtual_functions(&links, sysfs)?;
    Ok(Observed { links, addresses, routes, neighbours, vfs })
}

impl Observed {
    /// Enters at the routes what the networks say of the size of packets on them, where that is less than what the kernel says.
    pub(crate) fn enter_sizes(&mut self, reported: &[Reported]) {
        for network in reported {
            let is_of = |link: &&Link| network.links.is_empty() || network.links.contains(&link.name);
            let links: Vec<u32> = self.links.iter().filter(is_of).map(|link| link.index).collect();
            for RouteSize { dst, priority, mtu, advmss } in &network.sizes {
                let is_meant = |route: &&mut KernelRoute| {
                    let there = (route.dst.network(), route.dst.prefix()) == (dst.network(), dst.prefix());
                    there && links.contains(&route.link) && priority.is_none_or(|priority| priority == route.metric)
                };
                for route in self.routes.iter_mut().filter(is_meant) {
                    route.mtu = route.mtu.into_iter().chain(*mtu).min();
                    route.advmss = route.advmss.into_iter().chain(*advmss).min();
                }
            }
        }
    }

    /// The neighbours of a link that its guest is answered for, at most [`MAX_NEIGHBOURS`].
    pub(crate) fn neighbours_of(&self, link: &Link) -> Vec<Neighbour> {
        let of_link = |neighbour: &&Neighbour| neighbour.link == link.index && Some(neighbour.mac) != link.mac;
        self.neighbours.iter().filter(of_link).take(MAX_NEIGHBOURS).copied().collect()
    }
}

fn virtual_functions(links: &[Link], sysfs: &Path) -> Result<BTreeMap<IfName, VirtualFunction>, Reason> {
    let mut vfs = BTreeMap::new();
    for Link { name, pci, .. } in links {
        let Some(pci) = pci else { continue };
        let unknown = |cause: sriov::PciAddrError| {
            Reason::new(format!("link `{name}` has a PCI device of unknown form")).with(cause)
        };
        let addr = pci.parse().map_err(unknown)?;
        let vf = sriov::virtual_function(sysfs, addr);
        let failed = || Reason::new(format!("failed to find out whether link `{name}` is an SR-IOV virtual function"));
        let vf = vf.map_err(|cause| failed().with(cause))?;
        vfs.extend(vf.map(|vf| (name.clone(), vf)));
    }
    Ok(vfs)
}
