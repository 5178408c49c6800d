//! VM pods with virtual functions, from CNI ADD to the guest's driver and back, by all our programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests::case::{Bed, Case};
use tests::cni;
use tests::command::sh;
use tests::cri;
use tests::node::{Node, Vm};
use tests::sriov::Card;

/// A guest in an emulated node; 60 s alone.
const DEADLINE: Duration = Duration::from_secs(300);
const GRACE: Duration = Duration::from_secs(30);
/// The guest that has a driver for functions.
const GUEST: &str = "tiny-vf.qcow2";
/// Where claims are noted.
const CLAIMS: &str = "/var/lib/virtlet/net/claims";
const MAC: &str = "02:00:00:00:50:10";

pub(super) const CASES: &[Case] = &[
    Case { name: "sriov::a_pods_function_is_its_vms_and_comes_back", deadline: DEADLINE, run: there_and_back },
    Case { name: "iommufd::a_pods_function_is_its_vms_and_comes_back", deadline: DEADLINE, run: there_and_back },
];

/// A node whose pods have a function of `card`, by our plugin.
fn start(bed: &Bed, card: &Card, keys: &Value) -> Result<Node> {
    let mut plugin = json!({
        "type": "virtlet-sriov", "pf": card.pf(), "mac": MAC,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.50.0.0/24", "rangeStart": "10.50.0.10"}]]},
    });
    for (key, value) in keys.as_object().context("keys")? {
        plugin[key] = value.clone();
    }
    let conflist = json!({"cniVersion": "1.0.0", "name": "fast", "plugins": [plugin]});
    // TCG emulates virtualization in this node, so the guest is not emulated twice.
    Node::on(bed, &conflist, &plugins(bed)?, "machine.accel = 'kvm'")
}

/// Debian's plugins, and ours.
fn plugins(bed: &Bed) -> Result<PathBuf> {
    let dir = bed.dir.join("plugins");
    fs::create_dir(&dir)?;
    for plugin in fs::read_dir(cni::debian_plugins())? {
        let plugin = plugin?.path();
        std::os::unix::fs::symlink(&plugin, dir.join(plugin.file_name().context("a plugin without a name")?))?;
    }
    fs::copy(bed.program("virtlet-sriov"), dir.join("virtlet-sriov"))?;
    Ok(dir)
}

fn boot(bed: &Bed, node: &Node, name: &str) -> Result<Vm> {
    let image = node.pull(bed, GUEST)?;
    let vm = node.start_pod(node.pod(name)?, &cri::container(&image, [].into()))?;
    vm.wait_up()?;
    Ok(vm)
}

fn claims() -> Result<usize> {
    Ok(fs::read_dir(CLAIMS)?.count())
}

/// A guest drives the function, with the address that CNI gave, whatever daemon dies meanwhile; and all is as it was.
fn there_and_back(bed: &Bed) -> Result<()> {
    let card = Card::set_up()?;
    sh(&format!("ip address add 10.50.0.1/24 dev {}", card.pf()))?;
    // Else its driver chooses another one each time.
    card.set(0, "mac 02:00:00:00:50:02")?;
    card.bind(0, None)?;
    let mut node = start(bed, &card, &json!({}))?;
    let before = card.snapshot()?;

    let vm = boot(bed, &node, "one")?;
    let info = vm.info()?;
    ensure!(info.contains(MAC) && info.contains("igbvf"), "not the function with its address:\n{info}");
    ensure!(card.driver(0)?.as_deref() == Some("vfio-pci"), "{:?}", card.driver(0)?);
    let told = card.told(0)?;
    ensure!(
        (&told["address"], &told["spoofchk"], &told["trust"]) == (&json!(MAC), &json!(true), &json!(false)),
        "{told}"
    );
    ensure!(claims()? == 1, "{} claims", claims()?);
    let claim = fs::read_to_string(Path::new(CLAIMS).join(format!("{}.json", card.address(0)?)))?;
    ensure!(claim.contains("\"in_use\""), "{claim}");

    node.net.tapmanager.kill9()?;
    node.controld.kill9()?;
    vm.info().context("the guest without daemons")?;
    node.net.tapmanager.start_again()?;
    node.net.wait_ready()?;
    node.controld.start_again()?;
    node.wait_ready()?;
    vm.info().context("the guest after a restart of both")?;
    ensure!(
        fs::read_to_string(Path::new(CLAIMS).join(format!("{}.json", card.address(0)?)))? == claim,
        "claim changed"
    );

    node.remove_vm(&vm, GRACE)?;
    ensure!(claims()? == 0, "{} claims are left", claims()?);
    before.holds(&card.snapshot()?)
}
