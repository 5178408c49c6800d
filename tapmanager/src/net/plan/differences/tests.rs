use proto::tap::DataPath;

use super::*;
use crate::net::plan::plan;
use crate::net::plan::tests::{net, veth};
use crate::net::{Choices, Reported, RouteSize};
use crate::sys::link::Address;
use crate::sys::neighbour::Neighbour;

fn route(dst: &str, next_hop: NextHop) -> KernelRoute {
    KernelRoute { link: 2, table: MAIN_TABLE, dst: net(dst), next_hop, metric: 0, mtu: None, advmss: None, hops: 1 }
}

fn via(dst: &str, gateway: &str) -> KernelRoute {
    route(dst, NextHop::Gateway(gateway.parse().expect("an address")))
}

fn nowhere(dst: &str, metric: u32) -> KernelRoute {
    KernelRoute { link: 0, metric, hops: 0, ..route(dst, NextHop::Unreachable) }
}

fn observed(routes: Vec<KernelRoute>) -> Observed {
    let link = Link { mtu: 1500, ..veth(2, "eth0") };
    let subnet = route("10.77.0.0/24", NextHop::OnLink);
    Observed {
        links: vec![link],
        addresses: vec![Address { link: 2, net: net("10.77.0.2/24"), lasting: true }],
        routes: std::iter::once(subnet).chain(routes).collect(),
        ..Observed::default()
    }
}

fn planned(observed: &Observed, data_path: DataPath) -> Result<(Nic, Vec<String>), String> {
    let reported = Reported {
        network: "pods".to_owned(),
        links: vec![],
        addresses: vec![net("10.77.0.2/24")],
        ..Reported::default()
    };
    let plan = plan(observed, &[reported], Choices { data_path, queues: 1, anti_spoof: true });
    plan.map(|mut plan| (plan.nics.remove(0), plan.notes)).map_err(|error| error.to_string())
}

#[test]
fn the_least_mtu_of_the_routes_is_the_guests() {
    let narrow = |dst, mtu| KernelRoute { mtu: Some(mtu), ..via(dst, "10.77.0.1") };
    let (nic, notes) = planned(&observed(vec![narrow("0.0.0.0/0", 1423)]), DataPath::Tc).expect("joins");
    assert_eq!(nic.mtu, 1423);
    assert_eq!(notes, ["nic `eth0`: mtu 1423 is the least of its routes; the link has 1500"]);
    let both = vec![narrow("0.0.0.0/0", 1423), narrow("10.9.0.0/16", 1400)];
    let (nic, notes) = planned(&observed(both), DataPath::Tc).expect("joins");
    assert_eq!(nic.mtu, 1400);
    assert_eq!(notes, ["nic `eth0`: mtu 1400 is the least of its routes; the link has 1500"]);
    let (nic, notes) = planned(&observed(vec![narrow("0.0.0.0/0", 9000)]), DataPath::Tc).expect("joins");
    assert_eq!((nic.mtu, notes.len()), (1500, 0));
    let mut dual = observed(vec![narrow("0.0.0.0/0", 1000), route("fd00::/64", NextHop::OnLink)]);
    dual.addresses.push(Address { link: 2, net: net("fd00::2/64"), lasting: true });
    let (nic, notes) = planned(&dual, DataPath::Tc).expect("joins");
    assert_eq!(nic.mtu, 1280, "IPv6 is not taken from it");
    assert!(notes.iter().any(|note| note.contains("route 0.0.0.0/0 has the mtu 1000, which its guest is not told")));
}

