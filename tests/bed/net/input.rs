//! Bad input to `tapmanager`: messages, configuration, conflists and plugins. Each is a clear error, and nothing is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::tap::PodPhase;
use serde_json::json;
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::handoff::{dial, exchange};
use tests::net_node::{NetNode, config, pod_id};
use tests::pace;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "net::malformed_messages_are_refused", deadline: DEADLINE, run: messages },
    Case { name: "net::unknown_configuration_keys_are_refused", deadline: DEADLINE, run: unknown_keys },
    Case { name: "net::broken_conflists_are_refused", deadline: DEADLINE, run: conflists },
    Case { name: "net::broken_plugins_cost_one_attach", deadline: DEADLINE, run: plugins },
];

fn messages(bed: &Bed) -> Result<()> {
    let mut node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let before = World::look()?;
    let (control, handoff) = (node.client().path().to_owned(), node.handoff_socket());
    let bad = [
        (r"", "nothing"),
        (r"{", "half an object"),
        (r"[]", "another type"),
        (r#"{"v":1,"body":"status"}"#, "another version"),
        (r#"{"v":3,"body":"reboot"}"#, "an unknown request"),
        (r#"{"v":3,"body":{"detach":{"pod":"../../etc"}}}"#, "a path for an id"),
        (r#"{"v":3,"body":{"detach":{"pod":"a","force":true}}}"#, "an unknown field"),
        (r#"{"v":3,"body":{"get":{"token":"x"}}}"#, "a token that is none"),
        (r#"{"v":3,"body":{"attach":{"pod":"a"}}}"#, "missing fields"),
    ];
    for (packet, what) in bad {
        for socket in [&control, &handoff] {
            // An empty packet looks like a hang-up: then there is no answer.
            if let Ok(answer) = exchange(socket, packet.as_bytes()) {
                ensure!(answer.contains(r#""err""#), "{what} on {} was taken: {answer}", socket.display());
            }
        }
        node.tapmanager.still_runs()?;
    }
    // A packet at the limit, of nothing but one string; and many peers that say nothing.
    let _refused = exchange(&control, format!(r#"{{"v":3,"body":"{}"}}"#, "x".repeat(200_000)).as_bytes());
    let silent: Vec<_> = (0..50).map(|_| dial(&handoff)).collect::<Result<_>>()?;
    ensure!(node.status()?.pods == 0, "a pod came out of it");
    drop(silent);
    before.assert_same()
}

fn unknown_keys(bed: &Bed) -> Result<()> {
    let path = bed.dir.join("bad.toml");
    fs::write(&path, config(bed, &cni::debian_plugins(), "lease = 5"))?;
    let ended = finish(command(bed.program("tapmanager"), ["run", "--config"]).arg(&path), TOOL_DEADLINE)?;
    ensure!(ended.code != Some(0), "an unknown key was taken");
    ensure!(ended.stderr.contains("lease") && ended.stderr.contains("bad.toml"), "says not where: {}", ended.stderr);
    Ok(())
}

fn conflists(bed: &Bed) -> Result<()> {
    let node = NetNode::start(bed, &Network::BRIDGE.conflist().to_string(), &cni::debian_plugins())?;
    let before = World::look()?;
    let broken = [
        "{".to_owned(),
        json!({"cniVersion": "1.0.0", "name": "vtnet"}).to_string(),
        json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": []}).to_string(),
        json!({"cniVersion": "9.9.9", "name": "vtnet", "plugins": [{"type": "bridge"}]}).to_string(),
        json!({"cniVersion": "1.0.0", "name": "../x", "plugins": [{"type": "bridge"}]}).to_string(),
        json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": [{"type": "no-such-plugin"}]}).to_string(),
        json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": [{"type": "../../bin/true"}]}).to_string(),
    ];
    for conflist in broken {
        let path = cni::install(&conflist)?;
        let refused = node.attach(&pod_id(1)?).err().with_context(|| format!("taken: {conflist}"))?;
        ensure!(format!("{refused:#}").len() > 40, "hardly an explanation: {refused:#}");
        ensure!(!node.status()?.ready || conflist.contains("type"), "ready with {}: {conflist}", path.display());
        before.assert_same()?;
    }
    cni::install(&Network::BRIDGE.conflist().to_string())?;
    node.attach(&pod_id(1)?).context("with the network put right")?;
    Ok(())
}

/// Plugins that hang, print junk, fail with their own words or without, or succeed and say nothing.
fn plugins(bed: &Bed) -> Result<()> {
    let dir = bed.dir.join("plugins");
    fs::create_dir(&dir)?;
    let conflist =
        |kind: &str| json!({"cniVersion": "1.0.0", "name": "vtnet", "plugins": [{"type": kind}]}).to_string();
    let bad: [(&str, &str, &str); 6] = [
        ("hangs", "exec sleep 600", "2 s"),
        ("junk", "echo junk", "junk"),
        ("silent", "exit 0", ""),
        (
            "fails",
            r#"echo '{"code": 11, "msg": "try again later", "details": "the pool is empty"}'; exit 1"#,
            "the pool is empty",
        ),
        ("crashes", "echo 'segment fault' >&2; kill -SEGV $$", "crashes"),
        ("floods", "exec cat /dev/zero", "floods"),
    ];
    for (name, body, _) in bad {
        // VERSION and DEL are answered as a sound plugin would.
        let script = format!(
            "#!/bin/sh\ncase $CNI_COMMAND in\nVERSION) echo '{{\"cniVersion\":\"1.0.0\",\"supportedVersions\":[\"1.0.0\"]}}' ;;\nADD) {body} ;;\nesac\n"
        );
        write_plugin(&dir.join(name), &script)?;
    }
    let node = NetNode::configured(bed, &conflist("hangs"), &dir, "cni_deadline_s = 2")?;
    let before = World::look()?;
    for (name, _, said) in bad {
        cni::install(&conflist(name))?;
        let started = pace::now();
        let refused = node.attach(&pod_id(1)?).err().with_context(|| format!("plugin `{name}` gave a network"))?;
        let refused = format!("{refused:#}");
        ensure!(refused.contains(said), "plugin `{name}`: no `{said}` in: {refused}");
        ensure!(started.elapsed() < Duration::from_secs(15), "plugin `{name}` took {:?}", started.elapsed());
        before.assert_same().with_context(|| format!("after plugin `{name}`"))?;
    }

    // One that fails at DEL too may have left something: the pod stays until its DEL succeeds.
    let (pod, cross) = (pod_id(1)?, dir.join("cross"));
    write_plugin(&cross, "#!/bin/sh\necho no >&2\nexit 3\n")?;
    cni::install(&conflist("cross"))?;
    let refused = node.attach(&pod).err().context("plugin `cross` gave a network")?;
    ensure!(format!("{refused:#}").contains("stderr: `no`"), "{refused:#}");
    let phases: Vec<_> = node.pods()?.iter().map(|pod| pod.phase).collect();
    ensure!(phases == [PodPhase::Detaching], "{phases:?}");
    write_plugin(&cross, "#!/bin/sh\n")?;
    node.detach(&pod)?;
    before.assert_same().context("after plugin `cross`")
}

fn write_plugin(path: &PathBuf, script: &str) -> Result<()> {
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    ensure!(Path::new(path).exists(), "no plugin");
    Ok(())
}
