//! Which VF is given, with what, and how it is put back.

use rscni_plugin::cni::Cni as _;
use rscni_plugin::error::Error;
use serde_json::json;
use sriov::Mac;
use sriov::settings::{Kind, Vlan};

use super::model::{TestNode, own_mac, vf};

const MAC: &str = "02:00:00:00:00:0a";

#[test]
fn a_container_gets_the_first_free_vf_with_what_was_asked_for() {
    let node = TestNode::new(2, &[]);
    let conf = json!({"pool": "blue", "mac": MAC, "vlan": 100, "vlanQoS": 2, "spoofchk": "off",
        "max_tx_rate": 500, "mtu": 9000});
    let result = node.plugin().add(node.args("a", &conf)).expect("added");
    let given = node.kernel.vf(0);
    let port = given.netdev.expect("a netdev");
    assert_eq!(port.netns.as_deref(), Some("/run/netns/a"));
    assert_eq!(
        (port.netdev.name.as_str(), port.netdev.mac.to_string().as_str(), port.netdev.mtu, port.netdev.up),
        ("net1", MAC, 9000, true)
    );
    let settings = given.settings;
    assert_eq!(settings.vlan, Some(Vlan { id: 100, qos: 2, ..Vlan::default() }));
    assert_eq!(
        (settings.spoofchk, settings.trust, settings.rate.map(|rate| rate.max)),
        (Some(false), Some(false), Some(500))
    );
    let shown = serde_json::to_value(&result).unwrap();
    let interface =
        json!({"name": "net1", "mac": MAC, "mtu": 9000, "sandbox": "/run/netns/a", "pciID": "0000:3b:02.0"});
    assert_eq!(shown, json!({"interfaces": [interface]}));
    let other = node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect("added");
    assert_eq!(other.interfaces[0].pci_id.as_deref(), Some("0000:3b:02.1"));
    assert_eq!(other.interfaces[0].mac, own_mac(1).to_string());
}

#[test]
fn an_earlier_users_vlan_and_trust_are_taken_away_and_put_back() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    let args = || node.args("a", &json!({"pf": "ens1f0"}));
    node.plugin().add(args()).expect("added");
    let settings = node.kernel.vf(0).settings;
    assert_eq!((settings.vlan, settings.trust), (Some(Vlan::default()), Some(false)));
    node.plugin().del(args()).expect("deleted");
    assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]));
    node.plugin().del(args()).expect("deleted again");
}

#[test]
fn a_setting_that_nobody_asked_for_may_be_missing() {
    let node = TestNode::new(1, &[]);
    node.kernel.world().refused = vec![Kind::Trust];
    node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect("added");
    node.plugin().check(node.args("a", &json!({}))).expect("as it was left");
    let node = TestNode::new(1, &[]);
    node.kernel.world().refused = vec![Kind::Trust];
    let error = node.plugin().add(node.args("a", &json!({"pool": "blue", "trust": "off"}))).expect_err("asked for");
    assert_eq!(u32::from(&error), 103);
    assert!(error.details().contains("do not ask for it on this card"), "{error}");
    assert_eq!(node.allocations(), Vec::<String>::new());
}

#[test]
fn addresses_come_from_the_runtime_then_the_arguments_then_the_configuration() {
    let [given, told, written] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "02:00:00:00:00:03"];
    let full = json!({"pool": "blue", "mac": written, "runtimeConfig": {"mac": given}});
    for (conf, args, wanted) in [
        (full, format!("MAC={told}"), given),
        (json!({"pool": "blue", "mac": written}), format!("MAC={told}"), told),
        (json!({"pool": "blue", "mac": written}), String::new(), written),
    ] {
        let node = TestNode::new(1, &[]);
        let result = node.plugin().add(node.args_with("a", &conf, &args)).expect("added");
        assert_eq!(result.interfaces[0].mac, wanted);
        assert_eq!(node.kernel.vf(0).settings.mac.map(|mac| mac.to_string()).as_deref(), Some(wanted));
    }
}

