//! Serves addresses to the guest behind one NIC: one task that reads packet sockets and calls the servers.
//!
//! The pod's actor makes the [`Servers`] of each NIC and spawns [`serve`] on the packet socket of its tap. The servers
//! are pure: a frame in, frames out. This module reads the guest's frames, hands each to the server of its protocol,
//! and sends the answers.
//!
//! | frame | server |
//! |---|---|
//! | ARP of the guest for a permanent neighbour of the pod's link | [`arp`] |
//! | IPv4 of the guest | [`dhcp`] |
//! | UDP over IPv6 of the guest | [`dhcp6`] |
//! | other IPv6 of the guest: router and neighbour solicitations | [`ra`] |
//! | neighbour advertisements of the network, received on the CNI's link if a router has to be found there | [`ra`] |
//! | no frame: at the start, and each [`ra::INTERVAL`] | [`ra`] |
//!
//! A guest may send as much as it likes without harm to other pods: a [`Receiver`] reads no faster than a budget
//! allows, and the servers keep no state that grows. A normal guest needs a few frames at its start and a few per
//! minute later; a guest that floods delays only itself.

mod budget;
mod receiver;

use std::convert::Infallible;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use proto::tap::{DhcpOptions, Dns, IfName, Nic};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::blocking::off_reactor;
use crate::ra::{self, Answers};
use crate::sys::link;
use crate::sys::neighbour::Neighbour;
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::netns::{Netns, NetnsError};
use crate::sys::packet::PacketSocket;
use crate::{arp, dhcp, dhcp6};

use receiver::Receiver;

const ETHERTYPE: std::ops::Range<usize> = 12..14;
const ARP: [u8; 2] = [0x08, 0x06];
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Place of the next header in a frame with an IPv6 packet.
const NEXT_HEADER: usize = 14 + 6;

/// All that answers the guest behind one NIC.
#[derive(Debug)]
pub(crate) struct Servers {
    name: IfName,
    arp: Option<arp::Server>,
    dhcp4: Option<dhcp::Server>,
    dhcp6: Option<dhcp6::Server>,
    ra: Option<ra::Server>,
}

/// Where the servers hear and speak.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// With the guest.
    pub(crate) tap: PacketSocket,
    /// With the network, to find routers in; see [`Servers::open_link`].
    pub(crate) link: Option<PacketSocket>,
}

/// Why the network cannot be asked for a router.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The namespace is not to be had.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// There is none.
    #[error("the pod's namespace is gone")]
    NoNetns,
    /// Links are not told.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// It is not there.
    #[error("link `{name}` is gone")]
    NoLink {
        /// The link.
        name: IfName,
    },
    /// The kernel refuses.
    #[error("failed to listen on link `{name}`")]
    Listen {
        /// The link.
        name: IfName,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
}

/// Answers the guest until `cancel`, then closes the sockets.
pub(crate) async fn serve(sockets: Sockets, mut servers: Servers, cancel: CancellationToken) {
    // It ends in no other way.
    let _: Option<Infallible> = cancel.run_until_cancelled(serve_frames(&sockets, &mut servers)).await;
    sockets.tap.close_off_reactor();
    if let Some(link) = sockets.link {
        link.close_off_reactor();
    }
}

async fn serve_frames(sockets: &Sockets, servers: &mut Servers) -> Infallible {
    let mut tap = Receiver::new(&sockets.tap, "guest");
    let mut link = sockets.link.as_ref().map(|link| Receiver::new(link, "network"));
    let mut due = interval(ra::INTERVAL);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let answers = tokio::select! {
            frame = tap.hear() => servers.handle_frame(frame),
            frame = hear(&mut link) => servers.handle_link_frame(frame),
            _ = due.tick() => servers.unsolicited(),
        };
        for answer in &answers.to_guest {
            send(&sockets.tap, answer).await;
        }
        for question in &answers.to_link {
            if let Some(link) = &sockets.link {
                send(link, question).await;
            }
        }
    }
}

