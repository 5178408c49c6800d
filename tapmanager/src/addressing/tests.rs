//! One NIC's servers: who answers what, at which pace, and what real clients make of it ([`clients`], on [`bed`]).

mod bed;
mod clients;
mod clients6;
mod flood;

use std::net::Ipv6Addr;

use proto::tap::MacAddr;

use super::*;
use crate::served_nic::nic;

/// Of [`nic`].
const MAC: &str = "02:00:00:00:00:01";

fn dns() -> Dns {
    Dns {
        servers: ["10.96.0.10", "fd00:10::10"].map(|server| server.parse().unwrap()).to_vec(),
        searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(str::to_owned).to_vec(),
        options: vec!["ndots:5".to_owned()],
    }
}

/// A broadcast DISCOVER of the guest.
fn discover(xid: u32) -> Vec<u8> {
    let mac: MacAddr = MAC.parse().unwrap();
    let mut message = vec![0; 240];
    message[..4].copy_from_slice(&[1, 1, 6, 0]);
    message[4..8].copy_from_slice(&xid.to_be_bytes());
    message[28..34].copy_from_slice(&mac.octets());
    message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
    message.extend([53, 1, 1, 255]);
    let len = |headers: usize| u16::try_from(headers + message.len()).unwrap().to_be_bytes();
    let ip = [&[0x45, 0][..], &len(28), &[0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255]].concat();
    [&[0xff; 6][..], &mac.octets(), &IPV4, &ip, &[0, 68, 0, 67], &len(8), &[0, 0], &message].concat()
}

fn router_solicitation() -> Vec<u8> {
    let mac: MacAddr = MAC.parse().unwrap();
    let to = "ff02::2".parse::<Ipv6Addr>().unwrap().octets();
    let header = [&[0x60, 0, 0, 0, 0, 8, 58, 255][..], &link_local(mac).octets(), &to].concat();
    [&[0x33, 0x33, 0, 0, 0, 2][..], &mac.octets(), &IPV6, &header, &[133, 0, 0, 0, 0, 0, 0, 0]].concat()
}

/// As most guests make it (RFC 4291 appendix A).
fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.octets();
    let id = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from(u128::from(u64::from_be_bytes(id)) | 0xfe80 << 112)
}

const DAY: Duration = Duration::from_secs(86_400);

fn servers(nic: &Nic, lease: Duration) -> Servers {
    Servers::of(nic, &dns(), "web-0", lease, &[]).unwrap()
}

/// As the bridge plugin makes them.
fn bridged() -> Servers {
    servers(&nic(&["10.77.0.2/24"], &[("10.77.0.0/24", ""), ("0.0.0.0/0", "10.77.0.1")]), DAY)
}

/// As ptp makes them, with one more route.
fn alone(lease: Duration) -> Servers {
    let routes = [
        ("10.77.0.1/32", ""),
        ("10.77.0.0/24", "10.77.0.1"),
        ("172.16.0.0/12", "10.77.0.1"),
        ("0.0.0.0/0", "10.77.0.1"),
    ];
    servers(&nic(&["10.77.0.2/24"], &routes), lease)
}

/// As the bridge plugin makes them.
fn bridged6() -> Servers {
    servers(&nic(&["fd00::2/64"], &[("fd00::/64", ""), ("::/0", "fd00::1")]), DAY)
}

/// As Calico makes them.
fn alone6() -> Servers {
    servers(&nic(&["fd00::2/128"], &[("::/0", "fe80::1")]), DAY)
}

#[test]
fn a_nic_without_addresses_needs_no_servers() {
    assert!(Servers::of(&nic(&[], &[]), &dns(), "web-0", DAY, &[]).is_none());
}

#[test]
fn short_and_foreign_frames_get_no_answer() {
    let mut servers = bridged();
    for frame in [&[][..], &[0; 13], &[0xff; 14], &[[0; 12], [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat()] {
        assert_eq!(servers.handle_frame(frame), Answers::default(), "{frame:?}");
    }
}

/// Of UDP to this port, without a payload, as far as the dispatcher looks.
fn udp6(port: u16) -> Vec<u8> {
    let mac: MacAddr = MAC.parse().unwrap();
    let ports = [546_u16.to_be_bytes(), port.to_be_bytes(), 8_u16.to_be_bytes(), [0, 0]].concat();
    let to = "ff02::1:2".parse::<Ipv6Addr>().unwrap().octets();
    let header = [&[0x60, 0, 0, 0, 0, 8, 17, 1][..], &link_local(mac).octets(), &to].concat();
    [&[0x33, 0x33, 0, 1, 0, 2][..], &mac.octets(), &IPV6, &header, &ports].concat()
}

#[test]
fn each_protocol_has_its_server() {
    let v4 = || servers(&nic(&["10.77.0.2/24"], &[]), DAY);
    let v6 = || servers(&nic(&["fd00::2/64"], &[("::/0", "fe80::1")]), DAY);
    let has = |servers: Servers| (servers.dhcp4.is_some(), servers.dhcp6.is_some(), servers.ra.is_some());
    assert_eq!(has(v4()), (true, false, false));
    assert_eq!(has(v6()), (false, true, true));
    for (what, frame, answers) in [
        ("DISCOVER", discover(1), [1, 0]),
        ("router solicitation", router_solicitation(), [0, 1]),
        ("DHCPv6 that says nothing", udp6(547), [0, 0]),
    ] {
        let heard = |mut servers: Servers| servers.handle_frame(&frame).to_guest.len();
        assert_eq!([heard(v4()), heard(v6())], answers, "{what}");
    }
    assert!(v4().unsolicited().to_guest.is_empty());
    assert_eq!(v6().unsolicited().to_guest.len(), 1);
}
