//! Entries for fuzzers (`fuzz/`): bytes of a guest, of its network, of a plugin or of a file, into the servers and parsers that read
//! them. Each checks what must hold of whatever comes out. Nothing else calls these.
//!
//! A guest's bytes are tried as a whole frame, and as what is inside of a frame that is otherwise right, for a mutation
//! seldom leaves a whole frame right.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use proto::tap::{Dns, MacAddr, Nic};
use serde_json::json;
use sriov::Sysfs;

pub use crate::cni::exercise as cni_result;
pub use crate::cni::exercise_device as device_info;
pub use crate::plugin::exercise as sriov_pool;
pub use crate::vf::Took;

use crate::daemon::{DEV, SYSFS};
use crate::ipv6::{self, Envelope, ICMPV6};
use crate::sys::neighbour::Neighbour;
use crate::{arp, dhcp, dhcp6, ra};

const GUEST: [u8; 6] = [0x02, 0, 0, 0x77, 0, 0x0a];
const GUEST_LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x77ff, 0xfe77, 0x000a);
const GATEWAY: [u8; 6] = [0x02, 0, 0, 0x77, 0, 0x01];
const ALL_DHCP6_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const MTU: usize = 1450;
const ETHERNET: usize = 14;
const LEASE: Duration = Duration::from_secs(3600);

/// Claims the virtual function whose link is `name` in `netns`, and gives it back; notes are made in `state`. For benches.
///
/// # Errors
/// When it is refused or fails, in words.
pub fn function(vf: &str, netns: &Path, name: &str, state: &Path) -> Result<Took, String> {
    crate::vf::exercise(Sysfs::new(Path::new(SYSFS), Path::new(DEV)), vf, netns, name, state)
}

/// The DHCPv4 server of a NIC.
///
/// # Panics
/// When an answer is longer than a frame of the NIC, or is not to its guest.
pub fn dhcp4(bytes: &[u8]) {
    let (nic, dns) = (nic(), dns());
    let lease = dhcp::Lease::of(&nic, &dns, "guest", LEASE).expect("the NIC has an IPv4 address");
    let mut server = dhcp::Server::new(lease);
    for frame in [bytes, &request4(bytes)] {
        let answer = server.handle_frame(frame);
        answer.iter().for_each(|answer| check(answer));
    }
}

/// The DHCPv6 server of a NIC.
///
/// # Panics
/// As [`dhcp4`].
pub fn dhcp6(bytes: &[u8]) {
    let Some(mut server) = dhcp6::Server::new(&nic(), &dns(), "guest", LEASE) else { return };
    let envelope =
        Envelope { from_mac: GUEST, to_mac: [0x33, 0x33, 0, 1, 0, 2], from: GUEST_LINK_LOCAL, to: ALL_DHCP6_SERVERS };
    let wrapped = ipv6::udp(&envelope, 546, 547, bytes);
    for frame in std::iter::once(bytes).chain(wrapped.as_deref()) {
        let answer = server.handle_frame(frame);
        answer.iter().for_each(|answer| check(answer));
    }
}

/// ARP, router advertisements and neighbour discovery of a NIC; the bytes come from the guest, and then from the network.
///
/// # Panics
/// As [`dhcp4`], and when what goes to the network does not come from the guest's own addresses.
pub fn neighbours(bytes: &[u8]) {
    let known = [Ipv4Addr::new(169, 254, 1, 1).into(), Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9).into()]
        .map(|ip| Neighbour { link: 2, ip, mac: MacAddr::new(GATEWAY).expect("a station's address") });
    if let Some(server) = arp::Server::new(&known) {
        let asked = [&[0xff; 6][..], &GUEST, &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1], &GUEST, bytes].concat();
        let answers = [bytes, &asked].into_iter().filter_map(|frame| server.handle_frame(frame));
        answers.for_each(|answer| assert_eq!(answer.len(), ETHERNET + 28, "not an answer: {answer:x?}"));
    }
    let Some(server) = ra::Server::new(&nic(), &dns()) else { return };
    let mut server = server.knowing(&known);
    let to = ipv6::ALL_NODES;
    let guest = Envelope { from_mac: GUEST, to_mac: ipv6::group_mac(to), from: GUEST_LINK_LOCAL, to };
    let gateway =
        Envelope { from_mac: GATEWAY, to_mac: GUEST, from: Ipv6Addr::new(0xfd00, 0x77, 0, 0, 0, 0, 0, 1), to };
    let [from_guest, from_link] = [guest, gateway].map(|envelope| ipv6::icmp(&envelope, bytes.to_vec()));
    for frame in std::iter::once(bytes).chain(from_guest.as_deref()) {
        let answers = server.handle_frame(frame);
        answers.to_guest.iter().for_each(|answer| check(answer));
        for asked in &answers.to_link {
            let packet = ipv6::parse(asked).expect("own frames can be read");
            assert!(packet.from_mac == GUEST && packet.next_header == ICMPV6, "not the guest's: {packet:?}");
            assert!(packet.from.segments().starts_with(&[0xfd00, 0x77]), "not an address of the guest: {packet:?}");
        }
    }
    for frame in std::iter::once(bytes).chain(from_link.as_deref()) {
        server.handle_link_frame(frame).iter().for_each(|answer| check(answer));
    }
}

fn check(answer: &[u8]) {
    assert!(answer.len() <= ETHERNET + MTU, "longer than a frame: {} bytes", answer.len());
    let to = answer.first_chunk::<6>().expect("a frame has a destination");
    let to_many = *to == [0xff; 6] || to.starts_with(&[0x33, 0x33]);
    assert!(*to == GUEST || to_many, "not to the guest: {to:x?}");
}

/// A frame of the guest with `payload` to all DHCP servers. Checksums are not looked at.
fn request4(payload: &[u8]) -> Vec<u8> {
    let len = |more: usize| u16::try_from(more + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let (total, udp) = (len(28), len(8));
    let mut frame = [&[0xff; 6][..], &GUEST, &[0x08, 0x00, 0x45, 0], &total, &[0, 0, 0, 0, 64, 17, 0, 0]].concat();
    frame.extend([0, 0, 0, 0, 255, 255, 255, 255, 0, 68, 0, 67]);
    frame.extend(udp);
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn nic() -> Nic {
    let mac = MacAddr::new(GUEST).expect("a station's address");
    serde_json::from_value(json!({
        "name": "eth0", "mac": mac, "mtu": MTU, "queues": 1,
        "addresses": ["10.77.0.10/24", "fd00:77::a/64"],
        "routes": [
            {"dst": "10.99.0.0/16", "gateway": "10.77.0.1"},
            {"dst": "0.0.0.0/0", "gateway": "10.77.0.1"},
            {"dst": "fd00:99::/48", "gateway": "fe80::77"},
            {"dst": "::/0", "gateway": "fd00:77::1"},
        ],
    }))
    .expect("a constant NIC")
}

fn dns() -> Dns {
    Dns {
        servers: vec![[10, 96, 0, 10].into(), Ipv6Addr::new(0xfd00, 0x96, 0, 0, 0, 0, 0, 10).into()],
        searches: vec!["default.svc.cluster.test".to_owned(), "svc.cluster.test".to_owned()],
        options: vec!["ndots:5".to_owned()],
    }
}
