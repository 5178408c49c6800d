//! IP addresses as route netlink has them, where each is of a family.

use std::net::IpAddr;

use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteAddress;

/// The family of `ip`.
pub(crate) fn family_of(ip: IpAddr) -> AddressFamily {
    if ip.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// The address, if it is one of IP.
pub(super) fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}
