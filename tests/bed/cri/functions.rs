//! A pod that is to have a virtual function, on a node without any: it is refused, with what is missing.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::KeyValue;
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni::{self, Network};
use tests::cri;
use tests::node::Node;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
/// No device of an emulated machine has this address.
const VF: &str = "0000:3b:02.1";

pub(super) const CASES: &[Case] =
    &[Case { name: "cri::a_function_is_refused_where_there_is_none", deadline: DEADLINE, run: none }];

fn none(bed: &Bed) -> Result<()> {
    let plugins = cni::own_dir(bed, &cni::debian_plugins())?;
    fs::copy(bed.program("virtlet-sriov"), plugins.join("virtlet-sriov"))?;
    let network = |name: &str, keys: Value| -> Result<()> {
        let mut plugin = json!({"type": "virtlet-sriov"});
        plugin.as_object_mut().context("no object")?.extend(keys.as_object().cloned().unwrap_or_default());
        let conflist = json!({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]});
        Ok(fs::write(format!("/etc/cni/net.d/20-{name}.conflist"), conflist.to_string())?)
    };
    network("by-card", json!({"pf": "ens1f0"}))?;
    network("by-name", json!({"capabilities": {"deviceID": true}}))?;
    let node = Node::on(bed, &Network::BRIDGE.conflist(), &plugins, "")?;
    let image = node.pull(bed, "tiny.qcow2")?;
    node.cri.remove_sandbox(&node.cri.run_sandbox(&node.pod("first")?)?)?;
    let before = World::settled()?;

    for (networks, missing) in [
        (json!([{"name": "by-card"}]), "PFs of this node: none"),
        (json!([{"name": "by-name", "deviceID": VF}]), "there is no PCI device `0000:3b:02.1`"),
    ] {
        let mut pod = node.pod("refused")?;
        pod.annotations.insert("virtlet.cloud/networks".to_owned(), networks.to_string());
        let refused = node.cri.run_sandbox(&pod).err().context("a sandbox")?;
        ensure!(refused.message().contains(missing), "{refused}");
    }
    before.assert_same()?;

    // As a device plugin of the whole node would have it, whose network is another pod's.
    let pod = node.pod("allocated")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let mut container = cri::container(&image, [].into());
    container.envs = vec![KeyValue { key: "PCIDEVICE_EXAMPLE_COM_FAST".into(), value: VF.into() }];
    let refused = node.cri.create(&sandbox, &container, &pod).err().context("a container")?;
    ensure!(refused.message().contains(VF), "{refused}");
    node.cri.remove_sandbox(&sandbox)?;
    before.assert_same()
}
