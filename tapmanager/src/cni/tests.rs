//! The runtime against plugins that are shell scripts, and in [`real`] against Debian's in namespaces of their own.

mod cached;
mod fakes;
mod real;
mod whole;

use std::fs;
use std::time::Duration;

use serde_json::json;

use super::version::SpecVersion;
use super::*;
use fakes::{LONG, Node, chain};

const OK: &str = r#"echo '{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}'"#;

#[tokio::test]
async fn a_plugin_is_told_all_that_the_specification_says_and_nothing_else() {
    let node = Node::new();
    node.plugin("one", &format!("env > {}; {OK}", node.path("env")));
    let list = node.network(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "one", "mtu": 9000, "capabilities": {"portMappings": true}},
    ]}));
    let added = node.cni(LONG).add(&list, &node.target(), None).await.unwrap();
    assert_eq!(added.view.ips.len(), 1);
    let env = fs::read_to_string(node.path("env")).unwrap();
    let mut env: Vec<_> = env.lines().filter(|line| !line.starts_with("PWD=") && !line.starts_with("_=")).collect();
    env.sort_unstable();
    let env = env.join("\n").replace(&node.path(""), "NODE/");
    insta::assert_snapshot!(env, @"
    CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0
    CNI_COMMAND=ADD
    CNI_CONTAINERID=0123456789abcdef0123456789abcdef
    CNI_IFNAME=eth0
    CNI_NETNS=/run/netns/x
    CNI_PATH=NODE/bin
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
    ");
    assert_eq!(node.log(), r#"ADD one {"cniVersion":"1.0.0","mtu":9000,"name":"net","type":"one"}"#);
}

/// Until its gate opens a plugin runs, and has nothing to go by.
#[tokio::test]
async fn a_plugin_is_told_what_to_do_when_its_gate_opens() {
    for opens in [true, false] {
        let node = Node::new();
        let (up, told) = (node.path("up"), node.path("told"));
        node.fifo("up");
        node.plugin_without_log("one", &format!("echo up > {up}; cat > {told}; {OK}"));
        let list = node.network(chain("1.0.0", &["one"]));
        let gate: Gate<'_> = Box::pin(async {
            let up = tokio::task::spawn_blocking(move || fs::read_to_string(up));
            assert_eq!(up.await.unwrap().unwrap(), "up\n");
            assert_eq!(fs::read_to_string(&told).unwrap_or_default(), "");
            opens
        });
        let added = node.cni(LONG).add(&list, &node.target(), Some(gate)).await;
        assert_eq!(added.is_ok(), opens);
        assert_eq!(fs::read_to_string(&told).unwrap_or_default().is_empty(), !opens);
    }
}

#[tokio::test]
async fn a_chain_runs_forward_and_back_with_the_result_handed_on() {
    let node = Node::new();
    for at in ["a", "b", "c"] {
        node.plugin(
            at,
            &format!(r#"test $CNI_COMMAND = ADD && echo '{{"cniVersion":"0.4.0","from":"{at}"}}' || true"#),
        );
    }
    let list = node.network(chain("0.4.0", &["a", "b", "c"]));
    let cni = node.cni(LONG);
    let added = cni.add(&list, &node.target(), None).await.unwrap();
    assert_eq!(added.raw, json!({"cniVersion": "0.4.0", "from": "c"}));
    cni.check(&list, &node.target(), &added.raw).await.unwrap();
    cni.del(&list, &node.target(), Some(&added.raw)).await.unwrap();
    cni.del(&list, &node.target(), None).await.unwrap();
    insta::assert_snapshot!(node.log(), @r#"
    ADD a {"cniVersion":"0.4.0","name":"net","type":"a"}
    ADD b {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"a"},"type":"b"}
    ADD c {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"b"},"type":"c"}
    CHECK a {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"a"}
    CHECK b {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"b"}
    CHECK c {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"c"}
    DEL c {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"c"}
    DEL b {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"b"}
    DEL a {"cniVersion":"0.4.0","name":"net","prevResult":{"cniVersion":"0.4.0","from":"c"},"type":"a"}
    DEL c {"cniVersion":"0.4.0","name":"net","type":"c"}
    DEL b {"cniVersion":"0.4.0","name":"net","type":"b"}
    DEL a {"cniVersion":"0.4.0","name":"net","type":"a"}
    "#);
    assert!(cni.plugin_micros() > 0);
}

