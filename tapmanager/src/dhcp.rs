//! DHCPv4 server of one NIC: tells the guest what the CNI plugins gave its pod. RFC 2131, 2132, 3397, 3442, 6842.
//!
//! [`crate::addressing`] makes a [`Lease`] of each NIC and hands the guest's frames to its [`Server`], which is pure: a
//! frame in, a frame out, no clock. It has one client, whose MAC address it knows beforehand, and one address, which
//! the client keeps for as long as the pod lives. So no lease ever ends, and a restart of the daemon loses nothing.
//!
//! The server identifies itself by the gateway's address: a client renews by unicast to that address, and only the
//! gateway answers ARP in the pod's network. The tap's filters keep the renewal from reaching the gateway.

mod frame;
mod lease;
mod reply;
mod request;

use std::net::Ipv4Addr;

use dhcproto::v4::MessageType;
use proto::tap::{DhcpOptions, MacAddr};

pub(crate) use lease::Lease;

use frame::{Datagram, Envelope};
use reply::Answer;
use request::Request;

const BROADCAST_MAC: [u8; 6] = [0xff; 6];
/// Source of answers to broadcasts. Locally administered, and no station's: nothing is sent back to it, as all that the
/// guest sends to the server goes to the gateway's address.
const SERVER_MAC: [u8; 6] = [0x02, 0x76, 0x69, 0x72, 0x74, 0x01];

/// Answers the one client of a lease.
#[derive(Debug)]
pub(crate) struct Server {
    lease: Lease,
    /// Whether the guest was heard to refuse its address: told once in the log, however often the guest says it.
    declined: bool,
}

// === impl Server ===

impl Server {
    /// A server of this lease and nothing else.
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease, declined: false }
    }

    /// The same, which tells these options, too.
    pub(crate) fn telling(self, options: &DhcpOptions) -> Self {
        Self { lease: self.lease.telling(options), ..self }
    }

    /// Takes an Ethernet frame of the guest; the answer is one to the guest, if it is to have any.
    pub(crate) fn handle_frame(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let datagram = frame::parse(frame)?;
        let for_us = datagram.to.is_broadcast() || datagram.to == self.lease.server_id;
        if datagram.from_mac != self.lease.mac.octets() || !for_us {
            return None;
        }
        let request = Request::parse(datagram.payload)?;
        if request.chaddr != self.lease.mac.octets() {
            return None;
        }
        let answer = self.decide(&request)?;
        tracing::trace!(mac = %self.lease.mac, kind = ?request.kind, ?answer, "dhcp request");
        let payload = reply::encode(answer, &self.lease, &request)?;
        frame::build(&self.envelope(answer, &datagram, &request), &payload)
    }

    /// RFC 2131 section 4.3.
    fn decide(&mut self, request: &Request) -> Option<Answer> {
        match request.kind {
            MessageType::Discover => Some(Answer::Offer),
            MessageType::Request => self.decide_request(request),
            MessageType::Inform => Some(Answer::Inform),
            MessageType::Decline if !self.declined => {
                self.declined = true;
                tracing::warn!(
                    mac = %self.lease.mac,
                    address = %self.lease.address,
                    "guest refuses its address: it saw another machine use it"
                );
                None
            }
            // The address stays the guest's in any case.
            MessageType::Release => {
                tracing::debug!(mac = %self.lease.mac, "guest released its address");
                None
            }
            _ => None,
        }
    }

    fn decide_request(&self, request: &Request) -> Option<Answer> {
        if request.server.is_some_and(|server| server != self.lease.server_id) {
            return None; // another server was chosen
        }
        // Without `ciaddr` the client is choosing an offer or has rebooted; with it, it renews or rebinds.
        let renewed = Some(request.ciaddr).filter(|address| !address.is_unspecified());
        let wanted = renewed.or(request.wanted)?;
        Some(if wanted == self.lease.address.ip() { Answer::Ack } else { Answer::Nak })
    }

    /// RFC 2131 section 4.1: how a client that may have no address yet is reached.
    fn envelope(&self, answer: Answer, datagram: &Datagram<'_>, request: &Request) -> Envelope {
        let own = self.lease.mac.octets();
        let (to_mac, to) = if answer == Answer::Nak {
            (BROADCAST_MAC, Ipv4Addr::BROADCAST)
        } else if !request.ciaddr.is_unspecified() {
            (own, request.ciaddr)
        } else if request.flags.broadcast() || answer == Answer::Inform {
            (BROADCAST_MAC, Ipv4Addr::BROADCAST)
        } else {
            (own, self.lease.address.ip())
        };
        // What was sent to a station is answered by that station, the gateway: a guest that bridges inside learns from
        // it what is true anyway.
        let is_station = MacAddr::new(datagram.to_mac).is_ok() && datagram.to_mac != own;
        let from_mac = if is_station { datagram.to_mac } else { SERVER_MAC };
        Envelope { from_mac, to_mac, from: self.lease.server_id, to }
    }
}

#[cfg(test)]
mod tests;
