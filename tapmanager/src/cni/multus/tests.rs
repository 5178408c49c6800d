use std::fs;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const POD: &str = "0123456789abcdef";

/// A directory as Multus leaves it.
struct Left {
    dir: tempfile::TempDir,
}

impl Left {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("results")).unwrap();
        Self { dir }
    }

    /// The form of libcni's cache as Multus 3.9 to 4.2 vendor it.
    fn result(&self, network: &str, pod: &str, link: &str, more: &Value) {
        let mut entry = json!({
            "kind": "cniCacheV1", "containerId": pod, "config": "e30=", "ifName": link, "networkName": network,
            "netns": "/run/netns/x", "cniArgs": [["IgnoreUnknown", "true"], ["K8S_POD_NAME", "web"]],
            "capabilityArgs": {"CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/x"},
            "result": {
                "cniVersion": "0.4.0",
                "interfaces": [{"name": link, "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/x"}],
                "ips": [{"version": "4", "interface": 0, "address": "10.1.0.2/24"}],
                "dns": {},
            },
        });
        for (member, value) in more.as_object().unwrap() {
            entry[member] = value.clone();
        }
        fs::write(self.dir.path().join(format!("results/{network}-{pod}-{link}")), entry.to_string()).unwrap();
    }

    fn list(&self, list: &Value) {
        fs::write(self.dir.path().join(POD), list.to_string()).unwrap();
    }

    fn read(&self) -> Result<Vec<(String, String)>, String> {
        let found = delegated(self.dir.path(), &POD.parse().unwrap(), &"eth0".parse().unwrap());
        let found = found.map_err(|error| common::Chain(&error).to_string())?;
        Ok(found.into_iter().map(|one| (one.network, one.ifname.as_str().to_owned())).collect())
    }
}

fn delegate(network: &str, link: &str) -> Value {
    // Multus writes both forms, and the unused one empty.
    json!({
        "Conf": {"cniVersion": "0.3.1", "name": network, "type": "macvlan", "ipam": {}, "dns": {}},
        "ConfList": {"name": "", "plugins": null}, "Name": "ns/nad", "ifnameRequest": link, "Bytes": "e30=",
    })
}

fn pairs(expected: &[(&str, &str)]) -> Result<Vec<(String, String)>, String> {
    Ok(expected.iter().map(|(network, link)| ((*network).to_owned(), (*link).to_owned())).collect())
}

#[test]
fn what_other_networks_gave_is_found_in_the_order_of_the_list() {
    let left = Left::new();
    left.result("default", POD, "eth0", &json!({}));
    left.result("b-net", POD, "net1", &json!({}));
    left.result("a-net", POD, "uplink", &json!({}));
    left.result("a-net", POD, "net3", &json!({}));
    left.result("a-net", "fedcba9876543210", "net1", &json!({}));
    let mut conflist = delegate("", "net3");
    conflist["ConfList"]["name"] = "a-net".into();
    left.list(&json!([delegate("default", ""), delegate("b-net", ""), delegate("a-net", "uplink"), conflist]));
    assert_eq!(left.read(), pairs(&[("b-net", "net1"), ("a-net", "uplink"), ("a-net", "net3")]));
}

#[test]
fn without_a_list_that_is_understood_the_names_of_the_links_tell_the_order() {
    let left = Left::new();
    for link in ["net10", "net2", "eth0", "net1"] {
        left.result("net", POD, link, &json!({}));
    }
    let by_name = pairs(&[("net", "net1"), ("net", "net2"), ("net", "net10")]);
    assert_eq!(left.read(), by_name);
    for strange in [json!({}), json!([1]), json!("x"), json!([]), json!([{}, {}])] {
        left.list(&strange);
        assert_eq!(left.read(), by_name, "{strange}");
    }
}

#[test]
fn a_pod_without_other_networks_has_none() {
    let left = Left::new();
    assert_eq!(left.read(), pairs(&[]));
    left.result("default", POD, "eth0", &json!({}));
    left.list(&json!([delegate("default", "")]));
    assert_eq!(left.read(), pairs(&[]));
    assert_eq!(delegated(Path::new("/gone"), &POD.parse().unwrap(), &"eth0".parse().unwrap()).unwrap(), []);
}

#[test]
fn our_own_entries_in_the_same_directory_are_not_multus() {
    let left = Left::new();
    left.result("net", POD, "net1", &json!({"virtlet.owner": "virtlet"}));
    assert_eq!(left.read(), pairs(&[]));
}

#[test]
fn a_network_that_is_listed_but_has_no_result_is_an_error() {
    let left = Left::new();
    left.result("net", POD, "net2", &json!({}));
    left.list(&json!([delegate("default", ""), delegate("net", "")]));
    let said = left.read().expect_err("missing").replace(left.dir.path().to_str().unwrap(), "DIR");
    assert_eq!(
        said,
        "Multus says that link `net1` is of network `net`, but `DIR` has no result of it; \
         is that the `cniDir` of Multus?"
    );
}

#[test]
fn a_broken_result_is_an_error() {
    for (bad, expected) in [
        (json!({"kind": "x"}), "its kind is not `cniCacheV1`"),
        (json!({"result": {"ips": [{"address": "x"}]}}), "its address `x` is not an address with a prefix length"),
        (json!({"ifName": "net2"}), "it is about another attachment than its name"),
    ] {
        let left = Left::new();
        left.result("net", POD, "net1", &bad);
        let said = left.read().expect_err("broken");
        assert!(said.ends_with(expected), "{said}");
    }
    let left = Left::new();
    left.result("net", POD, "averyveryverylongname", &json!({"result": {}}));
    assert!(left.read().expect_err("a name").starts_with("Multus' delegate `net` has a link that cannot be"));
    let left = Left::new();
    for at in 0..65 {
        left.result("net", POD, &format!("net{at}"), &json!({}));
    }
    assert_eq!(left.read().expect_err("many"), "Multus has 65 results of the pod, more than 64");
}

proptest! {
    #[test]
    fn no_list_panics(text in ".{0,200}", names in proptest::collection::vec(".{0,20}", 0..4)) {
        let left = Left::new();
        left.result("net", POD, "net1", &json!({}));
        fs::write(left.dir.path().join(POD), text).unwrap();
        prop_assert_eq!(left.read(), pairs(&[("net", "net1")]));
        left.list(&Value::Array(names.iter().map(|name| delegate(name, name)).collect()));
        let _ = left.read();
    }
}
