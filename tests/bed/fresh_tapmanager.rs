//! Tier `restart`: a tapmanager whose state directory is lost, beside a machine that runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::libvirt::only_qemu;
use tests::node::Node;
use tests::world::World;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const STATE_DIR: &str = "/var/lib/virtlet/net";

pub(crate) const CASES: &[Case] =
    &[Case { name: "restart::a_tapmanager_without_its_records_touches_no_machine", deadline: DEADLINE, run }];

/// The machine runs on, kubelet's calls end its pod, and what they cannot reach goes on a person's word.
fn run(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let old = node.boot_vm(bed, "old", "")?;
    let (qemu, sandbox) = (only_qemu()?, node.cri.sandbox(&old.sandbox)?);
    let own = namespace_of(&old.sandbox)?;

    node.net.tapmanager.terminate()?;
    fs::remove_dir_all(STATE_DIR)?;
    node.net.tapmanager.start_again()?;
    node.net.wait_ready()?;
    node.wait_ready()?;
    // The daemon's collections say and keep; one that is asked for, too.
    let report = node.net.collect()?;
    ensure!(report.removed.is_empty(), "removed: {:?}", report.removed);
    ensure!(
        report.kept.iter().any(|line| line.contains(&own) && line.contains("its owner is unknown")),
        "{own} is not told: {:?}",
        report.kept
    );
    ensure!(node.net.status()?.pods == 0, "a pod on record");
    ensure!(
        only_qemu()? == qemu && Path::new("/run/netns").join(&own).exists(),
        "the machine or its namespace is gone"
    );
    old.info().context("the old guest")?;
    ensure!(node.cri.sandbox(&old.sandbox)?.state == sandbox.state, "kubelet would end a pod whose machine runs");
    // The next pod has an address of its own, as the plugins know who has which.
    let new = node.boot_vm(bed, "new", "").context("a pod beside it")?;
    ensure!(new.ip != old.ip, "one address for two: {}", new.ip);
    old.info().context("the old guest beside the new one")?;

    node.remove_vm(&old, GRACE).context("kubelet ends the old pod")?;
    ensure!(node.cri.sandbox(&old.sandbox).is_err(), "the sandbox is still there");
    let tool = ["forget", "--namespace", &own];
    let forgotten = finish(&mut command(bed.program("tapmanager"), tool), TOOL_DEADLINE)?;
    ensure!(forgotten.code == Some(0), "{forgotten:?}");
    new.info().context("the new guest")?;
    node.remove_vm(&new, GRACE)?;
    for vm in [&old, &new] {
        fs::remove_dir_all(&vm.pod.log_directory)?;
    }
    // Who QEMU is, which instance it is: drawn and told anew, in files of the same names. The daemon is another process.
    before.assert_same_but(|thing| thing == "link cni0" || thing.starts_with("process "))
}

/// The file of a pod's network namespace.
fn namespace_of(pod: &str) -> Result<String> {
    let names = fs::read_dir("/run/netns")?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let names = names.collect::<Result<Vec<_>>>()?;
    names.into_iter().find(|name| name.ends_with(pod)).context("no namespace of the pod")
}
