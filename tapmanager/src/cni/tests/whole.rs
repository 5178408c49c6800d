//! What is about a network as a whole: STATUS, GC, versions, and the networks of a node.

use std::sync::Arc;

use proto::tap::{IfName, PodId};

use super::*;
use crate::cni::Unready;

fn pod(digit: char) -> PodId {
    digit.to_string().repeat(32).parse().unwrap()
}

#[tokio::test]
async fn status_is_that_of_every_plugin_in_its_own_words() {
    let node = Node::new();
    node.plugin("well", "true");
    node.plugin("ill", r#"echo '{"cniVersion":"1.1.0","code":50,"msg":"no route to the control plane"}'; exit 1"#);
    let cni = node.cni(LONG);
    cni.status(&node.network(chain("1.1.0", &["well", "well"]))).await.unwrap();
    let error = cni.status(&node.network(chain("1.1.0", &["well", "ill"]))).await.expect_err("ill");
    assert_eq!(
        common::Chain(&error).to_string(),
        "CNI plugin `ill` of network `net` failed at STATUS: code 50 (not available): no route to the control plane"
    );
    // Before 1.1.0 nobody is asked, but all must be there.
    cni.status(&node.network(chain("1.0.0", &["well", "ill"]))).await.unwrap();
    let error = cni.status(&node.network(chain("1.0.0", &["well", "gone"]))).await.expect_err("not installed");
    assert!(common::Chain(&error).to_string().contains("`gone` of network `net`"), "{error}");
    let well = r#"STATUS well {"cniVersion":"1.1.0","name":"net","type":"well"}"#;
    assert_eq!(node.log(), [well, well, well, &well.replace("well", "ill")].join("\n"));
}

#[tokio::test]
async fn status_is_told_of_no_attachment() {
    let node = Node::new();
    node.plugin("a", &format!("env > {}", node.path("env")));
    node.cni(LONG).status(&node.network(chain("1.1.0", &["a"]))).await.unwrap();
    let env = fs::read_to_string(node.path("env")).unwrap();
    let mut names: Vec<_> = env.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !matches!(*name, "PWD" | "_"));
    names.sort_unstable();
    assert_eq!(names, ["CNI_COMMAND", "CNI_PATH", "PATH"]);
}

#[tokio::test]
async fn nobody_waits_for_a_plugin_that_hangs_and_one_run_of_it_is_enough() {
    let node = Node::new();
    node.plugin("hangs", "sleep 1000");
    node.plugin("well", "true");
    let configure = |kind| fs::write(node.path("net.d/10-net.conflist"), chain("1.1.0", &[kind]).to_string()).unwrap();
    fs::create_dir(node.path("net.d")).unwrap();
    let cni = Arc::new(node.cni(LONG));
    let none = cni.ready().await.outcome.expect_err("no network");
    assert!(none.to_string().starts_with("no network is configured"), "{none}");
    configure("hangs");
    for _ in 0..2 {
        let silent = cni.ready().await.outcome.expect_err("silent");
        assert!(matches!(silent, Unready::Silent { .. }), "{silent}");
    }
    assert!(node.log().matches("STATUS hangs").count() <= 1, "asked twice at a time");
    // Another network is another question, and an answer holds for a while.
    configure("well");
    for _ in 0..100 {
        cni.ready().await.outcome.unwrap();
        cni.known().outcome.unwrap();
    }
    assert_eq!(node.log().matches("STATUS well").count(), 1);
    fs::remove_file(node.path("net.d/10-net.conflist")).unwrap();
    assert!(matches!(cni.ready().await.outcome, Err(Unready::Conf(_))));
}

