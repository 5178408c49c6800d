//! Router advertisements of one NIC: tells the guest the routes that the CNI plugins gave its pod, and that its
//! addresses come by DHCPv6. RFC 4861, 4191, 8106.
//!
//! Called by [`crate::addressing`]. [`Server`] is pure: a frame in, frames out, no clock.
//!
//! # Contents
//! - Flags M and O: addresses, and all else that is not about routes, by [`crate::dhcp6`].
//! - On-link prefixes (L, without A: guests make no addresses of them) for what the kernel of the pod's namespace has
//!   on the link. An address that stands alone (/128) gets none, so all of its traffic goes to a router.
//! - A router lifetime only from a router that the pod has a default route through; route information for its others.
//! - The MTU. Resolvers and search domains, if the pod has any.
//!
//! None of this changes while the pod lives. So prefixes, routes and resolvers have infinite lifetimes, and routers the
//! longest that there is: a guest does not notice that the daemon is away for a while.
//!
//! # The router's address
//! The source of an advertisement is the router, and has to be a link-local address (RFC 4861 section 6.1.2). A CNI
//! result may name a gateway by any address.
//!
//! - A link-local gateway is the source itself. The guest finds it on the link as any host would.
//! - For a global one, its link-local address is unknown: there is one on the same link-layer address, but it need not
//!   be of the EUI-64 form, and changes if the gateway's MAC does. So the source is a stand-in, a link-local address
//!   made of the gateway's ([`routers`]) that no station has. Asked for the stand-in, the server asks the network for
//!   the gateway, from the pod's address on the CNI's link ([`Answers::to_link`]), and says of the stand-in what the
//!   gateway says of itself ([`Server::handle_link_frame`]). The server keeps no answer and gives none in the gateway's
//!   place: a guest finds the gateway in use, sees when it is gone (and takes another router, if there is one), and
//!   follows a gateway that announces another MAC at once. The namespace's own neighbour table is of no use for this:
//!   what the network answers is for the guest, and the namespace's stack does not get to see it.
//!
//! - The server answers for each permanent neighbour of the pod's link, be it a gateway or not: no station on the link
//!   does.
//!
//! Several gateways are several routers, each with advertisements of its own.
//!
//! # Limits
//! - A redirect that a global gateway sends comes from its own link-local address, which is not the guest's router: the
//!   guest ignores it, as RFC 4861 section 8.1 wants, and goes on by the gateway.
//! - A link-local gateway that does not say it is a router in its neighbour advertisements (a proxy without that flag)
//!   is no router to a guest that follows RFC 4861 section 7.2.5 to the letter.
//! - Linux ignores route information unless `accept_ra_rt_info_max_plen` is raised; such a guest sends what is for
//!   those routes to its default router.
//! - A NIC without an IPv6 address has no advertisements. One on a macvtap has no packet socket to send them by.

mod advert;
mod neighbour;
mod routers;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use proto::tap::{Dns, MacAddr, Nic};

use crate::ipv6::{ALL_NODES, Envelope, ICMPV6, Packet, SERVER_MAC, group_mac, icmp, parse, solicited_node};
use crate::sys::bpf::{Assembler, Op, Program, Test};
use crate::sys::neighbour::Neighbour;

use neighbour::{Advertisement, Message};
use routers::Router;

/// How often [`Server::unsolicited`] is due: what a guest missed, or has forgotten, it is told again. RFC 4861 section
/// 6.2.1 has it between 3 seconds and half an hour.
pub(crate) const INTERVAL: Duration = Duration::from_secs(600);

/// What comes of a guest's frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Frames to the guest, out of the tap.
    pub(crate) to_guest: Vec<Vec<u8>>,
    /// Frames to the network, out of the CNI's link.
    pub(crate) to_link: Vec<Vec<u8>>,
}

/// Advertises the routers of one NIC, and finds them for its guest.
#[derive(Debug)]
pub(crate) struct Server {
    mac: MacAddr,
    /// Global addresses of the pod: whom to ask the network as.
    own: Vec<ipnetwork::Ipv6Network>,
    routers: Vec<Router>,
    /// For each router that was last asked for, who asked.
    askers: Vec<Option<Ipv6Addr>>,
    /// Neighbours whose MAC address is known for good.
    known: Vec<(Ipv6Addr, MacAddr)>,
    /// Messages with their sources.
    adverts: Vec<(Ipv6Addr, Vec<u8>)>,
}

