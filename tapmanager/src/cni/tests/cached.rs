//! The result cache in the course of ADD, DEL and GC.

use std::path::Path;

use proto::tap::IfName;
use serde_json::{Map, Value};

use super::super::{Leftover, Writer};
use super::*;

/// A plugin that answers every ADD with an address.
const PLUGIN: &str = r#"test $CNI_COMMAND != ADD || echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}'"#;
const FILE: &str = "cache/results/net-0123456789abcdef0123456789abcdef-eth0";

fn entry(node: &Node) -> Value {
    serde_json::from_str(&fs::read_to_string(node.path(FILE)).unwrap()).unwrap()
}

fn prev(line: &str) -> Option<Value> {
    let conf: Value =
        serde_json::from_str(line.split_once(" {").map(|(_, rest)| format!("{{{rest}"))?.as_str()).ok()?;
    conf.get("prevResult").cloned()
}

#[tokio::test]
async fn the_result_is_kept_from_add_to_del() {
    let node = Node::new();
    node.plugin("a", PLUGIN);
    let list = node.network(chain("1.0.0", &["a"]));
    let cni = node.cni(LONG);
    let added = cni.add(&list, &node.target(), None).await.unwrap();
    let entry = entry(&node);
    assert_eq!(entry["result"], added.raw);
    assert_eq!(entry["netns"], "/run/netns/x");
    let args = json!([["IgnoreUnknown", "1"], ["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", "web-0"]]);
    assert_eq!(entry["cniArgs"], args);
    // The journal does not know what the ADD came to, as when the daemon was killed at this moment.
    cni.del(&list, &node.target(), None).await.unwrap();
    assert_eq!(node.log().lines().last().and_then(prev), Some(added.raw));
    assert!(!Path::new(&node.path(FILE)).exists());
}

#[tokio::test]
async fn the_result_stays_until_del_is_done() {
    let node = Node::new();
    node.plugin("a", &format!("test $CNI_COMMAND != DEL || exit 1; {PLUGIN}"));
    let list = node.network(chain("1.0.0", &["a"]));
    let cni = node.cni(LONG);
    cni.add(&list, &node.target(), None).await.unwrap();
    cni.del(&list, &node.target(), None).await.expect_err("the plugin fails");
    assert!(Path::new(&node.path(FILE)).exists());
}

