//! One NIC's servers: who answers what, at which pace, and what real clients make of it ([`clients`], on [`bed`]).

mod bed;
mod clients;

use proto::tap::{DataPath, Route};

use super::*;

const MAC: &str = "02:00:00:00:00:01";

fn nic(addresses: &[&str], routes: &[(&str, &str)]) -> Nic {
    Nic {
        name: "eth0".parse().unwrap(),
        network: "pods".into(),
        data_path: DataPath::Tc,
        mac: MAC.parse().unwrap(),
        mtu: 1450,
        queues: 1,
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        routes: routes
            .iter()
            .map(|(dst, gateway)| Route { dst: dst.parse().unwrap(), gateway: gateway.parse().ok() })
            .collect(),
    }
}

fn dns() -> Dns {
    Dns {
        servers: vec!["10.96.0.10".parse().unwrap()],
        searches: ["default.svc.cluster.local", "svc.cluster.local", "cluster.local"].map(str::to_owned).to_vec(),
        options: vec!["ndots:5".to_owned()],
    }
}

const DAY: Duration = Duration::from_secs(86_400);

fn servers(nic: &Nic, lease: Duration) -> Servers {
    Servers::of(nic, &dns(), "web-0", lease).unwrap()
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

#[test]
fn a_nic_without_addresses_needs_no_servers() {
    assert!(Servers::of(&nic(&[], &[]), &dns(), "web-0", DAY).is_none());
}

#[test]
fn short_and_foreign_frames_get_no_answer() {
    let mut servers = bridged();
    for frame in [&[][..], &[0; 13], &[0xff; 14], &[[0; 12], [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat()] {
        assert_eq!(servers.handle_frame(frame), Vec::<Vec<u8>>::new(), "{frame:?}");
    }
}
