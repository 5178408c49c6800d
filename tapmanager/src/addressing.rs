//! Addressing of one NIC's guest: one packet socket, one task, and the servers that answer on it.
//!
//! The pod's actor makes the [`Servers`] of each NIC and spawns [`serve`] on the packet socket of its tap. The servers are
//! pure, a frame in, frames out; this is the edge around them: it reads the guest's frames, hands each to the server of
//! its protocol and sends the answers.
//!
//! A guest may send as much as it likes, and other pods must not notice. So the task reads only what a [`Budget`] grants:
//! [`BURST`] frames at once, then one each [`REFILL`]. What comes faster waits in the socket's small buffer, and beyond
//! that the kernel drops it: neither the memory nor the time that one guest can cost grows with what it sends. An honest
//! guest needs a few frames at its start and a few per minute later; one that floods delays itself alone.

mod budget;

use std::io;
use std::time::{Duration, Instant};

use proto::tap::{Dns, MacAddr, Nic};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::dhcp;
use crate::sys::packet::PacketSocket;

use budget::Budget;

/// Longest frame that is read, with its Ethernet header: what is asked here is far shorter on links of any MTU.
const MAX_FRAME: usize = 14 + 1500;
/// How many failures to receive in a row end the service. One comes each time the link goes down.
const MAX_ERRORS: u32 = 64;
/// Frames that are taken as fast as they come: more than a boot with all of its clients.
const BURST: u32 = 64;
/// One more frame is taken each time that this has passed.
const REFILL: Duration = Duration::from_millis(25);

const ETHERTYPE: std::ops::Range<usize> = 12..14;
const IPV4: [u8; 2] = [0x08, 0x00];

/// All that answers the guest behind one NIC.
#[derive(Debug)]
pub(crate) struct Servers {
    mac: MacAddr,
    dhcp4: Option<dhcp::Server>,
}

/// Answers the guest on `socket` until `cancel`, or until the socket keeps failing; then closes the socket.
pub(crate) async fn serve(socket: PacketSocket, mut servers: Servers, cancel: CancellationToken) {
    let served = cancel.run_until_cancelled(serve_frames(&socket, &mut servers)).await;
    if let Some(error) = served {
        tracing::error!(mac = %servers.mac, %error, "the guest is addressed no more: its socket keeps failing");
    }
    socket.close_off_reactor();
}

async fn serve_frames(socket: &PacketSocket, servers: &mut Servers) -> io::Error {
    let mut buffer = [0; MAX_FRAME];
    let mut budget = Budget::new(BURST, REFILL, Instant::now());
    let mut throttled = false;
    let mut errors = 0;
    loop {
        let wait = budget.spend(Instant::now());
        if !wait.is_zero() {
            if !throttled {
                throttled = true;
                tracing::warn!(mac = %servers.mac, "guest floods the servers of its address; it is heard more slowly");
            }
            sleep(wait).await;
        }
        match socket.recv(&mut buffer).await {
            Ok(len) => {
                errors = 0;
                for answer in buffer.get(..len).map(|frame| servers.handle_frame(frame)).unwrap_or_default() {
                    send(socket, &answer, servers.mac).await;
                }
            }
            Err(error) if errors == MAX_ERRORS => return error,
            Err(error) => {
                errors += 1;
                tracing::debug!(mac = %servers.mac, %error, "packet socket failed");
            }
        }
    }
}

async fn send(socket: &PacketSocket, frame: &[u8], mac: MacAddr) {
    if let Err(error) = socket.send(frame).await {
        // A guest that does not take what it is sent asks again, or does without.
        tracing::debug!(%mac, %error, "answer lost");
    }
}

// === impl Servers ===

impl Servers {
    /// The servers that `nic` needs; `None` if it has no address to tell.
    pub(crate) fn of(nic: &Nic, dns: &Dns, hostname: &str, lease: Duration) -> Option<Self> {
        let dhcp4 = dhcp::Lease::of(nic, dns, hostname, lease).map(dhcp::Server::new);
        let servers = Self { mac: nic.mac, dhcp4 };
        servers.dhcp4.is_some().then_some(servers)
    }

    /// Hands an Ethernet frame of the guest to the server of its protocol; the answers are frames to the guest.
    fn handle_frame(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let ethertype = frame.get(ETHERTYPE).and_then(|bytes| <[u8; 2]>::try_from(bytes).ok());
        match ethertype {
            Some(IPV4) => self.dhcp4.as_mut().and_then(|server| server.handle_frame(frame)).into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
