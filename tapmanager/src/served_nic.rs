//! A NIC whose guest is served, for tests of what serves it: DHCP, DHCPv6, router advertisements, and all of them together.

use proto::tap::{DataPath, MacAddr, Nic, NicKind, Route, Tap};

/// Its address.
pub(crate) const VM: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];

/// The NIC, with addresses as `10.77.0.2/24`.
pub(crate) fn nic(addresses: &[&str], routes: &[(&str, &str)]) -> Nic {
    Nic {
        name: "eth0".parse().unwrap(),
        network: "pods".into(),
        kind: NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 }),
        mac: MacAddr::new(VM).unwrap(),
        mtu: 1450,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        routes: self::routes(routes),
    }
}

/// Destinations and gateways; a gateway that is no address is none.
pub(crate) fn routes(routes: &[(&str, &str)]) -> Vec<Route> {
    let route = |(dst, gateway): &(&str, &str)| Route { dst: dst.parse().unwrap(), gateway: gateway.parse().ok() };
    routes.iter().map(route).collect()
}
