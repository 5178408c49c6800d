use std::collections::BTreeMap;

use netlink_packet_core::Emitable as _;
use proptest::prelude::*;
use sriov::Mac;
use sriov::settings::{Rate, Vlan};

use super::*;

/// As the file itself says: requests of iproute2.
const IPROUTE2: &str = include_str!("fixtures/iproute2.txt");
/// The link and the VF of the recordings.
const LO: u32 = 1;
const VF: u32 = 3;

#[test]
fn requests_are_those_of_iproute2() {
    let mut recorded: BTreeMap<&str, Vec<u8>> = IPROUTE2
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(": "))
        .map(|(what, hex)| (what, bytes(hex)))
        .collect();
    for (what, attribute) in written() {
        let message = request(LO, VF, attribute);
        let mut ours = vec![0; message.buffer_len()];
        message.emit(&mut ours);
        // Each has one attribute in one in one, so there is no order to be another.
        assert_eq!(recorded.remove(what), Some(ours), "{what}");
    }
    assert_eq!(recorded, BTreeMap::new(), "recorded, and not compared");
}

#[test]
fn a_pf_tells_of_each_vf() {
    let list = parse::link(&link(7, 0, false)).expect("understood");
    assert_eq!((list.name.as_str(), list.pci.as_deref(), list.enabled), ("ens1f0", Some("0000:3b:00.0"), 7));
    assert_eq!(list.index, 2);
    let expected: BTreeMap<u32, VfSettings> = (0..7).map(|number| (number, settings(number))).collect();
    assert_eq!(list.vfs, expected);
    let tagged = expected.values().filter_map(|vf| vf.vlan).filter(|vlan| vlan.proto == VlanProto::Ad).count();
    assert_eq!(tagged, 2, "both kinds of tags are among them");
}

#[test]
fn a_list_that_is_longer_than_its_length_can_tell_is_read_to_its_end() {
    let bytes = link(256, 0, true);
    assert!(bytes.len() > 0x1_0000, "{} bytes wrap no length", bytes.len());
    let list = parse::link(&bytes).expect("understood");
    assert_eq!((list.vfs.len(), list.enabled), (256, 256));
    assert_eq!(list.vfs.get(&255), Some(&settings(255)));
    // It stands behind the list.
    assert_eq!(list.pci.as_deref(), Some("0000:3b:00.0"));
}

#[test]
fn vfs_that_are_left_out_are_missed() {
    let list = parse::link(&link(256, 34, true)).expect("understood");
    assert_eq!((list.vfs.len(), list.enabled), (222, 256));
}

#[test]
fn what_the_driver_does_not_say_is_not_off() {
    let unsaid = [attribute(1, &row(&[0], &[0; 32])), attribute(4, &row(&[0, u32::MAX], &[]))];
    let list = parse::link(&with_vfs(&[attribute(1, &unsaid.concat())], 1)).expect("understood");
    let expected = VfSettings { mac: Some(Mac::UNSET), ..VfSettings::default() };
    assert_eq!(list.vfs, BTreeMap::from([(0, expected)]));
}

#[test]
fn a_tag_of_another_kind_is_not_taken_for_a_usual_one() {
    for proto in [[0x91_u8, 0x00], [0x88, 0xa8]] {
        let tag = attribute(1, &row(&[0, 5, 0], &[proto[0], proto[1], 0, 0]));
        let vf = [attribute(1, &row(&[0], &[0; 32])), attribute(12, &tag), attribute(2, &row(&[0, 5, 0], &[]))];
        let list = parse::link(&with_vfs(&[attribute(1, &vf.concat())], 1)).expect("understood");
        let expected = (proto == [0x88, 0xa8]).then_some(Vlan { id: 5, qos: 0, proto: VlanProto::Ad });
        assert_eq!(list.vfs.get(&0).expect("told").vlan, expected);
    }
}

#[test]
fn a_link_of_another_bus_has_no_pci_address() {
    let other = [vec![0; 16], attribute(56, b"virtio0\0"), attribute(57, b"virtio\0")].concat();
    assert_eq!(parse::link(&other).expect("understood").pci, None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = parse::link(&bytes);
    }

    #[test]
    fn an_answer_with_any_change_is_read_or_refused(
        place in any::<prop::sample::Index>(), value in any::<u8>(), len in any::<prop::sample::Index>()
    ) {
        let mut bytes = link(7, 0, false);
        let place = place.index(bytes.len());
        bytes[place] = value;
        bytes.truncate(len.index(bytes.len()).max(place));
        let _ = parse::link(&bytes);
    }
}

