use proptest::prelude::*;
use serde_json::json;

use super::*;

fn view(interfaces: Value) -> ResultView {
    ResultView::of(&json!({"cniVersion": "1.1.0", "interfaces": interfaces})).expect("a result")
}

fn list(conf: Value) -> NetworkList {
    NetworkList::try_from(json!({"cniVersion": "1.1.0", "name": "fast", "plugins": [conf]})).expect("a network")
}

fn name(text: &str) -> IfName {
    text.parse().expect("a name")
}

const LINK: &str = "net1";
const VF: &str = "0000:3b:02.1";

fn one() -> ResultView {
    view(json!([{"name": LINK, "mac": "02:00:00:00:00:09", "sandbox": "/run/netns/x"}]))
}

#[test]
fn each_source_names_the_device() {
    let named = |keys: Value| {
        let mut conf = json!({"type": "sriov"});
        conf.as_object_mut().expect("object").extend(keys.as_object().expect("object").clone());
        Said::of(&list(conf), None).expect("usable")
    };
    for said in [
        named(json!({"deviceID": VF})),
        named(json!({"pciBusID": VF})),
        named(json!({"runtimeConfig": {"deviceID": VF}})),
        Said::of(&list(json!({"type": "sriov"})), Some(VF)).expect("usable"),
        Said::of_delegate(Some(&json!({"type": "sriov", "deviceID": VF})), &Map::new()).expect("usable"),
        Said::of_delegate(None, json!({"deviceID": VF}).as_object().expect("object")).expect("usable"),
    ] {
        let devices = said.devices("fast", &one()).expect("one device");
        let device = devices.get(&name(LINK)).expect("named");
        assert_eq!((device.addr.to_string().as_str(), device.mac), (VF, "02:00:00:00:00:09".parse().ok()), "{said:?}");
    }
    let by_result = view(json!([
        {"name": "eth0", "sandbox": "/run/netns/x"},
        {"name": LINK, "sandbox": "/run/netns/x", "pciID": VF, "mtu": 9000},
        {"name": "pf", "pciID": "0000:3b:00.0"},
    ]));
    let devices = Said::default().devices("fast", &by_result).expect("read");
    assert_eq!(devices.keys().map(IfName::as_str).collect::<Vec<_>>(), [LINK]);
    assert_eq!(devices[&name(LINK)].mtu, Some(9000));
}

#[test]
fn a_device_info_file_is_read_and_has_to_agree() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("info.json");
    let said = |text: &str| {
        std::fs::write(&path, text).expect("written");
        let arguments = json!({INFO_FILE: path});
        Said::of_delegate(Some(&json!({"type": "sriov", "deviceID": VF})), arguments.as_object().expect("object"))
    };
    let info = |addr: &str| json!({"type": "pci", "version": "1.1.0", "pci": {"pci-address": addr}}).to_string();
    said(&info(VF)).expect("usable").devices("fast", &one()).expect("they agree");
    let error = said(&info("0000:3b:02.3")).expect("usable").devices("fast", &one()).expect_err("they do not");
    assert!(error.to_string().contains(&format!("`{VF}`")) && error.to_string().contains("`0000:3b:02.3`"), "{error}");
    said(r#"{"type": "vdpa", "vdpa": {"path": "/dev/vhost-vdpa-0"}}"#).expect("another kind");
    assert!(said("{").is_err() && said(&"x".repeat(70_000)).is_err());
    std::fs::remove_file(&path).expect("removed");
    let gone = json!({INFO_FILE: path});
    Said::of_delegate(None, gone.as_object().expect("object")).expect("a file that is gone says nothing");
}

#[test]
fn sources_that_disagree_are_refused_with_both_addresses() {
    let said = Said::of(&list(json!({"type": "sriov", "deviceID": VF})), Some("0000:3b:02.3")).expect("usable");
    let error = said.devices("fast", &one()).expect_err("two devices").to_string();
    assert_eq!(
        error,
        "network `fast`: the pod's annotation names the device `0000:3b:02.3` and the configuration of plugin `sriov` \
         `0000:3b:02.1`; have the device plugin and the network agree"
    );
    let by_result = view(json!([{"name": LINK, "sandbox": "/x", "pciID": "0000:3b:02.3"}]));
    let said = Said::of(&list(json!({"type": "sriov", "deviceID": VF})), None).expect("usable");
    assert!(
        said.devices("fast", &by_result).expect_err("two devices").to_string().contains("the result `0000:3b:02.3`")
    );
    let bad = Said::of(&list(json!({"type": "sriov"})), Some("0000:zz:00.0")).expect("usable");
    bad.devices("fast", &one()).expect_err("no address");
}

#[test]
fn a_name_for_a_network_of_several_links_names_none() {
    let said = Said::of(&list(json!({"type": "sriov", "deviceID": VF})), None).expect("usable");
    let two = view(json!([{"name": "eth0", "sandbox": "/x"}, {"name": LINK, "sandbox": "/x"}]));
    assert!(said.devices("fast", &two).expect("read").is_empty());
    let auxiliary = Said::of(&list(json!({"type": "x"})), Some("mlx5_core.sf.4")).expect("usable");
    assert!(auxiliary.devices("fast", &one()).expect("no PCI device").is_empty());
}

#[test]
fn rights_that_a_configuration_asks_for_are_asked_for() {
    let said = Said::of(&list(json!({"type": "sriov", "spoofchk": "off", "trust": "on", "vlan": 7})), None);
    let asked = said.expect("usable").asked;
    assert_eq!((asked.spoofchk, asked.trust, asked.vlan), (Some(false), Some(true), None));
    Said::of(&list(json!({"type": "sriov", "trust": "maybe"})), None).expect_err("no such right");
}

proptest! {
    #[test]
    fn any_bytes_are_a_device_info_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = device_info(&bytes);
    }
}
