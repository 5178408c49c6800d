use super::*;
use crate::served_nic::nic;

fn lease(nic: &Nic) -> Lease {
    let dns = Dns {
        servers: ["10.96.0.10", "fd00::10"].map(|server| server.parse().unwrap()).to_vec(),
        searches: ["ns.svc.cluster.local", "corp.example."].map(str::to_owned).to_vec(),
        options: vec!["ndots:5".to_owned()],
    };
    Lease::of(nic, &dns, "web-0", Duration::from_secs(3600)).unwrap()
}

/// Address, server, routers and routes in one line.
fn network(nic: &Nic) -> String {
    let lease = lease(nic);
    let routes: Vec<_> = lease.routes.iter().map(|(dst, hop)| format!("{dst} {hop}")).collect();
    let routers: Vec<_> = lease.routers.iter().map(Ipv4Addr::to_string).collect();
    format!("{} by {}; {}; {}", lease.address, lease.server_id, routers.join(" "), routes.join(", "))
}

#[test]
fn all_of_a_nic_is_told() {
    let lease = lease(&nic(&["fd00::2/64", "10.77.0.2/24"], &[("0.0.0.0/0", "10.77.0.1"), ("::/0", "fd00::1")]));
    let expected = Lease {
        mac: "02:00:00:00:00:01".parse().unwrap(),
        address: "10.77.0.2/24".parse().unwrap(),
        server_id: Ipv4Addr::new(10, 77, 0, 1),
        routers: vec![Ipv4Addr::new(10, 77, 0, 1)],
        routes: vec![],
        mtu: 1450,
        dns: vec![Ipv4Addr::new(10, 96, 0, 10)],
        searches: vec!["ns.svc.cluster.local".to_owned(), "corp.example".to_owned()],
        hostname: "web-0".to_owned(),
        lease: Duration::from_secs(3600),
        said: Vec::new(),
    };
    assert_eq!(lease, expected);
}

#[test]
fn a_nic_without_ipv4_has_no_lease() {
    assert_eq!(Lease::of(&nic(&["fd00::2/64"], &[]), &Dns::default(), "", Duration::from_secs(1)), None);
}

#[test]
fn networks_as_plugins_make_them() {
    for (what, nic, expected) in [
        (
            "bridge",
            nic(&["10.77.0.2/24"], &[("0.0.0.0/0", "10.77.0.1"), ("10.77.0.0/24", "")]),
            "10.77.0.2/24 by 10.77.0.1; 10.77.0.1; ",
        ),
        (
            "bridge with another route",
            nic(&["10.77.0.2/24"], &[("10.1.2.3/16", "10.77.0.9"), ("0.0.0.0/0", "10.77.0.1")]),
            "10.77.0.2/24 by 10.77.0.1; 10.77.0.1; 0.0.0.0/0 10.77.0.1, 10.1.0.0/16 10.77.0.9",
        ),
        (
            "bridge with a link-local route",
            nic(&["10.77.0.2/24"], &[("169.254.0.0/16", ""), ("0.0.0.0/0", "10.77.0.1")]),
            "10.77.0.2/24 by 10.77.0.1; 10.77.0.1; 169.254.0.0/16 0.0.0.0, 0.0.0.0/0 10.77.0.1",
        ),
        (
            "ptp: the own subnet is behind the gateway",
            nic(&["10.77.0.2/24"], &[("0.0.0.0/0", "10.77.0.1"), ("10.77.0.0/24", "10.77.0.1"), ("10.77.0.1/32", "")]),
            "10.77.0.2/32 by 10.77.0.1; 10.77.0.1; \
             10.77.0.1/32 0.0.0.0, 0.0.0.0/0 10.77.0.1, 10.77.0.0/24 10.77.0.1",
        ),
        (
            "ptp told as /32 without the route to the gateway",
            nic(&["10.77.0.2/32"], &[("0.0.0.0/0", "10.77.0.1")]),
            "10.77.0.2/32 by 10.77.0.1; 10.77.0.1; 10.77.0.1/32 0.0.0.0, 0.0.0.0/0 10.77.0.1",
        ),
        (
            "Calico",
            nic(&["192.168.7.3/32"], &[("0.0.0.0/0", "169.254.1.1"), ("169.254.1.1/32", "")]),
            "192.168.7.3/32 by 169.254.1.1; 169.254.1.1; 169.254.1.1/32 0.0.0.0, 0.0.0.0/0 169.254.1.1",
        ),
        (
            "a gateway outside the subnet",
            nic(&["10.77.0.2/24"], &[("0.0.0.0/0", "10.99.0.1")]),
            "10.77.0.2/24 by 10.99.0.1; 10.99.0.1; 10.99.0.1/32 0.0.0.0, 0.0.0.0/0 10.99.0.1",
        ),
        (
            "the default route on the link",
            nic(&["10.77.0.2/32"], &[("0.0.0.0/0", "")]),
            "10.77.0.2/32 by 169.254.254.2; ; 0.0.0.0/0 0.0.0.0",
        ),
        ("alone", nic(&["10.77.0.2/24"], &[]), "10.77.0.2/24 by 169.254.254.2; ; "),
        (
            "no default route",
            nic(&["10.77.0.2/24"], &[("10.0.0.0/8", "10.77.0.5")]),
            "10.77.0.2/24 by 10.77.0.5; ; 10.0.0.0/8 10.77.0.5",
        ),
        (
            "two default routes",
            nic(&["10.77.0.2/24"], &[("0.0.0.0/0", "10.77.0.1"), ("0.0.0.0/0", "10.77.0.9")]),
            "10.77.0.2/24 by 10.77.0.1; 10.77.0.1 10.77.0.9; ",
        ),
        (
            "a next hop of IPv6",
            nic(&["10.77.0.2/24"], &[("0.0.0.0/0", "fe80::1")]),
            "10.77.0.2/24 by 169.254.254.2; ; ",
        ),
    ] {
        assert_eq!(network(&nic), expected, "{what}");
    }
}

#[test]
fn names_that_cannot_be_said_are_left_out() {
    let label = "a".repeat(63);
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(domain_name(&longest), Some(longest.clone()));
    assert_eq!(domain_name(&format!("{longest}.")), Some(longest.clone()));
    assert_eq!(domain_name("_srv.a-b.C"), Some("_srv.a-b.C".to_owned()));
    for bad in ["", ".", "a..b", ".a", "a b", "a\0", "a;reboot", "\u{e9}.de", &"a".repeat(64), &format!("{longest}a")] {
        assert_eq!(domain_name(bad), None, "{bad:?}");
    }
}

#[test]
fn an_mtu_beyond_what_dhcp_can_say_is_the_greatest_it_can() {
    let nic = Nic { mtu: 65_536, ..nic(&["10.77.0.2/24"], &[]) };
    assert_eq!(lease(&nic).mtu, u16::MAX);
}
