//! On a model of both namespaces. The real kernel's turn is in the bed, which runs the commands of docs/cni-integration.md.

use proto::tap::{DataPath, NicKind, Vfio};

use super::*;
use crate::net::compare::tests::{bare, guarded, made, name};

/// A pod joined by this path, its veth's other end a port of a bridge of the node.
fn seen(data_path: DataPath) -> (Guarded, Seen) {
    let nic = guarded(data_path);
    let mut state = bare();
    for step in path::steps(&nic.nic, 0, false, &nic.guards) {
        state.act(&step);
    }
    state.change(&name("eth0")).lower = Some(7);
    let peer = Link { controller: Some(3), lower: Some(2), up: true, ..made(7, "veth1", "veth") };
    let links = vec![peer, Link { up: true, ..made(3, "cni0", "bridge") }, made(2, "another", "veth")];
    let (elsewhere, leads_away) = ([(2, 0)].into(), [(7, 4)].into());
    (nic, Seen { state, elsewhere, node: Some(0), links, leads_away, ..Seen::default() })
}

/// Relation, and name of the link if it is seen, of each stop.
fn stops(way: &Way) -> Vec<(Relation, Option<&str>)> {
    way.beyond.iter().map(|stop| (stop.relation, stop.link.as_ref().map(|link| link.name.as_str()))).collect()
}

fn marks(way: &Way) -> Vec<String> {
    way.marks.iter().map(|mark| format!("{} {}: {}", mark.at, mark.breaks, mark.line)).collect()
}

#[test]
fn each_data_path_leads_to_the_nodes_bridge() {
    for (data_path, helper) in [(DataPath::Tc, None), (DataPath::Bridge, Some("vmbr0")), (DataPath::Macvtap, None)] {
        let (nic, seen) = seen(data_path);
        let way = seen.way(&nic, 0, true);
        assert_eq!(way.tap.as_ref().map(|tap| tap.name.as_str()), Some("tap0"), "{data_path:?}");
        assert_eq!(way.helper.as_ref().map(|link| link.name.as_str()), helper);
        assert_eq!(stops(&way), [(Relation::Peer, Some("veth1")), (Relation::Master, Some("cni0"))]);
        assert_eq!(marks(&way), Vec::<String>::new());
    }
}

#[test]
fn the_same_index_in_another_namespace_is_not_taken_for_the_peer() {
    let (nic, mut seen) = seen(DataPath::Tc);
    seen.node = Some(1);
    assert_eq!(stops(&seen.way(&nic, 0, true)), [(Relation::Peer, None)]);
    // A kernel that does not say which namespace is the node's.
    seen.node = None;
    assert_eq!(stops(&seen.way(&nic, 0, true)), [(Relation::Peer, None)]);
}

#[test]
fn a_link_lies_on_others_in_the_pod_and_on_the_node() {
    let (nic, mut seen) = seen(DataPath::Tc);
    // A VLAN on the veth, and a macvlan on a VLAN on a card.
    seen.state.observed.links.push(Link { lower: Some(7), ..made(9, "net1", "veth") });
    seen.elsewhere = [(9, 0)].into();
    let eth0 = seen.state.change(&name("eth0"));
    (eth0.kind, eth0.lower) = (Some("vlan".to_owned()), Some(9));
    let wanted = [(Relation::Parent, Some("net1")), (Relation::Peer, Some("veth1")), (Relation::Master, Some("cni0"))];
    assert_eq!(stops(&seen.way(&nic, 0, true)), wanted);
    seen.elsewhere = [(2, 0)].into();
    let eth0 = seen.state.change(&name("eth0"));
    (eth0.kind, eth0.lower) = (Some("macvlan".to_owned()), Some(5));
    seen.links = vec![Link { lower: Some(4), ..made(5, "ens1.7", "vlan") }, Link { kind: None, ..made(4, "ens1", "") }];
    assert_eq!(stops(&seen.way(&nic, 0, true)), [(Relation::Parent, Some("ens1.7")), (Relation::Parent, Some("ens1"))]);
    // Links that lie on each other are not followed for ever.
    seen.links = vec![Link { lower: Some(4), ..made(5, "a", "vlan") }, Link { lower: Some(5), ..made(4, "b", "vlan") }];
    assert_eq!(stops(&seen.way(&nic, 0, true)).len(), MAX_STOPS);
}

#[test]
fn drift_and_misfits_are_marked_where_they_are() {
    let (nic, mut seen) = seen(DataPath::Tc);
    seen.state.remove(&name("tap0"));
    let way = seen.way(&nic, 0, true);
    assert_eq!(way.tap, None);
    assert!(marks(&way).iter().any(|mark| mark.starts_with("tap0 true: link `tap0` is gone")), "{:?}", way.marks);
    assert!(marks(&way).iter().any(|mark| mark.starts_with("eth0 true: ")), "{:?}", way.marks);

    let (nic, mut seen) = self::seen(DataPath::Tc);
    seen.state.change(&name("eth0")).mtu = 1400;
    seen.links[1].up = false;
    let wanted = [
        "eth0 false: the guest was told an MTU of 1450, and `eth0` has 1400",
        "veth1 false: `veth1` has an MTU of 1450, and `eth0` before it 1400",
        "cni0 true: `cni0` is down",
    ];
    assert_eq!(marks(&seen.way(&nic, 0, true)), wanted);
}

#[test]
fn another_guard_counts_only_if_it_is_known_which_it_should_be() {
    let (mut nic, seen) = seen(DataPath::Tc);
    nic.guards = crate::net::filter::Guards::of(&nic.nic, false).expect("guards");
    assert_eq!(marks(&seen.way(&nic, 0, false)), Vec::<String>::new());
    assert_eq!(seen.way(&nic, 0, true).marks.len(), 2, "of both ends");
}

#[test]
fn a_virtual_function_leads_to_its_physical_one() {
    let (mut nic, mut seen) = seen(DataPath::Tc);
    let (vf, pf) = ("0000:3b:02.1", "0000:3b:00.0");
    seen.pfs = [(vf.to_owned(), pf.to_owned())].into();
    seen.links.push(Link { kind: None, pci: Some(pf.to_owned()), up: true, ..made(11, "ens1f0", "") });
    let eth0 = seen.state.change(&name("eth0"));
    (eth0.kind, eth0.lower, eth0.pci) = (None, None, Some(vf.to_owned()));
    assert_eq!(stops(&seen.way(&nic, 0, true)), [(Relation::Pf, Some("ens1f0"))]);
    nic.nic.kind = NicKind::Vfio(Vfio { device: vf.parse().expect("an address") });
    let way = seen.way(&nic, 0, true);
    assert_eq!(stops(&way), [(Relation::Pf, Some("ens1f0"))]);
    assert!(way.link.is_none() && way.counters.is_none());
}
