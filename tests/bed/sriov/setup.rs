//! Nodes whose pods have virtual functions by our plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::Bed;
use tests::cni;
use tests::command::{Ended, command, finish};
use tests::node::Node;
use tests::sriov::Card;

/// Where claims are noted.
const CLAIMS: &str = "/var/lib/virtlet/net/claims";
/// Where the plugin notes what it gave.
const ALLOCATIONS: &str = "/var/lib/cni/virtlet-sriov";
const TOOL_DEADLINE: Duration = Duration::from_secs(180);
/// An address for a function.
pub(super) const MAC: &str = "02:00:00:00:50:10";
const NETWORKS: &str = "/etc/cni/net.d";

/// A plugin that gives functions of `card`, with addresses of `subnet`, whose last number is left out.
pub(super) fn plugin(card: &Card, subnet: &str, keys: Value) -> Value {
    let range = json!({"subnet": format!("{subnet}.0/24"), "rangeStart": format!("{subnet}.10")});
    let mut plugin =
        json!({"type": "virtlet-sriov", "pf": card.pf(), "ipam": {"type": "host-local", "ranges": [[range]]}});
    if let (Value::Object(all), Value::Object(keys)) = (&mut plugin, keys) {
        all.extend(keys);
    }
    plugin
}

/// A plugin that gives a link of a bridge.
pub(super) fn bridge() -> Value {
    json!({
        "type": "bridge", "bridge": "cni0", "isGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": cni::SUBNET}]]},
    })
}

/// A network's configuration. Debian's plugins speak no newer version.
pub(super) fn conflist(name: &str, plugin: &Value) -> Value {
    json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]})
}

/// A node with these networks, the first of which is the default one.
pub(super) fn node(bed: &Bed, networks: &[(&str, Value)]) -> Result<Node> {
    let [(name, default), others @ ..] = networks else { anyhow::bail!("no network") };
    for (name, plugin) in others {
        let path = Path::new(NETWORKS).join(format!("20-{name}.conflist"));
        fs::write(path, conflist(name, plugin).to_string())?;
    }
    // TCG emulates virtualization in this node, so the guest is not emulated twice.
    Node::on(bed, &conflist(name, default), &plugins(bed)?, "machine.accel = 'kvm'")
}

/// A directory with Debian's plugins, and ours.
pub(super) fn plugins(bed: &Bed) -> Result<PathBuf> {
    let dir = cni::own_dir(bed, &cni::debian_plugins())?;
    fs::copy(bed.program("virtlet-sriov"), dir.join("virtlet-sriov"))?;
    Ok(dir)
}

/// How many claims are noted.
pub(super) fn claims() -> Result<usize> {
    Ok(fs::read_dir(CLAIMS)?.count())
}

/// What is noted of a function.
pub(super) fn claim_of(card: &Card, vf: usize) -> Result<String> {
    let path = Path::new(CLAIMS).join(format!("{}.json", card.address(vf)?));
    fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
}

/// How many functions the plugin has given.
pub(super) fn allocations() -> Result<usize> {
    let dir = Path::new(ALLOCATIONS);
    if !dir.exists() {
        return Ok(0);
    }
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    Ok(names.iter().filter(|name| name.to_string_lossy().ends_with(".json")).count())
}

/// What `tapmanager sriov WORDS` prints as JSON.
pub(super) fn tool(bed: &Bed, words: &[&str]) -> Result<Value> {
    let ended = run(bed, words)?;
    ensure!(ended.code == Some(0), "tapmanager sriov {words:?}: {ended:?}");
    Ok(serde_json::from_str(&ended.stdout)?)
}

/// What it complains about.
pub(super) fn tool_error(bed: &Bed, words: &[&str]) -> Result<String> {
    let ended = run(bed, words)?;
    ensure!(ended.code != Some(0), "tapmanager sriov {words:?}: {ended:?}");
    Ok(ended.stderr)
}

fn run(bed: &Bed, words: &[&str]) -> Result<Ended> {
    let all = ["sriov"].iter().chain(words).chain(&["--output", "json"]);
    finish(&mut command(bed.program("tapmanager"), all), TOOL_DEADLINE)
}