/// The filter of the packet socket on the CNI's link: neighbour advertisements, without a VLAN tag.
pub(crate) fn link_filter() -> Program {
    let mut asm = Assembler::default();
    let no = asm.label();
    asm.op(Op::VlanTagged);
    asm.unless(Test::Is(0), no);
    asm.op(Op::Half(12));
    asm.unless(Test::Is(0x86dd), no);
    asm.op(Op::Byte(14 + 6));
    asm.unless(Test::Is(ICMPV6.into()), no);
    asm.op(Op::Byte(14 + 40));
    asm.unless(Test::Is(neighbour::NEIGHBOUR_ADVERTISEMENT.into()), no);
    asm.give(u32::MAX);
    asm.bind(no);
    asm.give(0);
    asm.finish().expect("constant code, and the tests assemble it")
}

// === impl Server ===

impl Server {
    /// A server of this NIC; `None` if it has no IPv6 address.
    pub(crate) fn new(nic: &Nic, dns: &Dns) -> Option<Self> {
        let own = routers::own_addresses(nic);
        if own.is_empty() {
            return None;
        }
        let routers = routers::of(nic);
        let askers = vec![None; routers.len()];
        let adverts = advert::messages(nic, dns, &routers);
        Some(Self { mac: nic.mac, own, routers, askers, known: Vec::new(), adverts })
    }

    /// The same, which answers for those of `neighbours` that are of IPv6, and asks the network for none of them.
    pub(crate) fn knowing(mut self, neighbours: &[Neighbour]) -> Self {
        let v6 = |neighbour: &Neighbour| match neighbour.ip {
            IpAddr::V6(ip) => Some((ip, neighbour.mac)),
            IpAddr::V4(_) => None,
        };
        self.known = neighbours.iter().filter_map(v6).collect();
        self
    }

    fn known(&self, address: Ipv6Addr) -> Option<MacAddr> {
        self.known.iter().find(|(known, _)| *known == address).map(|(_, mac)| *mac)
    }

    /// Whether a router's MAC address has to be asked of the network: [`Self::handle_link_frame`] is to be given what a
    /// socket with [`link_filter`] hears on the CNI's link then, and [`Answers::to_link`] is to be sent there.
    pub(crate) fn needs_link(&self) -> bool {
        self.routers.iter().filter_map(|router| router.gateway).any(|gateway| self.known(gateway).is_none())
    }

    /// Takes an Ethernet frame of the guest, heard on the tap.
    pub(crate) fn handle_frame(&mut self, frame: &[u8]) -> Answers {
        let mut answers = Answers::default();
        let Some(packet) = parse(frame).filter(|packet| packet.from_mac == self.mac.octets()) else { return answers };
        match neighbour::parse(&packet) {
            Some(Message::RouterSolicitation) => {
                tracing::trace!(mac = %self.mac, from = %packet.from, "router solicitation");
                let to = if packet.from.is_unspecified() { ALL_NODES } else { packet.from };
                answers.to_guest = self.advertise(to);
            }
            Some(Message::NeighbourSolicitation { target }) => self.find(&packet, target, &mut answers),
            Some(Message::NeighbourAdvertisement(_)) | None => {}
        }
        answers
    }

