//! DHCPv6 server of one NIC: gives the guest the addresses that the CNI plugins gave its pod. RFC 8415, 3646, 4704.
//!
//! Called by [`crate::addressing`]; routes come by [`crate::ra`]. [`Server`] is pure: a frame in, a frame out, no
//! clock. It has one client, whose MAC address it knows beforehand, whatever DUID the client has; the client keeps its
//! addresses for as long as the pod lives. So there is no state, no lease ever ends, and a restart of the daemon loses
//! nothing. The server's DUID is made of the NIC's MAC address.
//!
//! | message | answer |
//! |---|---|
//! | Solicit | Advertise of the highest preference, as there is no other server; Reply if a rapid commit is asked for |
//! | Request, Renew, Rebind | Reply with the addresses; those of somebody else with lifetimes of zero |
//! | Confirm | Success, or NotOnLink if any address is not the guest's: a copied disk remembers those of another pod |
//! | Release | Success, and the addresses stay the guest's; NoBinding for others |
//! | Decline | the same, and the first one is told in the log |
//! | Information-request | resolvers and search domains |
//! | others | none: they are not for servers, and Relay-forward is not for this one, which has its client on its link |
//!
//! Prefixes are not delegated and temporary addresses not given: both are said in the association's status. Messages to
//! the server's own address get no answer: it has never told one (Server Unicast option), so none is due, and the
//! status that RFC 8415 had for this, UseMulticast, is obsolete in its successor.

mod associations;
mod reply;
mod request;

use std::net::Ipv6Addr;
use std::time::Duration;

use proto::tap::{Dns, Nic};

use crate::ipv6::{Envelope, SERVER_MAC, UDP, UDP_HEADER, parse, udp};

use associations::Lease;
use request::{Kind, Request};

/// RFC 8415 sections 7.1 and 7.2.
const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const SERVER_PORT: u16 = 547;
const CLIENT_PORT: u16 = 546;
/// Where answers come from. No station's: nothing is sent there.
const SERVER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x7669, 0x7274, 2);

/// Answers the one client of a NIC.
#[derive(Debug)]
pub(crate) struct Server {
    lease: Lease,
    /// Whether the guest was heard to refuse an address: told once in the log, however often the guest says it.
    declined: bool,
}

// === impl Server ===

impl Server {
    /// A server of this NIC, whose client may go on for the length of `lease` without asking again; `None` if it has no
    /// IPv6 address.
    pub(crate) fn new(nic: &Nic, dns: &Dns, hostname: &str, lease: Duration) -> Option<Self> {
        Some(Self { lease: Lease::of(nic, dns, hostname, lease)?, declined: false })
    }

    /// Takes an Ethernet frame of the guest; the answer is one to the guest, if it is to have any.
    pub(crate) fn handle_frame(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let own = self.lease.mac.octets();
        let packet = parse(frame)?;
        let for_us = packet.from_mac == own && packet.to == ALL_SERVERS && packet.next_header == UDP;
        if !for_us || packet.from.is_unspecified() || packet.from.is_multicast() {
            return None;
        }
        let payload = datagram(packet.payload)?;
        let request = Request::parse(payload, &self.lease.duid)?;
        tracing::trace!(mac = %self.lease.mac, kind = ?request.kind, "dhcpv6 request");
        if request.kind == Kind::Decline && !self.declined {
            self.declined = true;
            tracing::warn!(mac = %self.lease.mac, "guest refuses an address: it saw another machine use it");
        }
        let reply = reply::encode(&self.lease, &request)?;
        let envelope = Envelope { from_mac: SERVER_MAC, to_mac: own, from: SERVER, to: packet.from };
        udp(&envelope, SERVER_PORT, CLIENT_PORT, &reply)
    }
}

/// What is in a datagram to the server's port.
fn datagram(datagram: &[u8]) -> Option<&[u8]> {
    let (&[_, _, port_high, port_low, len_high, len_low, _, _], _) = datagram.split_first_chunk::<UDP_HEADER>()?;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let port = u16::from_be_bytes([port_high, port_low]);
    datagram.get(UDP_HEADER..len).filter(|_| port == SERVER_PORT)
}

#[cfg(test)]
mod tests;