#[tokio::test]
async fn a_broken_entry_keeps_no_del_from_being_made() {
    let node = Node::new();
    node.plugin("a", PLUGIN);
    let list = node.network(chain("1.0.0", &["a"]));
    let cni = node.cni(LONG);
    cni.add(&list, &node.target(), None).await.unwrap();
    let whole = fs::read_to_string(node.path(FILE)).unwrap();
    fs::write(node.path(FILE), &whole[..whole.len() / 2]).unwrap();
    cni.del(&list, &node.target(), None).await.unwrap();
    assert_eq!(node.log().lines().last(), Some(r#"DEL a {"cniVersion":"1.0.0","name":"net","type":"a"}"#));
    assert!(!Path::new(&node.path(FILE)).exists());
}

#[tokio::test]
async fn a_result_that_cannot_be_kept_is_an_error_of_add() {
    let node = Node::new();
    node.plugin("a", PLUGIN);
    fs::write(node.path("cache"), "a file").unwrap();
    let error =
        node.cni(LONG).add(&node.network(chain("1.0.0", &["a"])), &node.target(), None).await.expect_err("no cache");
    assert!(matches!(error, CniError::Cache(_)), "{error}");
}

#[tokio::test]
async fn what_the_pod_needs_and_no_plugin_declares_is_refused_before_any_is_run() {
    let node = Node::new();
    node.plugin("a", PLUGIN);
    let mut target = node.target();
    target.capabilities.mac = Some("02:00:00:00:00:01".parse().unwrap());
    let cni = node.cni(LONG);
    let plain = node.network(chain("1.0.0", &["a"]));
    let error = cni.add(&plain, &target, None).await.expect_err("nobody's");
    assert!(matches!(error, CniError::Incapable { capability: "mac", .. }), "{error}");
    // But DEL is made in any case.
    cni.del(&plain, &target, None).await.unwrap();
    assert_eq!(node.log().lines().count(), 1);
    let able = json!({"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "a", "capabilities": {"mac": true}}]});
    let able = node.network(able);
    let added = cni.add(&able, &target, None).await.unwrap();
    cni.check(&able, &target, &added.raw).await.unwrap();
    cni.del(&able, &target, Some(&added.raw)).await.unwrap();
    let told =
        node.log().lines().filter(|line| line.contains(r#""runtimeConfig":{"mac":"02:00:00:00:00:01"}"#)).count();
    assert_eq!(told, 3, "{}", node.log());
}

#[tokio::test]
async fn what_only_an_entry_of_ours_tells_of_is_deleted_as_it_was_added() {
    let node = Node::new();
    node.plugin("a", PLUGIN);
    node.plugin("gone", &format!("echo \"<$CNI_NETNS>\" > {}; {PLUGIN}", node.path("netns")));
    let cni = node.cni(LONG);
    // Added by a configuration that is another one now.
    let old = node.network(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "gone", "x": 1, "capabilities": {"aliases": true}},
    ]}));
    let mut target = node.target();
    target.capabilities.aliases = vec!["web".to_owned()];
    let added = cni.add(&old, &target, None).await.unwrap();
    let kept: IfName = "net1".parse().unwrap();
    target.ifname = &kept;
    cni.add(&old, &target, None).await.unwrap();
    let entries = |what: &str| {
        let names = fs::read_dir(node.path("cache/results")).unwrap();
        names.filter(|name| name.as_ref().unwrap().file_name().to_str().unwrap().contains(what)).count()
    };
    // Of another runtime, of other daemons like this one, and half ones.
    let put = |link: &str, change: &dyn Fn(&mut Map<String, Value>)| {
        let mut entry = entry(&node);
        entry["ifName"] = link.into();
        change(entry.as_object_mut().unwrap());
        fs::write(node.path(FILE).replace("eth0", link), entry.to_string()).unwrap();
    };
    put("eth6", &|entry| drop(entry.remove("virtlet.instance").unwrap()));
    put("eth7", &|entry| drop(entry.insert("virtlet.instance".to_owned(), "89abcdef".into())));
    put("eth8", &|entry| drop(entry.remove("virtlet.owner").unwrap()));
    fs::write(node.path(FILE).replace("eth0", "eth9"), "{").unwrap();

    let leftovers = cni.leftovers().await.unwrap();
    let of = |link: &str| leftovers.iter().find(|leftover| leftover.ifname.as_str() == link);
    let writers = ["eth0", "net1", "eth6", "eth7", "eth8", "eth9"].map(|link| of(link).map(|of| of.writer));
    let (here, unknown, other) = (Some(Writer::Here), Some(Writer::Unknown), Some(Writer::Other));
    assert_eq!(writers, [here, here, unknown, other, None, None]);
    let stale = of("eth0").unwrap();
    assert_eq!((&stale.pod, stale.netns.as_path()), (target.container_id, target.netns));
    // Another attachment stands in its place.
    cni.del_leftover(&Leftover { netns: "/run/netns/z".into(), ..stale.clone() }).await.unwrap();
    assert!(!node.log().contains("DEL"), "{}", node.log());
    for _ in 0..2 {
        cni.del_leftover(stale).await.unwrap();
    }
    let log = node.log();
    let (_, last) = log.rsplit_once('\n').unwrap();
    // What is at the path of its namespace is none, so plugins are told of none.
    assert_eq!(fs::read_to_string(node.path("netns")).unwrap(), "<>\n");
    let expected = json!({
        "cniVersion": "1.0.0", "name": "net", "type": "gone", "x": 1,
        "runtimeConfig": {"aliases": ["web"]}, "prevResult": added.raw,
    });
    assert_eq!(last, format!("DEL gone {expected}"));
    assert_eq!(log.lines().filter(|line| line.starts_with("DEL")).count(), 1, "{log}");
    assert_eq!(["net1", "eth6", "eth7", "eth8", "eth9"].map(entries), [1; 5]);
    assert!(!Path::new(&node.path(FILE)).exists());
}
