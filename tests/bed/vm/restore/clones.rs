//! Many guests of one checkpoint beside each other: each is a machine of its own, and they share the memory that they have alike.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::ContainerConfig;
use tests::agent_image::tiny_with_agent;
use tests::case::Bed;
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::node::{BOOT_DEADLINE, Node, Vm, user_data};
use tests::pss::pss;
use tests::wait::wait_for;

use super::super::checkpoint::{GRACE, of};
use super::{described, network_with_macs, request_of, restore};

const CLONES: usize = 20;
/// As the kernel has it of a process's name.
const QEMU: &[&str] = &["qemu-system-x86"];
/// The image has none.
const MACHINE_ID: &str = "#!/bin/sh\ntr -d - </proc/sys/kernel/random/uuid >/etc/machine-id\n";
/// Of which no two machines have a line alike.
const TELL: &str = "hostname; cat /etc/machine-id; head -c 32 /dev/urandom | sha256sum";
/// Where the kernel is told to look for pages that are alike.
const KSM: &str = "/sys/kernel/mm/ksm";
/// Once over all guests: a few million pages.
const SCAN_DEADLINE: Duration = Duration::from_secs(300);

pub(super) fn apart(bed: &Bed) -> Result<()> {
    let node =
        Node::on(bed, &network_with_macs(), &tests::cni::debian_plugins(), "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let container = cri::container(&image, user_data(MACHINE_ID));
    let first = node.start_pod(node.pod("first")?, &container)?;
    first.wait_up()?;
    let mut told = vec![tells(&node, &first, ("first", ""))?];
    let origins = told.concat().concat();
    let cold = pss(QEMU)?;
    let dir = bed.dir.join("origin");
    sh(&format!("mkdir -m 0700 {}", dir.display()))?;
    let request = of(&first, &dir);
    node.cri.call(|mut client| async move { client.checkpoint_pod(request).await })?;

    let mut all = vec![first];
    for nth in 0..CLONES {
        all.push(made(&node, &format!("clone{nth}"), &container, &dir)?);
    }
    for clone in all.iter().skip(1) {
        clone.wait_up()?;
        let name = &clone.pod.metadata.as_ref().context("no name")?.name;
        told.push(tells(&node, clone, (name, &origins))?);
    }
    for line in 0..TELL.split(';').count() {
        let different: BTreeSet<_> = told.iter().map(|told| told.get(line)).collect();
        ensure!(different.len() == all.len() && !different.contains(&None), "two are alike: {told:?}");
    }
    let addresses: BTreeSet<_> = all.iter().map(|vm| vm.ip).collect();
    ensure!(addresses.len() == all.len(), "{addresses:?}");
    shared(all.len(), cold)?;
    all.iter().try_for_each(|vm| node.remove_vm(vm, GRACE))
}

fn made(node: &Node, name: &str, container: &ContainerConfig, dir: &Path) -> Result<Vm> {
    let request = request_of(node, name, container, dir)?;
    let made = restore(&node.cri, &request).context("RestorePod")?;
    let clone = described(node, &request, &made)?;
    node.cri.start(&clone.container).context("StartContainer")?;
    Ok(clone)
}

/// What a guest says of itself once its agent has given it the pod's name and another machine id than the origin's.
fn tells(node: &Node, vm: &Vm, (name, origins): (&str, &str)) -> Result<Vec<String>> {
    wait_for(&format!("a machine that calls itself {name}"), BOOT_DEADLINE, || {
        let said = node.crictl(&["exec", &vm.container, "sh", "-c", TELL])?;
        let lines: Vec<_> = said.stdout.lines().map(str::to_owned).collect();
        let is_itself = matches!(&*lines, [host, id, _] if host == name && !id.is_empty() && !origins.contains(id));
        Ok((said.code == Some(0) && is_itself).then_some(lines))
    })
}

/// With KSM all of them take no more than a third of what as many would that had booted.
fn shared(guests: usize, cold: f64) -> Result<()> {
    let apart = pss(QEMU)?;
    let merging = Merging::begin()?;
    let scans = || -> Result<u64> { Ok(fs::read_to_string(format!("{KSM}/full_scans"))?.trim().parse()?) };
    let begun = scans()?;
    // A page is merged when it has not changed from one scan to the next.
    wait_for("three scans of all guests", SCAN_DEADLINE, || Ok((scans()? >= begun + 3).then_some(())))?;
    let together = pss(QEMU)?;
    drop(merging);
    #[expect(clippy::cast_precision_loss, reason = "a few")]
    let most = cold * guests as f64 / 3.0;
    ensure!(together <= most, "{guests} guests have {together} KiB, {apart} before, and one that has booted {cold}");
    Ok(())
}

/// KSM that is on; as it was when this is dropped.
struct Merging(Vec<(String, String)>);

impl Merging {
    fn begin() -> Result<Self> {
        let mut before = Vec::new();
        for (name, value) in [("pages_to_scan", "50000"), ("sleep_millisecs", "10"), ("run", "1")] {
            let file = format!("{KSM}/{name}");
            before.push((file.clone(), fs::read_to_string(&file)?.trim().to_owned()));
            fs::write(&file, value)?;
        }
        Ok(Self(before))
    }
}

impl Drop for Merging {
    fn drop(&mut self) {
        for (file, value) in self.0.iter().rev() {
            let _as_well_as_can_be = fs::write(file, value);
        }
    }
}