#[test]
fn two_vfs_of_a_pf_never_have_one_address() {
    let node = TestNode::new(2, &[]);
    let conf = json!({"pool": "blue", "mac": MAC});
    node.plugin().add(node.args("a", &conf)).expect("added");
    let error = node.plugin().add(node.args("b", &conf)).expect_err("taken");
    assert_eq!(error, Error::Custom(102, error.msg().to_owned(), error.details().to_owned()));
    assert!(error.details().starts_with("address `02:00:00:00:00:0a` is that of VF 0 of the same PF"), "{error}");
    assert!(error.details().contains("pod `shop/cart`"), "{error}");
}

#[test]
fn a_vf_of_vfio_pci_has_its_settings_at_the_pf_and_no_netdev() {
    let node = TestNode::new(3, &[1]);
    let before = node.kernel.vfs();
    let args = || node.args("a", &json!({"pool": "vms", "mac": MAC, "vlan": 5}));
    let result = node.plugin().add(args()).expect("added");
    let shown = serde_json::to_value(&result.interfaces).unwrap();
    assert_eq!(shown, json!([{"name": "net1", "mac": MAC, "sandbox": "/run/netns/a", "pciID": "0000:3b:02.1"}]));
    let given = node.kernel.vf(1);
    assert_eq!(
        (given.settings.vlan.map(|vlan| vlan.id), given.settings.mac),
        (Some(5), Some(Mac([2, 0, 0, 0, 0, 10])))
    );
    node.plugin().check(args()).expect("as it was left");
    node.plugin().del(args()).expect("deleted");
    assert_eq!(node.kernel.vfs(), before);
}

#[test]
fn a_vf_on_vfio_pci_is_not_given_to_who_did_not_ask_for_one() {
    let node = TestNode::new(1, &[0]);
    let error = node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect_err("not that one");
    assert_eq!(u32::from(&error), 100);
    assert!(error.details().contains("VF 0: it is on vfio-pci, and so may be a VM's"), "{error}");
}

#[test]
fn a_device_that_was_chosen_is_taken_and_no_other() {
    let node = TestNode::new(3, &[2]);
    let exact = |name: &str, number: u32| {
        node.args(name, &json!({"runtimeConfig": {"deviceID": vf(number).to_string()}, "deviceID": "0000:00:00.0"}))
    };
    let result = node.plugin().add(exact("a", 1)).expect("added");
    assert_eq!(result.interfaces[0].pci_id.as_deref(), Some("0000:3b:02.1"));
    let error = node.plugin().add(exact("b", 1)).expect_err("in use");
    assert_eq!(
        (u32::from(&error), error.details()),
        (102, "VF 1 of `0000:3b:00.0` (`0000:3b:02.1`) is in use: pod `shop/cart` (`net1`)")
    );
    node.plugin().add(exact("b", 2)).expect("vfio-pci as well");
    let absent = json!({"deviceID": "0000:3b:07.0"});
    let error = node.plugin().add(node.args("c", &absent)).expect_err("no namespace");
    assert_eq!(error, Error::InvalidNetNS("there is no network namespace `/run/netns/c`".to_owned()));
}

#[test]
fn a_device_has_to_be_a_vf_and_of_its_pool() {
    let node = TestNode::new(3, &[]);
    node.pools("[pool.low]\npf = \"0000:3b:00.0\"\nvfs = \"0\"\n");
    for (conf, words) in [
        (json!({"deviceID": "0000:3b:07.0"}), "there is no PCI device `0000:3b:07.0`"),
        (json!({"deviceID": "0000:3b:00.0"}), "is no SR-IOV virtual function"),
        (
            json!({"deviceID": "0000:3b:02.1", "pool": "low"}),
            "is VF 1 of `0000:3b:00.0`, which is not one of pool `low`",
        ),
        (json!({"pf": "ens9"}), "PF `ens9` is not there; PFs of this node: `ens1f0` (`0000:3b:00.0`)"),
    ] {
        let error = node.plugin().add(node.args("a", &conf)).expect_err("refused");
        assert_eq!(u32::from(&error), 101, "{error}");
        assert!(error.details().contains(words), "{error}");
    }
}