    /// Takes an Ethernet frame of the network, heard on the CNI's link; gives frames to the guest.
    pub(crate) fn handle_link_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let own = self.mac.octets();
        let heard = parse(frame).filter(|packet| packet.from_mac != own && is_for(packet.to_mac, own));
        let Some(Message::NeighbourAdvertisement(said)) = heard.as_ref().and_then(neighbour::parse) else {
            return Vec::new();
        };
        if self.known(said.target).is_some() {
            return Vec::new();
        }
        // Without it nothing is said that the guest needs: it was asked for by multicast (RFC 4861 section 7.2.4).
        let Some(mac) = said.mac.filter(|mac| *mac != self.mac) else { return Vec::new() };
        let meant = self.routers.iter().zip(&mut self.askers).filter(|(router, _)| router.gateway == Some(said.target));
        let tell = |(router, asker): (&Router, &mut Option<Ipv6Addr>)| {
            let asker = asker.take();
            let (to_mac, to) = asker.map_or_else(|| (group_mac(ALL_NODES), ALL_NODES), |asker| (own, asker));
            let solicited = asker.is_some();
            let told = Advertisement {
                target: router.address,
                mac: Some(mac),
                router: true,
                solicited,
                overrides: said.overrides || solicited,
            };
            // The gateway's own: a guest that bridges inside learns from it what is true.
            let envelope = Envelope { from_mac: mac.octets(), to_mac, from: router.address, to };
            icmp(&envelope, neighbour::advertisement(&told))
        };
        meant.filter_map(tell).collect()
    }

    /// The advertisements to all, due at the start of the service and after each [`INTERVAL`].
    pub(crate) fn unsolicited(&self) -> Vec<Vec<u8>> {
        self.advertise(ALL_NODES)
    }

    fn advertise(&self, to: Ipv6Addr) -> Vec<Vec<u8>> {
        let to_mac = if to.is_multicast() { group_mac(to) } else { self.mac.octets() };
        let envelope = |from| Envelope { from_mac: SERVER_MAC, to_mac, from, to };
        self.adverts.iter().filter_map(|(from, message)| icmp(&envelope(*from), message.clone())).collect()
    }

    /// Finds `target` if it is a stand-in of a router, or a permanent neighbour: nobody else does.
    fn find(&mut self, packet: &Packet<'_>, target: Ipv6Addr, answers: &mut Answers) {
        let gateway = self.routers.iter().find(|router| router.address == target).and_then(|router| router.gateway);
        if let Some(mac) = self.known(gateway.unwrap_or(target)) {
            answers.to_guest.extend(self.tell(packet, target, mac));
            return;
        }
        let mut known = self.routers.iter().zip(&mut self.askers);
        let Some((router, asker)) = known.find(|(router, _)| router.address == target) else { return };
        let Some(gateway) = router.gateway else { return };
        if packet.from.is_unspecified() {
            // The guest is about to take it for itself (RFC 4862 section 5.4): it is taken.
            let told = Advertisement { target, mac: None, router: true, solicited: false, overrides: true };
            let (from_mac, to_mac) = (SERVER_MAC, group_mac(ALL_NODES));
            let envelope = Envelope { from_mac, to_mac, from: target, to: ALL_NODES };
            answers.to_guest.extend(icmp(&envelope, neighbour::advertisement(&told)));
            return;
        }
        *asker = Some(packet.from);
        // As one of the pod's addresses, whatever the guest says it is: this frame passes no filter.
        let near = self.own.iter().find(|own| own.contains(gateway)).or(self.own.first());
        let Some(from) = near.map(|own| own.ip()) else { return };
        let to = solicited_node(gateway);
        let envelope = Envelope { from_mac: self.mac.octets(), to_mac: group_mac(to), from, to };
        answers.to_link.extend(icmp(&envelope, neighbour::solicitation(gateway, self.mac)));
    }
}

impl Server {
    /// What `target`, which is at `mac` for good, would answer to `packet`.
    fn tell(&self, packet: &Packet<'_>, target: Ipv6Addr, mac: MacAddr) -> Option<Vec<u8>> {
        let solicited = !packet.from.is_unspecified();
        let router = self.routers.iter().any(|router| router.address == target || router.gateway == Some(target));
        let told = Advertisement { target, mac: Some(mac), router, solicited, overrides: true };
        let (to_mac, to) = if solicited { (packet.from_mac, packet.from) } else { (group_mac(ALL_NODES), ALL_NODES) };
        icmp(&Envelope { from_mac: mac.octets(), to_mac, from: target, to }, neighbour::advertisement(&told))
    }
}

fn is_for(to_mac: [u8; 6], own: [u8; 6]) -> bool {
    to_mac == own || to_mac.starts_with(&[0x33, 0x33])
}

#[cfg(test)]
mod tests;
