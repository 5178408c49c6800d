//! Volumes by virtiofs: what they cost a start, and how fast they are, beside the plain virtiofsd.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use proto::cri::{ContainerConfig, Mount};
use tests::case::Bed;
use tests::cri;
use tests::libvirt::{running_domains, virsh};
use tests::node::{BOOT_DEADLINE, Node};
use tests::wait::wait_for;

use super::memory;
use super::p50;
use super::peer::Peer;
use super::report::{Pair, Row};
use super::start::{pairs, remove, start};

const PAIRS: usize = 3;
const READS: usize = 5;
const BYTES: u64 = 256 << 20;
/// Reads the file again and again, from virtiofsd and not from the guest's own memory, and says how long that took.
const READ: &str = "#!/bin/sh
mkdir -p /share
mount -t virtiofs virtlet /share || echo not mounted >/dev/console
for n in 1 2 3 4 5; do
	echo 3 >/proc/sys/vm/drop_caches
	read began _ </proc/uptime
	cat /share/0/file >/dev/null
	read ended _ </proc/uptime
	echo read from $began to $ended >/dev/console
done
";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let dir = bed.dir.join("shared");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("file"), vec![7; usize::try_from(BYTES)?])?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let container = |script: &str| {
        let said = [("virtlet.cloud/shared-fs", "virtiofs"), ("VirtletCloudInitUserDataScript", script)];
        let annotations = said.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let host_path = dir.display().to_string();
        let mounts = vec![Mount { container_path: "/data".into(), host_path, readonly: true, ..Mount::default() }];
        ContainerConfig { mounts, ..cri::container(&image, annotations) }
    };
    let starts = pairs(bed, node, &container("#!/bin/sh\n"))?;
    let reads = reads(bed, node, &container(READ), &dir)?;
    let memory = vec![memory::of_a_machine(node, &container("#!/bin/sh\n"))?];
    let name = "StartContainer with a volume and a seed / virsh create beside a virtiofsd";
    Ok(vec![
        Row { name, unit: "ms", target: Some(1.1), pairs: starts },
        Row { name: "GiB read by virtiofs / by the plain virtiofsd", unit: "s", target: Some(1.05), pairs: reads },
        Row { name: "memory of ours for a VM / 100 KiB", unit: "KiB", target: Some(1.0), pairs: memory },
    ])
}

/// Seconds per GiB.
fn reads(bed: &Bed, node: &Node, container: &ContainerConfig, dir: &Path) -> Result<Vec<Pair>> {
    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let (_, vm) = start(node, container)?;
        // Now, while the guest has not written to its disk that it has run the script.
        let peer = Peer::of(bed, &virsh(&format!("dumpxml --inactive {}", running_domains()?.concat()))?)?;
        let ours = told(&vm.log)?;
        remove(node, &vm)?;
        fs::create_dir_all(peer.shared().join("0"))?;
        fs::hard_link(dir.join("file"), peer.shared().join("0/file"))?;
        let (_, running) = peer.create()?;
        let baseline = told(&peer.console());
        running.remove()?;
        pairs.push(Pair { ours, baseline: baseline? });
    }
    Ok(pairs)
}

/// The median of what the guest has measured.
fn told(console: &Path) -> Result<f64> {
    let samples = wait_for("what the guest measures", BOOT_DEADLINE, || {
        let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
        anyhow::ensure!(!text.contains("not mounted"), "the guest does not mount the share");
        let samples: Vec<f64> = text.lines().filter_map(seconds).collect();
        Ok((samples.len() >= READS).then_some(samples))
    })
    .with_context(|| format!("the guest said: {}", fs::read_to_string(console).unwrap_or_default()))?;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred MiB")]
    let part = BYTES as f64 / f64::from(1 << 30);
    Ok(p50(samples).context("nothing measured")? / part)
}

/// Of a line of the guest's.
fn seconds(line: &str) -> Option<f64> {
    let (began, ended) = line.split_once("read from ")?.1.split_once(" to ")?;
    Some(ended.trim().parse::<f64>().ok()? - began.parse::<f64>().ok()?)
}
