//! As much of a guest as asks for a lease through its tap.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use dhcproto::v4::{DhcpOption, Message, MessageType, OptionCode};
use dhcproto::{Decodable, Decoder, Encodable};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use proto::tap::MacAddr;

/// Of the header that a tap with `IFF_VNET_HDR` puts before each frame.
const VNET_HEADER: usize = 12;
const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
const ATTEMPTS: u32 = 40;
const ATTEMPT: Duration = Duration::from_millis(500);

/// The address that is offered to `mac`. Asks again as clients do (RFC 2131, section 4.1): the kernel switches a tap's
/// transmitting side on only some time after somebody has opened it, and drops what is sent to the guest until then.
pub(super) fn discover(tap: &OwnedFd, mac: MacAddr) -> Option<Ipv4Addr> {
    let mut message = Message::default();
    message.set_chaddr(&mac.octets()).set_xid(0x1234_5678);
    message.opts_mut().insert(DhcpOption::MessageType(MessageType::Discover));
    let request = frame(mac, &message.to_vec().expect("encodes"));
    (0..ATTEMPTS).find_map(|_| {
        nix::unistd::write(tap, &request).expect("sent");
        offered(tap, message.xid())
    })
}

fn offered(tap: &OwnedFd, xid: u32) -> Option<Ipv4Addr> {
    let deadline = Instant::now() + ATTEMPT;
    while readable(tap, deadline) {
        let mut frame = vec![0; 4096];
        let len = nix::unistd::read(tap, &mut frame).expect("received");
        let Some(payload) = frame[..len].get(VNET_HEADER + ETHERNET + IPV4 + UDP..) else { continue };
        let Ok(offer) = Message::decode(&mut Decoder::new(payload)) else { continue };
        let kind = offer.opts().get(OptionCode::MessageType);
        if offer.xid() == xid && kind == Some(&DhcpOption::MessageType(MessageType::Offer)) {
            return Some(offer.yiaddr());
        }
    }
    None
}

/// Whether `fd` has something to read before `deadline`.
fn readable(fd: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).expect("short");
    poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout).expect("polled") > 0
}

/// RFC 894, 791 and 768. The UDP checksum may be zero, which is none.
fn frame(mac: MacAddr, payload: &[u8]) -> Vec<u8> {
    let udp_len = u16::try_from(UDP + payload.len()).expect("short");
    let mut ip = vec![0x45, 0];
    ip.extend((udp_len + 20).to_be_bytes());
    ip.extend([0, 0, 0, 0, 64, 17, 0, 0]);
    ip.extend(Ipv4Addr::UNSPECIFIED.octets());
    ip.extend(Ipv4Addr::BROADCAST.octets());
    let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(folded & 0xffff).expect("masked");
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = vec![0; VNET_HEADER];
    frame.extend([0xff; 6]);
    frame.extend(mac.octets());
    frame.extend([0x08, 0x00]);
    frame.extend(ip);
    for word in [68, 67, udp_len, 0] {
        frame.extend(word.to_be_bytes());
    }
    frame.extend(payload);
    frame
}
