//! Which addresses connections may go to.
//!
//! The address that a name resolved to is checked at every hop, so no redirect, resolver or odd spelling leads to the
//! node's metadata service or to a network that the operator denied.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;
use serde::Deserialize;

/// What the operator allows. Addresses that only this machine's own links reach, and metadata services of clouds, are
/// denied whatever it says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetPolicy {
    /// Addresses of this machine itself; default no.
    pub allow_loopback: bool,
    /// Addresses of private networks; default yes.
    pub allow_private: bool,
    /// Further networks that are denied.
    pub deny: Vec<IpNetwork>,
}

impl Default for NetPolicy {
    fn default() -> Self {
        Self { allow_loopback: false, allow_private: true, deny: Vec::new() }
    }
}

/// Metadata services of large clouds that are not link-local.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

impl NetPolicy {
    /// Whether the address of a server is allowed.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        faces(address).into_iter().all(|face| {
            !is_never(face)
                && (self.allow_loopback || !face.is_loopback())
                && (self.allow_private || !is_private(face))
                && !self.denies(face)
        })
    }

    /// Whether the address of a proxy is allowed: the operator named it, so it may be on this machine.
    #[must_use]
    pub fn allows_proxy(&self, address: IpAddr) -> bool {
        faces(address).into_iter().all(|face| !is_never(face) && !self.denies(face))
    }

    fn denies(&self, address: IpAddr) -> bool {
        self.deny.iter().any(|network| network.contains(address))
    }
}

/// An address, and the IPv4 addresses that packets to it may end at if the network translates.
fn faces(address: IpAddr) -> Vec<IpAddr> {
    let IpAddr::V6(v6) = address else { return vec![address] };
    let bytes = v6.octets();
    let v4 = |at: [usize; 4]| IpAddr::V4(Ipv4Addr::from(at.map(|at| bytes[at])));
    let last = v4([12, 13, 14, 15]);
    match v6.segments() {
        // ::1 and :: are what they are, not IPv4.
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => vec![address],
        // Mapped and compatible (RFC 4291, 2.5.5).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] => vec![last, address],
        // NAT64 (RFC 6052, 2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![last, address],
        // NAT64 of an operator's own (RFC 8215), who may have taken any part of the prefix (RFC 6052, 2.2).
        [0x64, 0xff9b, 1, ..] => {
            let forms = [([6, 7, 9, 10], 11), ([7, 9, 10, 11], 12), ([9, 10, 11, 12], 13)];
            let forms =
                forms.into_iter().filter(|(_, rest)| bytes[8] == 0 && bytes[*rest..].iter().all(|byte| *byte == 0));
            let all = forms.map(|(at, _)| v4(at)).chain([last]);
            // What begins with 0 is the filling of another form.
            all.filter(|v4| matches!(v4, IpAddr::V4(v4) if v4.octets()[0] != 0)).chain([address]).collect()
        }
        // 6to4 (RFC 3056, 2).
        [0x2002, ..] => vec![v4([2, 3, 4, 5]), address],
        _ => vec![address],
    }
}

fn is_never(address: IpAddr) -> bool {
    METADATA.contains(&address)
        || match address {
            // "This network" (RFC 1122, 3.2.1.3): Linux takes 0.0.0.0 for itself.
            IpAddr::V4(v4) => {
                v4.octets()[0] == 0 || v4.is_link_local() || v4.is_multicast() || v4 == Ipv4Addr::BROADCAST
            }
            IpAddr::V6(v6) => v6.is_unspecified() || v6.is_unicast_link_local() || v6.is_multicast(),
        }
}

fn is_private(address: IpAddr) -> bool {
    match address {
        // Also those shared by carriers (RFC 6598).
        IpAddr::V4(v4) => v4.is_private() || (v4.octets()[0] == 100 && v4.octets()[1] & 0xc0 == 64),
        // Also site-local ones, of old (RFC 3879).
        IpAddr::V6(v6) => v6.is_unique_local() || v6.segments()[0] & 0xffc0 == 0xfec0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_addresses_are_never_allowed() {
        let open = NetPolicy { allow_loopback: true, ..NetPolicy::default() };
        let never = [
            "169.254.169.254",
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fe80::1",
            "::",
            "ff02::1",
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b:1::a9fe:a9fe",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "64:ff9b::169.254.169.254",
            "2002:a9fe:a9fe::1",
            "::ffff:0.0.0.0",
            "fd00:ec2::254",
            "fd20:ce::254",
        ];
        for address in never {
            let address = address.parse().expect("an address");
            assert!(!open.allows(address) && !open.allows_proxy(address), "{address}");
        }
        let others = ["127.0.0.1", "10.0.0.1", "192.0.2.1", "::1", "2001:db8::1", "fd00::1", "::ffff:10.0.0.1"];
        for address in others {
            let address = address.parse().expect("an address");
            assert!(open.allows(address) && open.allows_proxy(address), "{address}");
        }
    }

    #[test]
    fn the_operator_opens_and_closes_the_rest() {
        let default = NetPolicy::default();
        let strict = NetPolicy {
            allow_private: false,
            deny: vec!["203.0.113.0/24".parse().expect("a net"), "2001:db8:1::/48".parse().expect("a net")],
            ..NetPolicy::default()
        };
        // Allowed by default, by the strict one, and as a proxy of the strict one.
        let cases = [
            ("127.0.0.1", false, false, true),
            ("127.9.9.9", false, false, true),
            ("::1", false, false, true),
            ("::ffff:127.0.0.1", false, false, true),
            ("64:ff9b::7f00:1", false, false, true),
            ("10.1.2.3", true, false, true),
            ("172.16.0.1", true, false, true),
            ("172.32.0.1", true, true, true),
            ("192.168.0.1", true, false, true),
            ("100.64.0.1", true, false, true),
            ("100.128.0.1", true, true, true),
            ("fd12::1", true, false, true),
            ("fec0::1", true, false, true),
            ("::ffff:192.168.0.1", true, false, true),
            ("2002:c0a8:1::1", true, false, true),
            ("203.0.113.9", true, false, false),
            ("::ffff:203.0.113.9", true, false, false),
            ("203.0.114.9", true, true, true),
            ("2001:db8:1::5", true, false, false),
            ("2001:db8:2::5", true, true, true),
        ];
        for (text, by_default, by_strict, as_proxy) in cases {
            let address = text.parse().expect("an address");
            assert_eq!(default.allows(address), by_default, "{text}");
            assert_eq!(strict.allows(address), by_strict, "{text}");
            assert_eq!(strict.allows_proxy(address), as_proxy, "{text}");
        }
    }
}
