//! Which IP addresses can be a pod's: those of one station that others reach over a network. Pure.

use std::net::{IpAddr, Ipv4Addr};

/// What sort of address this is if it can be no pod's: it leads back to whoever connects to it, to many, or to whatever link it
/// is tried on. That it is the node's own is not seen here.
#[must_use]
pub fn unfit_for_pod(address: IpAddr) -> Option<&'static str> {
    // The kernel connects to ::ffff:127.0.0.1 by IPv4.
    let address = address.to_canonical();
    let (none, link_local) = match address {
        // "This network" (RFC 1122, 3.2.1.3): Linux takes 0.0.0.0 for itself.
        IpAddr::V4(v4) => (v4.octets()[0] == 0, v4.is_link_local()),
        IpAddr::V6(v6) => (v6.is_unspecified(), v6.is_unicast_link_local()),
    };
    let sorts = [
        (none, "an unspecified address"),
        (address.is_loopback(), "a loopback address"),
        (link_local, "a link-local address"),
        (address.is_multicast(), "a multicast address"),
        (address == Ipv4Addr::BROADCAST, "the broadcast address"),
    ];
    sorts.into_iter().find(|(is_so, _)| *is_so).map(|(_, sort)| sort)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_to_no_one_station_of_a_network_is_named() {
        for (address, sort) in [
            ("0.0.0.0", "an unspecified address"),
            ("0.1.2.3", "an unspecified address"),
            ("::", "an unspecified address"),
            ("127.0.0.1", "a loopback address"),
            ("127.255.0.9", "a loopback address"),
            ("::1", "a loopback address"),
            ("169.254.169.254", "a link-local address"),
            ("fe80::1", "a link-local address"),
            ("febf::1", "a link-local address"),
            ("224.0.0.1", "a multicast address"),
            ("ff02::1", "a multicast address"),
            ("255.255.255.255", "the broadcast address"),
            ("::ffff:127.0.0.1", "a loopback address"),
            ("::ffff:0.0.0.0", "an unspecified address"),
            ("::ffff:169.254.169.254", "a link-local address"),
        ] {
            assert_eq!(unfit_for_pod(address.parse().expect("an address")), Some(sort), "{address}");
        }
        for address in
            ["10.1.0.2", "192.168.1.1", "100.64.0.1", "203.0.113.9", "fd00::2", "2001:db8::1", "::ffff:10.1.0.2"]
        {
            assert_eq!(unfit_for_pod(address.parse().expect("an address")), None, "{address}");
        }
    }
}
