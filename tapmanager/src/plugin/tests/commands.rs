//! CHECK, STATUS, GC, and what IPAM plugins have to do with it.

use std::fs;
use std::process::Command;

use rscni_plugin::cni::Cni as _;
use rscni_plugin::error::Error;
use serde_json::{Value, json};

use super::model::{TestNode, vf};

#[test]
fn check_tells_all_that_differs() {
    let node = TestNode::new(1, &[]);
    let earlier = json!({"prevResult": {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}});
    let error = node.plugin().check(node.args("a", &json!({}))).expect_err("nothing there");
    assert_eq!(error, Error::NotExist("container `a` (`net1`) has no VF".to_owned()));
    node.plugin().add(node.args("a", &json!({"pool": "blue", "vlan": 5}))).expect("added");
    node.plugin().check(node.args("a", &json!({}))).expect("as it was left");
    {
        let mut world = node.kernel.world();
        let vf = world.vfs.get_mut(&vf(0)).expect("a VF");
        vf.settings.vlan.as_mut().expect("a VLAN").id = 6;
        vf.settings.trust = Some(true);
        let netdev = &mut vf.netdev.as_mut().expect("a netdev").netdev;
        (netdev.up, netdev.mtu, netdev.mac.0[5]) = (false, 1400, 99);
    }
    let error = node.plugin().check(node.args("a", &earlier)).expect_err("differs");
    insta::assert_snapshot!(error.to_string());
}

#[test]
fn gc_puts_back_what_no_valid_attachment_of_the_network_has() {
    let node = TestNode::new(3, &[]);
    let before = node.kernel.vfs();
    node.kernel.world().netns.insert("/run/netns/c".to_owned());
    for (name, network) in [("a", "fast"), ("b", "fast"), ("c", "slow")] {
        node.plugin().add(node.args(name, &json!({"pool": "blue", "name": network}))).expect("added");
    }
    let listed = [("a", "net1"), ("b", "net2")].map(|(name, link)| json!({"containerID": name, "ifname": link}));
    let valid = json!({"cni.dev/valid-attachments": listed});
    node.plugin().gc(node.args("x", &valid)).expect("collected");
    assert_eq!(node.allocations(), ["0000:3b:02.0.json", "0000:3b:02.2.json"]);
    assert_eq!(node.kernel.vf(1), before[&vf(1)]);
    let draft = json!({"cni.dev/attachments": [], "name": "slow"});
    node.plugin().gc(node.args("x", &draft)).expect("collected");
    assert_eq!(node.allocations(), ["0000:3b:02.0.json"]);
    let error = node.plugin().gc(node.args("x", &json!({}))).expect_err("no list");
    assert_eq!(u32::from(&error), 7);
    assert_eq!(node.allocations(), ["0000:3b:02.0.json"]);
}

#[test]
fn status_is_about_the_node_and_not_about_free_vfs() {
    let node = TestNode::new(1, &[]);
    let status = |conf: Value| node.plugin().status(node.args("x", &conf));
    status(json!({"pool": "blue"})).expect("ready");
    status(json!({})).expect("a device plugin will choose");
    node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect("added");
    status(json!({"pool": "blue"})).expect("exhausted is no fault");
    for (conf, words) in [
        (json!({"pool": "green"}), "`pool` is `green`, which `"),
        (json!({"pf": "ens9"}), "PF `ens9` is not there"),
        (json!({"pf": "ens1f0", "vfs": "4-7"}), "raise `sriov_numvfs`"),
        (json!({"pool": "blue", "ipam": {"type": "nobody"}}), "IPAM plugin `nobody` is in no directory"),
    ] {
        let error = status(conf).expect_err("not ready");
        assert_eq!(u32::from(&error), 50);
        assert!(error.details().contains(words), "{error}");
    }
}