#[test]
fn pfs_are_found_by_kind() {
    for (device, found) in [("1521", true), ("10ca", true), ("10cb", false)] {
        let node = TestNode::new(1, &[]);
        let conf = json!({"pf": {"vendor": "8086", "device": device}});
        assert_eq!(node.plugin().add(node.args("a", &conf)).is_ok(), found, "{device}");
    }
}

#[test]
fn an_exhausted_pool_says_who_has_what_and_what_to_do() {
    let node = TestNode::new(3, &[2]);
    node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect("added");
    node.kernel.world().vfs.get_mut(&vf(1)).unwrap().netdev.as_mut().unwrap().netns = Some("/run/netns/x".to_owned());
    let error = node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect_err("exhausted");
    insta::assert_snapshot!(error.to_string());
    node.pools("[pool.blue]\npf = \"ens1f0\"\nvfs = \"5-7\"\n");
    let error = node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect_err("none at all");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn a_vf_of_a_container_that_is_gone_is_put_back_first() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    node.plugin().add(node.args("a", &json!({"pool": "blue", "vlan": 5, "mtu": 9000}))).expect("added");
    node.kernel.end_netns("/run/netns/a");
    let args = || node.args("b", &json!({"pool": "blue"}));
    node.plugin().add(args()).expect("it is free again");
    let port = node.kernel.vf(0).netdev.expect("a netdev");
    assert_eq!((port.netns.as_deref(), port.netdev.mtu), (Some("/run/netns/b"), 1500));
    node.plugin().del(node.args("a", &json!({}))).expect("nothing to do");
    assert_eq!(node.allocations().len(), 1);
    node.plugin().del(args()).expect("deleted");
    assert_eq!(node.kernel.vfs(), before);
}

#[test]
fn a_vf_is_put_back_without_its_namespace() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    node.plugin().add(node.args("a", &json!({"pool": "blue", "mac": MAC, "vlan": 5}))).expect("added");
    node.kernel.end_netns("/run/netns/a");
    node.plugin().del(node.args("a", &json!({}))).expect("deleted");
    assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]));
}

#[test]
fn a_vf_that_somebody_bound_elsewhere_waits() {
    let node = TestNode::new(1, &[]);
    let args = || node.args("a", &json!({"pool": "blue"}));
    node.plugin().add(args()).expect("added");
    node.bind(0, "vfio-pci");
    let error = node.plugin().del(args()).expect_err("not there");
    assert_eq!(u32::from(&error), 104);
    assert!(error.details().contains("has the driver `vfio-pci` and had `igbvf`"), "{error}");
    node.kernel.world().netns.remove("/run/netns/a");
    let error = node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect_err("not free");
    assert!(error.details().contains("is gone, and it could not be put back"), "{error}");
    node.bind(0, "igbvf");
    node.kernel.end_netns("/run/netns/a");
    node.plugin().del(args()).expect("deleted");
    assert_eq!(node.allocations(), Vec::<String>::new());
}

#[test]
fn after_a_boot_vfs_are_new() {
    let node = TestNode::new(1, &[]);
    node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect("added");
    node.reboot();
    let fresh = TestNode::new(1, &[]).kernel.vfs();
    node.kernel.world().vfs = fresh.clone();
    node.plugin().add(node.args("a", &json!({"pool": "blue", "vlan": 9}))).expect("added");
    node.reboot();
    node.kernel.world().vfs = fresh.clone();
    node.plugin().del(node.args("a", &json!({}))).expect("deleted");
    assert_eq!((node.kernel.vfs(), node.allocations()), (fresh, vec![]));
}
