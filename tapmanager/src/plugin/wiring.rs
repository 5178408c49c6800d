//! What the plugin needs of netdevs besides [`sriov::claim::Links`], and the addresses that an IPAM plugin chose.
//!
//! [`super::kernel`] implements it with netlink, tests with a model. Each call is one step that may be repeated.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use rscni_plugin::types::CNIResult;
use sriov::claim::{Cause, Links};
use sriov::settings::PfControl;

/// Addresses and routes of a netdev.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Addressing {
    /// With the prefix of their subnets.
    pub(super) addresses: Vec<IpNetwork>,
    /// In the IPAM plugin's order.
    pub(super) routes: Vec<Route>,
}

/// A route over the netdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Route {
    /// Destination.
    pub(super) dst: IpNetwork,
    /// Next hop; without it the destination is on the link.
    pub(super) gateway: Option<IpAddr>,
    /// Metric; the kernel's choice without.
    pub(super) metric: Option<u32>,
    /// Table; the main one without.
    pub(super) table: Option<u32>,
    /// The most that may be sent this way in one packet.
    pub(super) mtu: Option<u32>,
}

/// Netdevs of VFs on their way from the host's namespace into a container's and back.
pub(super) trait Wiring {
    /// Takes a netdev down, moves it from a container's namespace into the host's and names it there, in one request.
    ///
    /// # Errors
    /// If it is not there. If the host has another one of this name, the kernel has moved it all the same, and
    /// [`Self::settle`] can name it later.
    fn take_out(&mut self, netns: &str, index: u32, name: &str) -> Result<(), Cause>;

    /// Names a netdev of the host's namespace and brings it up or down.
    ///
    /// # Errors
    /// If it is not so.
    fn settle(&mut self, index: u32, name: &str, up: bool) -> Result<(), Cause>;

    /// Brings a netdev in a container's namespace up.
    ///
    /// # Errors
    /// If it is not.
    fn bring_up(&mut self, netns: &str, index: u32) -> Result<(), Cause>;

    /// Gives a netdev in a container's namespace addresses and routes; fine for those that it has.
    ///
    /// # Errors
    /// If it has one of them not.
    fn address(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<(), Cause>;

    /// Which of these a netdev in a container's namespace has not.
    ///
    /// # Errors
    /// If that cannot be told.
    fn lacks(&mut self, netns: &str, index: u32, addressing: &Addressing) -> Result<Vec<String>, Cause>;
}

/// The node.
pub(super) trait Node: PfControl + Links + Wiring {}

impl<N: PfControl + Links + Wiring> Node for N {}

// === impl Addressing ===

impl Addressing {
    /// What a result says. A route without a next hop goes over the first gateway of its family, if there is one.
    pub(super) fn of(result: &CNIResult) -> Self {
        let net = |addr, prefix| IpNetwork::new(addr, prefix).ok();
        let gateway =
            |four: bool| result.ips.iter().filter_map(|ip| ip.gateway).find(|gateway| gateway.is_ipv4() == four);
        let addresses = result.ips.iter().filter_map(|ip| net(ip.address.addr(), ip.address.prefix_len())).collect();
        let routes = result.routes.iter().filter_map(|route| {
            let dst = net(route.dst.addr(), route.dst.prefix_len())?;
            Some(Route {
                dst,
                gateway: route.gw.or_else(|| gateway(dst.is_ipv4())),
                metric: route.priority,
                table: route.table,
                mtu: route.mtu,
            })
        });
        Self { addresses, routes: routes.collect() }
    }
}
