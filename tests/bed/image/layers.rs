//! A machine of an image that stands on others: QEMU has every file of the chain from us, and follows nothing itself.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::command::{command, run, sh};
use tests::cri;
use tests::image_node::STORE;
use tests::image_server::Fault;
use tests::libvirt::{running_domains, virsh};
use tests::node::Node;
use tests::peers::disk::{Disk, sum};
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);
const CONFIG: &str = "/etc/virtlet/controld.toml";
const GRACE: Duration = Duration::from_secs(30);

pub(super) const CASES: &[Case] =
    &[Case { name: "image::layers_make_a_machine_that_boots", deadline: DEADLINE, run: boots }];

/// The tiny guest, an empty layer on it, and one on that. Each names the one below by what no QEMU could open.
fn boots(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let base = bed.config.guest("tiny.qcow2")?;
    let (mid, top) = (bed.dir.join("mid.qcow2"), bed.dir.join("top.qcow2"));
    layer(&mid, &base)?;
    layer(&top, &mid)?;
    let [base_name, mid_name, top_name] =
        [("base", &base), ("mid", &mid), ("top", &top)].map(|(name, path)| node.images.offer(name, path, Fault::None));
    let refused = node.cri.pull(&top_name).err().context("pulled though nobody allowed layers")?;
    ensure!(refused.code() == Code::FailedPrecondition && refused.message().starts_with("UnsafeImage"), "{refused}");
    let strict = fs::read_to_string(CONFIG)?;
    fs::write(CONFIG, strict + "images.layered = true\n")?;
    node.restart_controld()?;
    let alone = node.cri.pull(&top_name).err().context("pulled without what is below it")?;
    ensure!(alone.code() == Code::FailedPrecondition, "{alone}");
    ensure!(alone.message().contains(&Disk::of(&mid)?.id), "{alone}");
    for name in [&base_name, &mid_name, &top_name] {
        node.cri.pull(name).with_context(|| name.clone())?;
    }
    // Names of what is below may go.
    node.cri.remove_image(&base_name)?;
    node.cri.remove_image(&mid_name)?;
    let vm = node.start_pod(node.pod("layers")?, &cri::container(&top_name, [].into()))?;
    let domains = running_domains()?;
    let xml = virsh(&format!("dumpxml {}", domains.first().context("no machine")?))?;
    for file in [&base, &mid, &top] {
        let path = format!("/data/{}'", sum("sha256sum", file)?);
        ensure!(xml.matches(&path).count() == 1, "no `{path}` in the machine:\n{xml}");
    }
    vm.wait_up()?;
    node.remove_vm(&vm, GRACE)?;

    // Of an image that misses something no machine is made, until that comes.
    let missing = sum("sha256sum", &mid)?;
    node.controld.kill9()?;
    fs::remove_file(Path::new(STORE).join("data").join(&missing))?;
    node.controld.start_again()?;
    node.wait_ready()?;
    let pod = node.pod("incomplete")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let container = cri::container(&top_name, [].into());
    let refused = node.cri.create(&sandbox, &container, &pod).err().context("a machine without its disk")?;
    ensure!(refused.code() == Code::FailedPrecondition && refused.message().contains(&missing), "{refused}");
    // Nobody needed the lowest one without the one on it.
    for name in [&base_name, &mid_name] {
        node.cri.pull(name).with_context(|| name.clone())?;
    }
    let made = node.cri.create(&sandbox, &container, &pod)?;
    node.cri.remove(&made)?;
    Ok(node.cri.remove_sandbox(&sandbox)?)
}

/// An empty layer that names the image below it by its digest.
fn layer(path: &Path, below: &Path) -> Result<()> {
    let named = Disk::of(below)?.id;
    let info: serde_json::Value =
        serde_json::from_str(&sh(&format!("qemu-img info --output json {}", below.display()))?)?;
    let size = info["virtual-size"].as_u64().context("no size")?.to_string();
    run(command("qemu-img", ["create", "-q", "-f", "qcow2", "-u", "-F", "qcow2", "-b", &named]).arg(path).arg(size))?;
    let opened = command("qemu-img", ["info", "--backing-chain"]).arg(path).output()?;
    ensure!(!opened.status.success(), "QEMU opens `{named}` by itself");
    Ok(())
}