#[tokio::test]
async fn gc_tells_every_plugin_what_is_valid() {
    let node = Node::new();
    node.plugin("a", "exit 1");
    node.plugin("b", "true");
    let list = node.network(json!({"cniVersion": "1.1.0", "name": "net", "plugins": [
        {"type": "a", "capabilities": {"mac": true}}, {"type": "b", "x": 1},
    ]}));
    let link = |name: &str| name.parse::<IfName>().unwrap();
    let valid = [(pod('1'), link("eth0")), (pod('1'), link("net1")), (pod('2'), link("eth0"))];
    let error = node.cni(LONG).gc(&list, &valid).await.expect_err("a fails");
    assert_eq!(error.to_string(), "CNI plugin `a` of network `net` failed at GC");
    let one = |digit: char, link: &str| json!({"containerID": digit.to_string().repeat(32), "ifname": link});
    let valid = json!([one('1', "eth0"), one('1', "net1"), one('2', "eth0")]);
    let base = json!({
        "cni.dev/attachments": valid, "cni.dev/valid-attachments": valid, "cniVersion": "1.1.0", "name": "net",
    });
    let of = |kind: &str, mut conf: serde_json::Value| {
        conf["type"] = kind.into();
        format!("GC {kind} {conf}")
    };
    let mut second = base.clone();
    second["x"] = 1.into();
    assert_eq!(node.log(), format!("{}\n{}", of("a", base), of("b", second)));
}

#[tokio::test]
async fn gc_is_not_asked_for_where_it_is_not_wanted_or_not_known() {
    let node = Node::new();
    let list = node.network(json!({
        "cniVersion": "1.1.0", "name": "net", "disableGC": true, "plugins": [{"type": "missing"}],
    }));
    let error = node.cni(LONG).gc(&list, &[]).await.expect_err("disabled");
    assert_eq!(error.to_string(), "network `net` is not collected by its plugins: `disableGC` is set");
    let old = node.network(chain("1.0.0", &["missing"]));
    assert!(matches!(node.cni(LONG).gc(&old, &[]).await, Err(CniError::NoGc { .. })));
}

#[tokio::test]
async fn a_plugin_tells_its_versions_once_until_it_is_replaced() {
    let node = Node::new();
    let speaks = |version: &str| {
        format!(
            r#"case $CNI_COMMAND in
               VERSION) echo '{{"cniVersion":"1.1.0","supportedVersions":["{version}"]}}';;
               ADD) echo '{{"cniVersion":"{version}"}}';;
               esac"#
        )
    };
    node.plugin("a", &speaks("1.0.0"));
    let mut network = chain("0.4.0", &["a"]);
    network["cniVersions"] = json!(["0.4.0", "1.0.0", "1.1.0"]);
    let list = node.network(network);
    let cni = node.cni(LONG);
    for _ in 0..2 {
        assert_eq!(cni.add(&list, &node.target(), None).await.unwrap().raw["cniVersion"], "1.0.0");
    }
    fs::remove_file(node.path("bin/a")).unwrap();
    node.plugin("a", &format!("{}\n# another release", speaks("0.4.0")));
    assert_eq!(cni.add(&list, &node.target(), None).await.unwrap().raw["cniVersion"], "0.4.0");
    let commands: Vec<_> = node.log().lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
    assert_eq!(commands, ["VERSION", "ADD", "ADD", "VERSION", "ADD"]);
}

#[tokio::test]
async fn every_version_makes_the_whole_round() {
    // What each version has, and in which form a plugin of that version answers.
    for (version, check, gc) in [
        ("0.3.0", false, false),
        ("0.3.1", false, false),
        ("0.4.0", true, false),
        ("1.0.0", true, false),
        ("1.1.0", true, true),
    ] {
        let node = Node::new();
        let family = if check && version != "0.4.0" { "" } else { r#""version":"4","# };
        let answer = format!(
            r#"{{"cniVersion":"{version}","interfaces":[{{"name":"eth0","sandbox":"/x"}}],
                "ips":[{{{family}"address":"10.0.0.2/24","gateway":"10.0.0.1","interface":0}}],
                "routes":[{{"dst":"0.0.0.0/0"}}]}}"#
        );
        node.plugin("a", &format!("test $CNI_COMMAND != ADD || echo '{answer}'"));
        let list = node.network(chain(version, &["a"]));
        let cni = node.cni(LONG);
        cni.status(&list).await.unwrap();
        let added = cni.add(&list, &node.target(), None).await.unwrap();
        assert_eq!(added.raw, serde_json::from_str::<serde_json::Value>(&answer).unwrap(), "{version}");
        assert_eq!(added.view.ips.first().unwrap().address, "10.0.0.2/24".parse().unwrap());
        assert_eq!(added.view.ips.first().unwrap().interface, Some(0));
        assert_eq!(cni.check(&list, &node.target(), &added.raw).await.is_ok(), check, "{version}");
        assert_eq!(cni.gc(&list, &[(node.target().container_id.clone(), "eth0".parse().unwrap())]).await.is_ok(), gc);
        cni.del(&list, &node.target(), None).await.unwrap();
        let told: Vec<_> = node.log().lines().filter_map(|line| Some(line.split_once(' ')?.0.to_owned())).collect();
        let mut expected = vec!["ADD", "CHECK", "GC", "DEL"];
        expected.retain(|command| (check || *command != "CHECK") && (gc || *command != "GC"));
        if gc {
            expected.insert(0, "STATUS");
        }
        assert_eq!(told, expected, "{version}");
        let del = node.log().lines().last().unwrap().contains("prevResult");
        assert_eq!(del, check, "{version}");
    }
}