#[test]
fn addresses_of_an_ipam_plugin_are_set_and_told() {
    let node = TestNode::new(2, &[1]);
    ipam(
        &node,
        r#"
        [ "$CNI_COMMAND" = ADD ] || exit 0
        echo '{"cniVersion":"1.1.0","ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1"}],"routes":[{"dst":"0.0.0.0/0"}],
            "dns":{"nameservers":["10.1.2.2"]}}'"#,
    );
    let conf =
        |pool: &str| json!({"pool": pool, "ipam": {"type": "addresses"}, "runtimeConfig": {"ips": ["10.1.2.3/24"]}});
    let result = node.plugin().add(node.args("a", &conf("blue"))).expect("added");
    let shown = serde_json::to_value(&result).unwrap();
    assert_eq!(shown["ips"], json!([{"interface": 0, "address": "10.1.2.3/24", "gateway": "10.1.2.1"}]));
    assert_eq!(shown["dns"], json!({"nameservers": ["10.1.2.2"]}));
    let addressing = node.kernel.vf(0).netdev.expect("a netdev").addressing;
    assert_eq!(addressing.addresses, ["10.1.2.3/24".parse().unwrap()]);
    assert_eq!((addressing.routes.len(), addressing.routes[0].gateway), (1, Some([10, 1, 2, 1].into())));
    let told: Value = serde_json::from_str(&fs::read_to_string(node.path("told-ADD")).unwrap()).unwrap();
    assert_eq!((&told["runtimeConfig"], &told["name"]), (&json!({"ips": ["10.1.2.3/24"]}), &json!("fast")));
    let result = node.plugin().add(node.args("b", &conf("vms"))).expect("added");
    assert_eq!(serde_json::to_value(&result).unwrap()["ips"][0]["address"], "10.1.2.3/24");
    let mut checked = conf("blue");
    checked["cniVersion"] = json!("0.4.0");
    checked["prevResult"] = json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.1.2.3/24"}]});
    node.plugin().check(node.args("a", &checked)).expect("as it was left");
    let told: Value = serde_json::from_str(&fs::read_to_string(node.path("told-CHECK")).unwrap()).unwrap();
    assert_eq!(told["prevResult"], json!({"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}));
}

#[test]
fn an_ipam_plugin_that_fails_is_heard_and_all_is_undone() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    let conf = json!({"pool": "blue", "ipam": {"type": "addresses"}});
    for (script, code, words) in [
        (
            r#"[ "$CNI_COMMAND" = ADD ] || exit 0; echo '{"code": 11, "msg": "x", "details": "all taken"}'; exit 1"#,
            11,
            "all taken",
        ),
        (r#"[ "$CNI_COMMAND" = ADD ] || exit 0; exit 3"#, 106, "failed without a word (exit status: 3)"),
        (r#"[ "$CNI_COMMAND" = ADD ] || exit 0; echo hello"#, 106, "wrote no result"),
    ] {
        ipam(&node, script);
        let error = node.plugin().add(node.args("a", &conf)).expect_err("refused");
        assert_eq!(u32::from(&error), code, "{error}");
        assert!(error.details().contains(words), "{error}");
        assert_eq!((node.kernel.vfs(), node.allocations()), (before.clone(), vec![]));
        assert!(node.path("told-DEL").exists(), "it was not asked to take back what it may have given");
    }
}

#[test]
fn a_del_whose_ipam_plugin_fails_gives_the_vf_back_all_the_same() {
    let node = TestNode::new(1, &[]);
    let before = node.kernel.vfs();
    ipam(&node, r#"[ "$CNI_COMMAND" = ADD ] && echo '{"ips": []}'"#);
    let conf = json!({"pool": "blue", "ipam": {"type": "addresses"}});
    node.plugin().add(node.args("a", &conf)).expect("added");
    let error = node.plugin().del(node.args("a", &conf)).expect_err("IPAM failed");
    assert_eq!(u32::from(&error), 106);
    assert_eq!((node.kernel.vfs(), node.allocations()), (before, vec![]));
}

#[test]
fn an_allocation_that_cannot_be_read_is_nobodys_to_take() {
    let node = TestNode::new(2, &[]);
    fs::create_dir(node.path("state")).unwrap();
    for text in ["", "{}", r#"{"version": 2}"#] {
        fs::write(node.path("state/0000:3b:02.0.json"), text).unwrap();
        let result = node.plugin().add(node.args("a", &json!({"pool": "blue"}))).expect("the other one");
        assert_eq!(result.interfaces[0].pci_id.as_deref(), Some("0000:3b:02.1"));
        let error = node.plugin().add(node.args("b", &json!({"pool": "blue"}))).expect_err("exhausted");
        assert!(error.details().contains("cannot be read; put the VF back by hand and remove the file"), "{error}");
        node.plugin().del(node.args("a", &json!({}))).expect("deleted");
    }
}

/// Installs an IPAM plugin. A shell writes it: while a file is open for writing in a process with threads, another
/// thread's child may hold it, and it cannot be executed.
fn ipam(node: &TestNode, script: &str) {
    fs::create_dir_all(node.path("bin")).unwrap();
    let dir = node.path("").display().to_string();
    let script = format!("#!/bin/sh\ncat >'{dir}/told-'$CNI_COMMAND\n{script}\n");
    let written = Command::new("sh")
        .args(["-c", r#"printf '%s' "$1" >"$2"; chmod 755 "$2""#, "sh", &script])
        .arg(node.path("bin/addresses"))
        .status();
    assert!(written.expect("sh").success());
}