fn written() -> [(&'static str, Attribute); 13] {
    let vlan = |id, qos, proto| Attribute::Vlan(Vlan { id, qos, proto });
    [
        ("mac 02:00:00:00:00:0a", Attribute::Mac(Mac([2, 0, 0, 0, 0, 10]))),
        ("vlan 100", vlan(100, 0, VlanProto::Q)),
        ("vlan 0", vlan(0, 0, VlanProto::Q)),
        ("vlan 100 qos 3", vlan(100, 3, VlanProto::Q)),
        ("vlan 100 qos 3 proto 802.1ad", vlan(100, 3, VlanProto::Ad)),
        ("min_tx_rate 10 max_tx_rate 100", Attribute::Rate(Rate { min: 10, max: 100 })),
        ("spoofchk on", Attribute::Spoofchk(true)),
        ("spoofchk off", Attribute::Spoofchk(false)),
        ("trust on", Attribute::Trust(true)),
        ("trust off", Attribute::Trust(false)),
        ("state auto", Attribute::LinkState(LinkState::Auto)),
        ("state enable", Attribute::LinkState(LinkState::Enable)),
        ("state disable", Attribute::LinkState(LinkState::Disable)),
    ]
}

/// What a VF of this number has in [`link`].
fn settings(number: u32) -> VfSettings {
    let proto = if number % 3 == 1 { VlanProto::Ad } else { VlanProto::Q };
    let state = [LinkState::Auto, LinkState::Enable, LinkState::Disable];
    VfSettings {
        vlan: Some(Vlan { id: u16::try_from(number).expect("few"), qos: 3, proto }),
        mac: Some(Mac([2, 0, 0, 0, u8::from(number > 255), number.to_le_bytes()[0]])),
        rate: Some(Rate { min: number, max: 1000 }),
        spoofchk: Some(number.is_multiple_of(2)),
        trust: (!number.is_multiple_of(5)).then_some(number % 2 == 1),
        link_state: state.get(usize::try_from(number).expect("few") % 3).copied(),
    }
}

/// The body of an `RTM_NEWLINK` of a PF, as `rtnl_fill_ifinfo` writes it, with `vfs` VFs of which the last `left_out` are not
/// in the list. Kernels before 5.10 add `counters` although they are asked not to.
fn link(vfs: u32, left_out: u32, counters: bool) -> Vec<u8> {
    let counters = if counters { attribute(8, &attribute(0, &[0; 8]).repeat(8)) } else { Vec::new() };
    let vf = |number| attribute(1, &[vf(number), counters.clone()].concat());
    let list: Vec<Vec<u8>> = (0..vfs - left_out).map(vf).collect();
    with_vfs(&list, vfs)
}

fn with_vfs(list: &[Vec<u8>], enabled: u32) -> Vec<u8> {
    [
        row(&[0, 2, 0, 0], &[]),
        attribute(3, b"ens1f0\0"),
        attribute(1, &[2, 0, 0, 0, 0, 1]),
        attribute(21, &enabled.to_ne_bytes()),
        attribute(22, &list.concat()),
        attribute(43, &attribute(2, &[0])),
        attribute(56, b"0000:3b:00.0\0"),
        attribute(57, b"pci\0"),
    ]
    .concat()
}

/// One VF, as `rtnl_fill_vfinfo` writes it, without counters.
fn vf(number: u32) -> Vec<u8> {
    let VfSettings { vlan, mac, rate, spoofchk, trust, link_state } = settings(number);
    let (vlan, mac, rate) = (vlan.expect("set"), mac.expect("set"), rate.expect("set"));
    let switch = |value: Option<bool>| value.map_or(u32::MAX, u32::from);
    let (id, qos) = (vlan.id.into(), vlan.qos.into());
    let proto = if vlan.proto == VlanProto::Q { [0x81, 0, 0, 0] } else { [0x88, 0xa8, 0, 0] };
    let state = match link_state.expect("set") {
        LinkState::Auto => 0,
        LinkState::Enable => 1,
        LinkState::Disable => 2,
    };
    [
        attribute(1, &row(&[number], &[&mac.0[..], &[0; 26]].concat())),
        attribute(13, &[0xff; 32]),
        attribute(2, &row(&[number, id, qos], &[])),
        attribute(6, &row(&[number, rate.min, rate.max], &[])),
        attribute(3, &row(&[number, rate.max], &[])),
        attribute(4, &row(&[number, switch(spoofchk)], &[])),
        attribute(5, &row(&[number, state], &[])),
        attribute(7, &row(&[number, u32::MAX], &[])),
        attribute(9, &row(&[number, switch(trust)], &[])),
        attribute(10, &row(&[number, 0, 0, 0], &[])),
        attribute(11, &row(&[number, 0, 0, 0], &[])),
        attribute(12, &attribute(1, &row(&[number, id, qos], &proto))),
    ]
    .concat()
}

fn row(numbers: &[u32], tail: &[u8]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
    numbers.chain(tail.iter().copied()).collect()
}

/// With a length of which 16 bits are kept, as the kernel does it.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let [low, high, ..] = (value.len() + 4).to_le_bytes();
    let mut bytes = [&u16::from_le_bytes([low, high]).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("text"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}