#[test]
fn what_a_network_says_of_its_routes_counts_as_if_the_kernel_had_it() {
    let size = |dst, mtu, advmss| RouteSize { dst: net(dst), priority: None, mtu, advmss };
    let reported = |links: &[&str], sizes| Reported {
        network: "pods".to_owned(),
        links: links.iter().map(|link| link.parse().expect("a name")).collect(),
        addresses: vec![net("10.77.0.2/24")],
        sizes,
        ..Reported::default()
    };
    let planned = |reported: Reported| {
        let mut seen = observed(vec![via("0.0.0.0/0", "10.77.0.1"), via("10.9.0.0/16", "10.77.0.1")]);
        seen.links.push(veth(3, "net1"));
        seen.enter_sizes(&[reported]);
        let (nic, notes) = super::tests::planned(&seen, DataPath::Tc).expect("joins");
        (nic.mtu, notes)
    };
    let told = vec![size("0.0.0.0/0", Some(1400), None), size("10.9.0.0/16", Some(9000), Some(1300))];
    let expected = [
        "nic `eth0`: mtu 1400 is the least of its routes; the link has 1500",
        "nic `eth0`: route 10.9.0.0/16 has the advmss 1300, which its guest cannot be told",
    ];
    for links in [&["eth0"][..], &[]] {
        assert_eq!(planned(reported(links, told.clone())), (1400, expected.map(str::to_owned).into()));
    }
    assert_eq!(planned(reported(&["net1"], told)), (1500, vec![]), "of another link");
    let missing = vec![
        size("10.10.0.0/16", Some(1400), None),
        RouteSize { priority: Some(5), ..size("0.0.0.0/0", Some(1400), None) },
    ];
    assert_eq!(planned(reported(&[], missing)), (1500, vec![]), "the kernel has no such route");
}

#[test]
fn of_several_next_hops_the_one_that_is_used_is_said() {
    let shared = |gateway| KernelRoute { hops: 2, ..via("0.0.0.0/0", gateway) };
    let (nic, notes) = planned(&observed(vec![shared("10.77.0.1"), shared("10.77.0.9")]), DataPath::Tc).expect("joins");
    assert_eq!(nic.routes.len(), 1);
    assert_eq!(notes, ["nic `eth0`: route 0.0.0.0/0 has 2 next hops; its guest goes by 10.77.0.1 alone"]);
}

#[test]
fn a_route_to_nowhere_is_refused_where_the_guest_would_go_around_it() {
    let default = || via("0.0.0.0/0", "10.77.0.1");
    let refused = |routes| planned(&observed(routes), DataPath::Tc).err();
    insta::assert_snapshot!(
        refused(vec![default(), nowhere("10.9.0.0/16", 0)]).expect("refused"),
        @"route to `10.9.0.0/16` leads nowhere (it is a blackhole, unreachable, prohibit or throw), which a guest cannot be told: it would go by `0.0.0.0/0` on link `eth0`"
    );
    let inside = refused(vec![nowhere("10.77.0.128/25", 0)]).expect("refused");
    assert!(inside.ends_with("`10.77.0.2/24` on link `eth0`"), "{inside}");
    assert_eq!(refused(vec![via("10.8.0.0/16", "10.77.0.1"), nowhere("10.9.0.0/16", 0)]), None, "it has no way there");
    assert_eq!(refused(vec![default(), nowhere("0.0.0.0/0", 9)]), None, "the kernel prefers the other one");
    assert_eq!(refused(vec![default(), nowhere("fd00::/8", 0)]), None, "another family");
    let of_vrf = KernelRoute { table: 10, ..nowhere("10.9.0.0/16", 0) };
    assert_eq!(refused(vec![default(), of_vrf]), None, "another table");
}

#[test]
fn a_permanent_neighbour_is_said_and_a_macvtap_cannot_have_one_as_gateway() {
    let mut seen = observed(vec![route("169.254.1.1/32", NextHop::OnLink), via("0.0.0.0/0", "169.254.1.1")]);
    let known = |link, ip: &str, mac: &str| Neighbour {
        link,
        ip: ip.parse().expect("an address"),
        mac: mac.parse().expect("an address"),
    };
    seen.neighbours = vec![
        known(2, "169.254.1.1", "02:00:00:00:00:fe"),
        known(2, "10.77.0.2", "8e:00:00:00:00:02"),
        known(3, "169.254.1.9", "02:00:00:00:00:fd"),
    ];
    let (_, notes) = planned(&seen, DataPath::Tc).expect("joins");
    assert_eq!(
        notes,
        ["nic `eth0`: 169.254.1.1 is at 02:00:00:00:00:fe for good; its guest is answered so in the pod"]
    );
    insta::assert_snapshot!(
        planned(&seen, DataPath::Macvtap).expect_err("refused"),
        @"gateway `169.254.1.1` on link `eth0` is a permanent neighbour, which the guest of a macvtap cannot be told; use another data path for this pod, such as `tc`"
    );
    seen.neighbours[0] = known(2, "10.77.0.7", "02:00:00:00:00:fe");
    assert!(planned(&seen, DataPath::Macvtap).is_ok(), "no gateway");
}