#[tokio::test]
async fn before_0_4_0_there_is_no_check_and_del_gets_no_result() {
    let node = Node::new();
    node.plugin("a", "true");
    let list = node.network(chain("0.3.1", &["a"]));
    let prev = json!({"cniVersion": "0.3.1"});
    let cni = node.cni(LONG);
    let error = cni.check(&list, &node.target(), &prev).await.expect_err("no CHECK");
    assert_eq!(error.to_string(), "network `net` is of CNI version 0.3.1, which has no CHECK; 0.4.0 and later have");
    cni.del(&list, &node.target(), Some(&prev)).await.unwrap();
    assert_eq!(node.log(), r#"DEL a {"cniVersion":"0.3.1","name":"net","type":"a"}"#);
}

#[tokio::test]
async fn a_disabled_check_asks_nobody() {
    let node = Node::new();
    let list = node.network(json!({
        "cniVersion": "1.0.0", "name": "net", "disableCheck": true, "plugins": [{"type": "missing"}],
    }));
    node.cni(LONG).check(&list, &node.target(), &json!({})).await.unwrap();
}

/// ADD with one plugin, which fails: the error with its causes.
async fn failing_add(script: &str, limit: Duration) -> String {
    let node = Node::new();
    node.plugin("bad", script);
    node.add_error(&["bad"], limit).await
}

#[tokio::test]
async fn the_plugins_own_error_is_kept() {
    for (script, expected) in [
        (
            r#"echo '{"cniVersion":"1.0.0","code":7,"msg":"bad config","details":"mtu is -1"}'; exit 1"#,
            "code 7 (invalid network configuration): bad config: mtu is -1",
        ),
        (r#"echo '{"code":999,"msg":"no version here"}'; exit 1"#, "code 999: no version here"),
        (r#"echo '{"code":11,"msg":"busy"}'"#, "code 11 (try again later): busy"),
        (
            r#"echo '{"code":1,"msg":"incompatible CNI versions","details":"config is 1.0.0"}'; exit 1"#,
            "code 1 (incompatible CNI version): incompatible CNI versions: config is 1.0.0; \
             change `cniVersion` of the network, or install another release of the plugin",
        ),
        (r#"echo "{\"code\":100,\"msg\":\"a\\\\u001b[2Jb\"}"; exit 1"#, "code 100: a [2Jb"),
        ("echo oops; echo why >&2; exit 3", "exit status: 3; stdout: `oops`; stderr: `why`"),
        ("exit 2", "exit status: 2"),
        ("kill -9 $$", "signal: 9 (SIGKILL)"),
        ("echo '{\"ips\":'; echo warn >&2", "it ended well, but wrote no result; stdout: `{\"ips\":`; stderr: `warn`"),
        ("echo '[1]'", "it ended well, but wrote no result; stdout: `[1]`"),
        ("true", "it ended well, but wrote no result"),
        (
            r#"echo '{"ips":[{"address":"10.0.0.2"}]}'"#,
            "its result cannot be used: its address `10.0.0.2` is not an address with a prefix length",
        ),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", &format!("exit status: 1; stderr: `{}`", "x".repeat(1024))),
    ] {
        let said = failing_add(script, LONG).await;
        assert_eq!(said, format!("CNI plugin `bad` of network `net` failed at ADD: {expected}"), "{script}");
    }
}

#[tokio::test]
async fn a_later_plugin_of_a_chain_must_answer_too() {
    let node = Node::new();
    node.plugin("a", OK);
    node.plugin("b", "true");
    let said = node.add_error(&["a", "b"], LONG).await;
    assert_eq!(said, "CNI plugin `b` of network `net` failed at ADD: it ended well, but wrote no result");
}

#[tokio::test]
async fn a_missing_or_unusable_plugin_is_named() {
    let node = Node::new();
    let said = node.add_error(&["gone"], LONG).await;
    let expected = format!("it is in none of the plugin directories ({}); install it there", node.path("bin"));
    assert_eq!(said, format!("CNI plugin `gone` of network `net` failed at ADD: {expected}"));
    node.plugin("plain", "true");
    node.chmod("plain", 0o644);
    let said = node.add_error(&["plain"], LONG).await;
    assert!(
        said.contains("failed to start it; is it an executable of this machine's kind?: Permission denied"),
        "{said}"
    );
}

#[tokio::test]
async fn a_plugin_that_others_may_write_is_not_begun_and_makes_the_network_not_ready() {
    let node = Node::new();
    node.plugin("one", OK);
    let (cni, list) = (node.cni(LONG), node.network(chain("1.0.0", &["one"])));
    cni.status(&list).await.expect("ready");
    node.chmod("one", 0o757);
    let error = cni.add(&list, &node.target(), None).await.expect_err("denied");
    assert_eq!(error.begun(&list), 0);
    let said = Chain(&cni.status(&list).await.expect_err("not ready")).to_string();
    assert!(said.contains("plugin `one` of network `net`") && said.contains("it was not started: others"), "{said}");
    assert!(!Path::new(&node.path("log")).exists(), "it was started");
}

#[tokio::test]
async fn a_plugin_that_does_not_end_is_killed_with_its_children() {
    let node = Node::new();
    // The lock is held by the plugin and two children, one of which keeps the pipes and one of which does not.
    let lock = node.path("lock");
    let hang = format!("exec 9>{lock}; flock 9; sleep 1000 & sleep 1000 >/dev/null 2>&1 </dev/null & wait");
    node.plugin("bad", &hang);
    let said = node.add_error(&["bad"], Duration::from_millis(700)).await;
    assert!(said.ends_with("it did not end within 0.7 s, so it and its children were killed"), "{said}");
    node.expect_unlocked("lock");
}

#[tokio::test]
async fn a_plugin_that_ended_but_left_a_child_on_its_pipes_is_not_waited_for_longer() {
    let said = failing_add(&format!("{OK}; sleep 1000 &"), Duration::from_millis(700)).await;
    assert!(said.ends_with("it did not end within 0.7 s, so it and its children were killed"), "{said}");
}

#[tokio::test]
async fn when_nobody_waits_any_more_the_plugin_has_the_rest_of_its_time() {
    let node = Node::new();
    let (lock, ready) = (node.path("lock"), node.path("ready"));
    node.fifo("ready");
    node.plugin("bad", &format!("exec 9>{lock}; flock 9; sleep 1000 & echo up > {ready}; wait"));
    let list = node.network(chain("1.0.0", &["bad"]));
    let cni = node.cni(Duration::from_secs(3));
    let target = node.target();
    let up = tokio::task::spawn_blocking(move || fs::read_to_string(ready));
    tokio::select! {
        added = cni.add(&list, &target, None) => panic!("{added:?}"),
        up = up => assert_eq!(up.unwrap().unwrap(), "up\n"),
    }
    node.expect_unlocked("lock");
}

#[tokio::test]
async fn endless_output_is_cut_off() {
    let said = failing_add("cat /dev/zero", LONG).await;
    assert!(said.ends_with("it wrote more than 1048576 bytes, so it and its children were killed"), "{said}");
    // On standard error it is only noise.
    let said = failing_add("head -c 3000000 /dev/zero | tr '\\0' y >&2; exit 1", LONG).await;
    assert_eq!(said.matches('y').count(), 1024, "{said}");
}

#[tokio::test]
async fn a_plugin_that_closes_its_input_early_is_none_the_worse() {
    let node = Node::new();
    node.plugin_without_log("deaf", &format!("exec 0<&-; {OK}"));
    let mut network = chain("1.0.0", &["deaf"]);
    // More than a pipe holds.
    network["plugins"][0]["padding"] = "x".repeat(300_000).into();
    let list = node.network(network);
    assert!(node.cni(LONG).add(&list, &node.target(), None).await.is_ok());
}

#[tokio::test]
async fn all_plugins_are_asked_at_del_and_all_errors_are_told() {
    let node = Node::new();
    for at in ["a", "c"] {
        node.plugin(at, &format!(r#"echo '{{"code":100,"msg":"{at} is stuck"}}'; exit 1"#));
    }
    node.plugin("b", "echo junk that nobody reads");
    let list = node.network(chain("1.0.0", &["a", "b", "c"]));
    let error = node.cni(LONG).del(&list, &node.target(), None).await.expect_err("two fail");
    assert_eq!(
        error.to_string(),
        "CNI plugin `c` of network `net` failed at DEL: code 100: c is stuck; and \
         CNI plugin `a` of network `net` failed at DEL: code 100: a is stuck"
    );
    assert_eq!(node.log().lines().count(), 3);
    assert!(!error.is_deadline());
}

#[tokio::test]
async fn arguments_that_would_change_the_list_are_refused() {
    let node = Node::new();
    let list = node.network(chain("1.0.0", &["a"]));
    for bad in ["x;K8S_POD_NAME=y", "a=b", "a\0", "a\n"] {
        let mut target = node.target();
        target.args = vec![("K8S_POD_NAME", bad.to_owned())];
        let error = node.cni(LONG).add(&list, &target, None).await.expect_err("hostile");
        assert_eq!(
            error.to_string(),
            "`K8S_POD_NAME` cannot be told to CNI plugins: it holds `;`, `=` or a control character"
        );
    }
}

#[tokio::test]
async fn where_the_network_leaves_a_choice_the_newest_common_version_is_spoken() {
    let node = Node::new();
    let speaks = |versions: &str| {
        format!(
            r#"case $CNI_COMMAND in
               VERSION) echo '{{"cniVersion":"1.1.0","supportedVersions":[{versions}]}}';;
               ADD) echo '{{"cniVersion":"1.0.0"}}';;
               esac"#
        )
    };
    node.plugin("new", &speaks(r#""0.4.0","1.0.0","1.1.0""#));
    node.plugin("old", &speaks(r#""0.3.0","0.4.0","1.0.0""#));
    let mut network = chain("0.4.0", &["new", "old", "new"]);
    network["cniVersions"] = json!(["0.4.0", "1.0.0", "1.1.0"]);
    let list = node.network(network);
    let cni = node.cni(LONG);
    let added = cni.add(&list, &node.target(), None).await.unwrap();
    assert_eq!(added.raw["cniVersion"], "1.0.0");
    cni.del(&list, &node.target(), Some(&added.raw)).await.unwrap();
    let told: Vec<_> = node.log().lines().map(|line| line.split(" {").next().unwrap_or_default().to_owned()).collect();
    // DEL speaks as ADD did and asks nobody.
    assert_eq!(told, ["VERSION new", "VERSION old", "ADD new", "ADD old", "ADD new", "DEL new", "DEL old", "DEL new"]);

    node.plugin("old", &speaks(r#""0.3.0""#));
    let error = cni.add(&list, &node.target(), None).await.expect_err("nothing in common");
    assert_eq!(
        error.to_string(),
        "the plugins of network `net` have no CNI version in common; set one `cniVersion` that all speak"
    );
    // But what was added must be removable, even without its result.
    assert!(cni.del(&list, &node.target(), None).await.is_ok());
}

#[test]
fn capabilities_are_handed_to_who_declares_them() {
    let list = NetworkList::try_from(json!({"cniVersion": "1.0.0", "name": "net", "plugins": [
        {"type": "a", "capabilities": {"mac": true, "ips": false}},
        {"type": "b"},
    ]}));
    let list = list.unwrap();
    let offered = Map::from_iter([("mac".to_owned(), json!("02::")), ("ips".to_owned(), json!([]))]);
    let told: Vec<_> = list
        .plugins()
        .iter()
        .map(|plugin| Value::Object(plugin::request(plugin, "net", SpecVersion::V100, &offered, None)))
        .collect();
    assert_eq!(
        told,
        [
            json!({"cniVersion": "1.0.0", "name": "net", "type": "a", "runtimeConfig": {"mac": "02::"}}),
            json!({"cniVersion": "1.0.0", "name": "net", "type": "b"}),
        ]
    );
}
