//! Pictures of made-up pods.

use proto::tap::{Attach, DataPath, IfName, NicStats, PodNet, Vfio};

use super::way::Mark;
use super::*;
use crate::toolkit::tests::{net, pod, summary};

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}

fn end(text: &str, kind: &str, mtu: u32) -> End {
    End {
        name: name(text),
        kind: (!kind.is_empty()).then(|| kind.to_owned()),
        mac: None,
        mtu,
        up: true,
        carrier: true,
        refused: 0,
    }
}

fn stop(relation: Relation, link: End) -> Stop {
    Stop { relation, on_node: true, device: None, link: Some(link) }
}

/// A pod with one NIC, and its way to a bridge of the node.
fn pod_of(data_path: DataPath) -> (PodDetail, Way) {
    let mut net = net();
    net.nics[0].kind = NicKind::Tap(Tap { data_path, queues: 2 });
    let counters = NicStats {
        name: name("eth0"),
        rx_bytes: 0,
        rx_packets: 7,
        rx_errors: 0,
        rx_dropped: 0,
        tx_bytes: 0,
        tx_packets: 5,
        tx_errors: 0,
        tx_dropped: 3,
    };
    let tap = if data_path == DataPath::Macvtap { "macvtap" } else { "tun" };
    let link = End { mac: "02:00:00:00:00:05".parse().ok(), ..end("eth0", "veth", 1450) };
    let way = Way {
        nic: name("eth0"),
        tap: Some(End { refused: 3, ..end("tap0", tap, 1450) }),
        helper: (data_path == DataPath::Bridge).then(|| end("vmbr0", "bridge", 1450)),
        link: Some(link),
        beyond: vec![
            stop(Relation::Peer, end("veth12ab", "veth", 1450)),
            stop(Relation::Master, end("cni0", "bridge", 1500)),
        ],
        counters: Some(counters),
        marks: Vec::new(),
    };
    (detail(net), way)
}

fn detail(net: PodNet) -> PodDetail {
    PodDetail { summary: summary("demo", None), request: Attach::new(pod()), net: Some(net), explanation: Vec::new() }
}

fn mark(at: &str, line: &str) -> Mark {
    Mark { at: name(at), line: line.to_owned(), breaks: true }
}

#[test]
fn a_pod_joined_by_tc() {
    let (detail, way) = pod_of(DataPath::Tc);
    let picture = of(&detail, &Ok(vec![way]));
    insta::assert_snapshot!(picture.text(false));
    insta::assert_snapshot!("a_pod_joined_by_tc_in_ascii", picture.text(true));
    insta::assert_snapshot!("a_pod_joined_by_tc_as_svg", picture.svg());
}

#[test]
fn a_pod_joined_by_a_bridge() {
    let (detail, way) = pod_of(DataPath::Bridge);
    insta::assert_snapshot!(of(&detail, &Ok(vec![way])).text(false));
}

#[test]
fn a_pod_joined_by_a_macvtap() {
    let (detail, way) = pod_of(DataPath::Macvtap);
    let parent = stop(Relation::Parent, end("ens1", "", 9000));
    insta::assert_snapshot!(of(&detail, &Ok(vec![Way { beyond: vec![parent], ..way }])).text(false));
}

#[test]
fn a_pod_with_a_virtual_function_beside_its_network() {
    let (mut detail, way) = pod_of(DataPath::Tc);
    let nets = detail.net.as_mut().expect("a network");
    let vfio = NicKind::Vfio(Vfio { device: "0000:3b:02.1".parse().expect("an address") });
    nets.nics.push(Nic { name: name("net1"), network: "fast".into(), kind: vfio, ..nets.nics[0].clone() });
    let pf = Stop { device: Some("0000:3b:00.0".into()), ..stop(Relation::Pf, end("ens1f0", "", 9000)) };
    let other = Way {
        nic: name("net1"),
        tap: None,
        helper: None,
        link: None,
        beyond: vec![pf],
        counters: None,
        marks: Vec::new(),
    };
    let picture = of(&detail, &Ok(vec![way, other]));
    insta::assert_snapshot!(picture.text(false));
    assert_eq!(picture.svg().matches("NIC ").count(), 2);
}

#[test]
fn drift_is_marked_where_it_is() {
    let (detail, way) = pod_of(DataPath::Tc);
    let mut veth = way.beyond[0].clone();
    veth.link = Some(end("veth12ab", "veth", 9000));
    let marks = vec![
        mark("tap0", "link `tap0` is gone; a running machine that held it has to be started anew"),
        mark("eth0", "link `eth0` does not lead to `tap0` any more"),
        mark("veth12ab", "`veth12ab` has an MTU of 9000, and `eth0` before it 1450"),
        mark("lost0", "a mark of a link that is not in the picture is not lost"),
    ];
    let nowhere = Stop { relation: Relation::Parent, on_node: false, device: None, link: None };
    let picture = of(&detail, &Ok(vec![Way { tap: None, beyond: vec![veth, nowhere], marks, ..way }]));
    insta::assert_snapshot!(picture.text(false));
    assert!(picture.svg().contains("stroke-dasharray"), "a broken wire");
}

#[test]
fn hostile_names_neither_leave_their_box_nor_become_markup() {
    let (mut detail, mut way) = pod_of(DataPath::Tc);
    let evil = "\u{1b}[31m<script>alert('&\"')</script>\r\n\0\u{202e}\u{9b}";
    detail.summary.name = format!("{evil}{}", "a".repeat(1000));
    detail.summary.trouble = Some(evil.to_owned());
    let nic = &mut detail.net.as_mut().expect("a network").nics[0];
    nic.network = "n".repeat(200);
    nic.addresses = (0..200).map(|last| format!("10.0.0.{last}/24").parse().expect("an address")).collect();
    let peer = way.beyond[0].link.as_mut().expect("a link");
    peer.kind = Some(evil.to_owned());
    way.marks = vec![mark("veth12ab", evil), mark("cni0", &"w".repeat(200))];
    let picture = of(&detail, &Ok(vec![way]));
    for text in [picture.text(false), picture.text(true)] {
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        assert!(!text.contains('\u{202e}'));
    }
    assert!(picture.text(true).is_ascii());
    let svg = picture.svg();
    assert!(!svg.contains("<script") && svg.contains("&lt;script&gt;"), "{svg}");
    assert!(svg.chars().all(|c| c == '\n' || !c.is_control()), "{svg:?}");
    assert_eq!(svg.matches("<text ").count(), svg.matches("</text>").count());
    insta::assert_snapshot!(picture.text(false));
}

#[test]
fn text_is_broken_between_words_where_that_can_be() {
    assert_eq!(wrapped("a bc def", 4), ["a bc", "def"]);
    assert_eq!(wrapped("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
    assert_eq!(wrapped("a abcdefgh", 3), ["a", "abc", "def", "gh"]);
    assert_eq!(wrapped("", 3), [""]);
    assert_eq!(wrapped("ab", 0), ["a", "b"]);
}