#[test]
fn networks_are_those_of_the_directory_now() {
    let node = Node::new();
    let cni = node.cni(LONG);
    assert!(matches!(cni.default_network(), Err(ConfError::None { .. })));
    fs::create_dir(node.path("net.d")).unwrap();
    let put = |file: &str, name: &str| {
        let mut list = chain("1.0.0", &["a"]);
        list["name"] = name.into();
        fs::write(node.path(&format!("net.d/{file}")), list.to_string()).unwrap();
    };
    put("20-b.conflist", "b");
    assert_eq!(cni.default_network().unwrap().name(), "b");
    put("10-a.conflist", "a");
    fs::write(node.path("net.d/00-bad.conf"), "{").unwrap();
    assert_eq!(cni.default_network().unwrap().name(), "a");
    assert_eq!(cni.network("b").unwrap().name(), "b");
    assert!(matches!(cni.network("c"), Err(ConfError::Unknown { .. })));
    let networks = cni.networks().unwrap();
    assert_eq!((networks.lists.len(), networks.broken.len()), (2, 1));
}

#[tokio::test]
async fn only_multus_is_asked_for_what_it_delegated() {
    let node = Node::new();
    let dir = node.path("multus");
    fs::create_dir_all(format!("{dir}/results")).unwrap();
    let pod = node.target().container_id.as_str().to_owned();
    let entry = json!({
        "kind": "cniCacheV1", "containerId": pod, "config": "", "ifName": "net1", "networkName": "other",
        "result": {"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": "/x"}]},
    });
    fs::write(format!("{dir}/results/other-{pod}-net1"), entry.to_string()).unwrap();
    let cni = node.cni(LONG);
    let of = async |kind: &str| {
        let list = node.network(chain("1.0.0", &[kind]));
        let delegated = cni.delegated(&list, &node.target(), dir.as_ref()).await.unwrap();
        delegated.into_iter().map(|one| (one.network, one.ifname.as_str().to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(of("bridge").await, []);
    for kind in ["multus", "multus-shim"] {
        assert_eq!(of(kind).await, [("other".to_owned(), "net1".to_owned())]);
    }
}

#[tokio::test]
async fn pods_do_not_wait_for_each_other() {
    let node = Node::new();
    // The plugin of the one pod ends when that of the other runs.
    node.fifo("meet");
    let (meet, answer) = (node.path("meet"), r#"echo '{"cniVersion":"1.0.0"}'"#);
    node.plugin("a", &format!("case $CNI_CONTAINERID in 1*) echo up > {meet};; *) read up < {meet};; esac; {answer}"));
    let list = node.network(chain("1.0.0", &["a"]));
    let cni = node.cni(LONG);
    let (one, two) = (pod('1'), pod('2'));
    let one = Target { container_id: &one, ..node.target() };
    let two = Target { container_id: &two, ..node.target() };
    let (first, second) = tokio::join!(cni.add(&list, &one, None), cni.add(&list, &two, None));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(fs::read_dir(node.path("cache/results")).unwrap().count(), 2);
}