async fn hear<'a>(ear: &'a mut Option<Receiver<'_>>) -> &'a [u8] {
    match ear {
        Some(ear) => ear.hear().await,
        None => pending().await,
    }
}

async fn send(socket: &PacketSocket, frame: &[u8]) {
    if let Err(error) = socket.send(frame).await {
        // A guest that does not take what it is sent asks again, or does without.
        tracing::debug!(%error, "answer lost");
    }
}

fn listen(name: &IfName) -> Result<PacketSocket, LinkError> {
    let links = link::links(&mut Netlink::open()?)?;
    let found = links.iter().find(|link| link.name == *name);
    let index = found.ok_or_else(|| LinkError::NoLink { name: name.clone() })?.index;
    PacketSocket::open(index, &ra::link_filter()).map_err(|cause| LinkError::Listen { name: name.clone(), cause })
}

// === impl Servers ===

impl Servers {
    /// The servers that `nic` needs, which answer for `neighbours` too; `None` if it needs none.
    pub(crate) fn of(nic: &Nic, dns: &Dns, hostname: &str, lease: Duration, neighbours: &[Neighbour]) -> Option<Self> {
        let arp = arp::Server::new(neighbours);
        let dhcp4 = dhcp::Lease::of(nic, dns, hostname, lease).map(dhcp::Server::new);
        let dhcp6 = dhcp6::Server::new(nic, dns, hostname, lease);
        let ra = ra::Server::new(nic, dns).map(|server| server.knowing(neighbours));
        let any = arp.is_some() || dhcp4.is_some() || dhcp6.is_some() || ra.is_some();
        any.then(|| Self { name: nic.name.clone(), arp, dhcp4, dhcp6, ra })
    }

    /// The same, whose DHCP tells these, too.
    pub(crate) fn telling(self, options: Option<&DhcpOptions>) -> Self {
        let dhcp4 = match options {
            Some(options) => self.dhcp4.map(|server| server.telling(options)),
            None => self.dhcp4,
        };
        Self { dhcp4, ..self }
    }

    /// The socket on the CNI's link in the namespace `netns`, if the servers need one.
    pub(crate) async fn open_link(&self, netns: &Path) -> Result<Option<PacketSocket>, LinkError> {
        if !self.ra.as_ref().is_some_and(ra::Server::needs_link) {
            return Ok(None);
        }
        let (path, name) = (netns.to_owned(), self.name.clone());
        let netns = off_reactor(move || Netns::open(&path)).await?.ok_or(LinkError::NoNetns)?;
        netns.visit(move || listen(&name)).await?.map(Some)
    }

    /// Hands an Ethernet frame of the guest to the server of its protocol.
    fn handle_frame(&mut self, frame: &[u8]) -> Answers {
        let ethertype = frame.get(ETHERTYPE).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
        let answer = match (ethertype, frame.get(NEXT_HEADER)) {
            (Some(ARP), _) => self.arp.as_ref().and_then(|server| server.handle_frame(frame)),
            (Some(IPV4), _) => self.dhcp4.as_mut().and_then(|server| server.handle_frame(frame)),
            (Some(IPV6), Some(&crate::ipv6::UDP)) => self.dhcp6.as_mut().and_then(|server| server.handle_frame(frame)),
            (Some(IPV6), _) => {
                return self.ra.as_mut().map(|server| server.handle_frame(frame)).unwrap_or_default();
            }
            _ => None,
        };
        Answers { to_guest: answer.into_iter().collect(), to_link: Vec::new() }
    }

    /// Hands on an Ethernet frame of the network.
    fn handle_link_frame(&mut self, frame: &[u8]) -> Answers {
        let to_guest = self.ra.as_mut().map(|server| server.handle_link_frame(frame)).unwrap_or_default();
        Answers { to_guest, to_link: Vec::new() }
    }

    /// What the guest is told without having asked.
    fn unsolicited(&self) -> Answers {
        let to_guest = self.ra.as_ref().map(ra::Server::unsolicited).unwrap_or_default();
        Answers { to_guest, to_link: Vec::new() }
    }
}

#[cfg(test)]
mod tests;
