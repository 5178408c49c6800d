//! The kernel's network: [`Wiring`] by netlink. The rest of [`super::wiring::Node`] is in [`crate::vf`].
//!
//! Called by [`super`] alone. Namespaces are entered on threads that end with their work.

use std::net::IpAddr;
use std::path::Path;

use common::Reason;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use nix::errno::Errno;
use proto::tap::IfName;
use sriov::Sysfs;
use sriov::claim::Cause;

use super::failure::{Code, Failure};
use super::wiring::{Addressing, Route, Wiring};
use crate::sys::family::family_of;
use crate::sys::link::{self, KernelRoute, MAIN_TABLE, NextHop};
use crate::sys::netdev;
use crate::sys::netlink::Netlink;
use crate::sys::netns::Netns;
use crate::vf::HostNet;

/// The network of this process.
///
/// # Errors
/// If the kernel does not let us into it.
pub(super) fn open(sysfs: Sysfs) -> Result<HostNet, Failure> {
    const WHAT: &str = "failed to open the host's network; the plugin has to run as root";
    HostNet::open(sysfs).map_err(Failure::because(Code::Kernel, WHAT))
}

impl Wiring for HostNet {
    fn take_out(&mut self, netns: &str, index: u32, name: &str) -> Result<(), Cause> {
        let name: IfName = name.parse()?;
        within(&container(netns)?, |netlink| {
            link::set_down(netlink, index)?;
            Ok(netdev::move_into(netlink, index, self.host(), &name)?)
        })
    }

    fn settle(&mut self, index: u32, name: &str, up: bool) -> Result<(), Cause> {
        let name: IfName = name.parse()?;
        within(self.host(), |netlink| {
            let found = link::links(netlink)?.into_iter().find(|link| link.index == index);
            let found = found.ok_or_else(|| Reason::new(format!("the netdev with index {index} is gone")))?;
            if found.name != name {
                netdev::rename(netlink, &found, &name)?;
            }
            let set = if up { link::set_up } else { link::set_down };
            Ok(set(netlink, index)?)
        })
    }

    fn bring_up(&mut self, netns: &str, index: u32) -> Result<(), Cause> {
        within(&container(netns)?, |netlink| Ok(link::set_up(netlink, index)?))
    }

    fn address(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<(), Cause> {
        within(&container(netns)?, |netlink| {
            for address in &addressing.addresses {
                let failed = |cause| Reason::new(format!("failed to set the address `{address}`")).with(cause);
                let message = RouteNetlinkMessage::NewAddress(address_message(index, address.ip(), address.prefix()));
                netlink.request(message, NLM_F_CREATE | NLM_F_REPLACE).map_err(failed)?;
            }
            for route in &addressing.routes {
                let failed = |cause| Reason::new(format!("failed to set the route to `{}`", route.dst)).with(cause);
                let message = RouteNetlinkMessage::NewRoute(route_message(index, route));
                match netlink.request(message, NLM_F_CREATE | NLM_F_EXCL) {
                    // This one. Another link's is not ours to replace.
                    Err(error)
                        if error.errno() == Some(Errno::EEXIST) && has_route(&link::routes(netlink)?, index, route) => {
                    }
                    done => done.map_err(failed)?,
                }
            }
            Ok(())
        })
    }

    fn lacks(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<Vec<String>, Cause> {
        within(&container(netns)?, |netlink| {
            let (addresses, routes) = (link::addresses(netlink)?, link::routes(netlink)?);
            let has_address = |wanted| addresses.iter().any(|address| address.link == index && address.net == wanted);
            let addresses = addressing.addresses.iter().filter(|wanted| !has_address(**wanted));
            let lacking = addresses.map(|address| format!("the address `{address}`"));
            let routes = addressing.routes.iter().filter(|wanted| !has_route(&routes, index, wanted));
            Ok(lacking.chain(routes.map(|route| format!("the route to `{}`", route.dst))).collect())
        })
    }
}

/// A container's namespace, which is there.
fn container(netns: &str) -> Result<Netns, Cause> {
    let gone = || Reason::new(format!("there is no network namespace `{netns}`"));
    Ok(Netns::open(Path::new(netns))?.ok_or_else(gone)?)
}

/// Does something with a socket in a namespace.
fn within<T: Send>(netns: &Netns, work: impl FnOnce(&mut Netlink) -> Result<T, Cause> + Send) -> Result<T, Cause> {
    netns.inside(|| work(&mut Netlink::open()?))?
}

fn address_message(index: u32, ip: IpAddr, prefix: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family_of(ip);
    message.header.prefix_len = prefix;
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
    if ip.is_ipv6() {
        // It is the IPAM plugin's word that nobody else has it, and the container does not have to wait.
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
    }
    message
}

fn route_message(index: u32, route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    let table = route.table.unwrap_or(MAIN_TABLE);
    message.header.address_family = family_of(route.dst.ip());
    message.header.destination_prefix_length = route.dst.prefix();
    // A table that does not fit is told by its attribute alone.
    message.header.table = u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    message.header.protocol = RouteProtocol::Boot;
    message.header.scope = if route.gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![RouteAttribute::Oif(index), RouteAttribute::Table(table)];
    if route.dst.prefix() != 0 {
        message.attributes.push(RouteAttribute::Destination(route.dst.network().into()));
    }
    message.attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    message.attributes.extend(route.metric.map(RouteAttribute::Priority));
    message.attributes.extend(route.mtu.map(|mtu| RouteAttribute::Metrics(vec![RouteMetric::Mtu(mtu)])));
    message
}

fn has_route(routes: &[KernelRoute], index: u32, wanted: &Route) -> bool {
    let next_hop = wanted.gateway.map_or(NextHop::OnLink, NextHop::Gateway);
    routes.iter().any(|route| {
        route.link == index
            && (route.dst.network(), route.dst.prefix()) == (wanted.dst.network(), wanted.dst.prefix())
            && route.next_hop == next_hop
            && route.table == wanted.table.unwrap_or(MAIN_TABLE)
            && wanted.metric.is_none_or(|metric| route.metric == metric)
    })
}

#[cfg(test)]
mod tests;
