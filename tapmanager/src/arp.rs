//! ARP server of one NIC (RFC 826): answers for the permanent neighbours of the pod's link.
//!
//! Called by [`crate::addressing`]. Pure: a frame in, a frame out. The guest's request goes out to the network as well.
//! Where plugins make permanent neighbour entries, no station on the link answers for them, or it answers what the
//! entry says.

use std::net::{IpAddr, Ipv4Addr};

use proto::tap::MacAddr;

use crate::sys::neighbour::Neighbour;

const ETHERTYPE: [u8; 2] = [0x08, 0x06];
/// IPv4 over Ethernet, and the lengths of their addresses.
const SORT: [u8; 6] = [0, 1, 0x08, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];
const REPLY: [u8; 2] = [0, 2];

/// Answers for permanent neighbours.
#[derive(Debug)]
pub(crate) struct Server {
    neighbours: Vec<(Ipv4Addr, MacAddr)>,
}

impl Server {
    /// A server for those of `neighbours` that ARP is about; `None` if there are none.
    pub(crate) fn new(neighbours: &[Neighbour]) -> Option<Self> {
        let v4 = |neighbour: &Neighbour| match neighbour.ip {
            IpAddr::V4(ip) => Some((ip, neighbour.mac)),
            IpAddr::V6(_) => None,
        };
        let neighbours: Vec<_> = neighbours.iter().filter_map(v4).collect();
        (!neighbours.is_empty()).then_some(Self { neighbours })
    }

    /// Takes an Ethernet frame of the guest; the answer is one to the guest.
    pub(crate) fn handle_frame(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let (_to, rest) = frame.split_first_chunk::<6>()?;
        let (from, rest) = rest.split_first_chunk::<6>()?;
        let request = rest.strip_prefix(&ETHERTYPE)?.strip_prefix(&SORT)?.strip_prefix(&REQUEST)?;
        let (mac, rest) = request.split_first_chunk::<6>()?;
        let (ip, rest) = rest.split_first_chunk::<4>()?;
        let target: [u8; 4] = *rest.get(6..)?.first_chunk()?;
        // Whoever asks for its own address announces it.
        if mac != from || *ip == target {
            return None;
        }
        let (_, known) = self.neighbours.iter().find(|(known, _)| known.octets() == target)?;
        let known = known.octets();
        // As if the neighbour itself had answered: a guest that bridges inside learns from it what is true.
        Some([&mac[..], &known, &ETHERTYPE, &SORT, &REPLY, &known, &target, mac, ip].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

    fn server() -> Server {
        let mac = MacAddr::new(GATEWAY).expect("a station's address");
        let of = |ip: &str| Neighbour { link: 2, ip: ip.parse().expect("an address"), mac };
        Server::new(&[of("169.254.1.1"), of("fe80::1")]).expect("one of IPv4")
    }

    fn request(ip: [u8; 4], target: [u8; 4]) -> Vec<u8> {
        [&[0xff; 6][..], &GUEST, &ETHERTYPE, &SORT, &REQUEST, &GUEST, &ip, &[0; 6], &target, &[0; 18]].concat()
    }

    #[test]
    fn a_permanent_neighbour_is_answered_for_as_by_itself() {
        let answer = server().handle_frame(&request([10, 0, 0, 2], [169, 254, 1, 1])).expect("an answer");
        let expected =
            [&GUEST[..], &GATEWAY, &ETHERTYPE, &SORT, &REPLY, &GATEWAY, &[169, 254, 1, 1], &GUEST, &[10, 0, 0, 2]];
        assert_eq!(answer, expected.concat());
        let probe = server().handle_frame(&request([0; 4], [169, 254, 1, 1]));
        assert!(probe.is_some(), "a guest that is about to take the neighbour's address is told that it is taken");
    }

    #[test]
    fn nothing_else_is_answered() {
        let asked = request([10, 0, 0, 2], [169, 254, 1, 1]);
        let patched = |at: usize, byte: u8| {
            let mut frame = asked.clone();
            frame[at] = byte;
            frame
        };
        let cases = [
            ("another neighbour", request([10, 0, 0, 2], [169, 254, 1, 2])),
            ("an announcement", request([169, 254, 1, 1], [169, 254, 1, 1])),
            ("a reply", patched(21, 2)),
            ("other hardware", patched(15, 6)),
            ("another protocol", patched(16, 0x86)),
            ("an asker that is not the sender", patched(27, 9)),
            ("IPv4", patched(13, 0)),
        ];
        for (what, frame) in cases {
            assert_eq!(server().handle_frame(&frame), None, "{what}");
        }
        for len in 0..42 {
            assert_eq!(server().handle_frame(&asked[..len]), None, "{len}");
        }
        assert!(Server::new(&[]).is_none());
    }
}
