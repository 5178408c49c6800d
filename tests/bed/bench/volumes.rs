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
const SAMPLES: usize = 5;
const BYTES: u64 = 256 << 20;
/// Reads the file again and again, from virtiofsd and not from the guest's own memory, then writes one of as many bytes, and says how long
/// each took.
const TIMES: &str = "#!/bin/sh
mkdir -p /share
mount -t virtiofs virtlet /share || echo not mounted >/dev/console
for n in 1 2 3 4 5; do
	echo 3 >/proc/sys/vm/drop_caches
	read began _ </proc/uptime
	cat /share/0/file >/dev/null
	read ended _ </proc/uptime
	echo read from $began to $ended >/dev/console
done
for n in 1 2 3 4 5; do
	read began _ </proc/uptime
	dd if=/dev/zero of=/share/1/written bs=1M count=256 2>/dev/null || echo not written >/dev/console
	read ended _ </proc/uptime
	rm /share/1/written
	echo written from $began to $ended >/dev/console
done
";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let dir = bed.dir.join("shared");
    let scratch = bed.dir.join("scratch");
    fs::create_dir_all(&dir)?;
    fs::create_dir_all(&scratch)?;
    fs::write(dir.join("file"), vec![7; usize::try_from(BYTES)?])?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let mount = |container_path: &str, dir: &Path, readonly| Mount {
        container_path: container_path.into(),
        host_path: dir.display().to_string(),
        readonly,
        ..Mount::default()
    };
    let container = |script: &str| {
        let said = [("virtlet.cloud/shared-fs", "virtiofs"), ("VirtletCloudInitUserDataScript", script)];
        let annotations = said.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        ContainerConfig { mounts: vec![mount("/data", &dir, true)], ..cri::container(&image, annotations) }
    };
    let mut times = container(TIMES);
    times.mounts.push(mount("/scratch", &scratch, false));
    let starts = pairs(bed, node, &container("#!/bin/sh\n"))?;
    let (reads, writes) = throughput(bed, node, &times, &dir)?;
    let memory = vec![memory::of_a_machine(node, &container("#!/bin/sh\n"))?];
    let name = "StartContainer with a volume and a seed / virsh create beside a virtiofsd";
    Ok(vec![
        Row { name, unit: "ms", target: Some(1.1), pairs: starts },
        Row { name: "GiB read by virtiofs / by the plain virtiofsd", unit: "s", target: Some(1.05), pairs: reads },
        Row { name: "GiB written by virtiofs / by the plain virtiofsd", unit: "s", target: Some(1.05), pairs: writes },
        Row { name: "memory of ours for a VM / 100 KiB", unit: "KiB", target: Some(1.0), pairs: memory },
    ])
}

/// Seconds per GiB, read and written.
fn throughput(bed: &Bed, node: &Node, container: &ContainerConfig, dir: &Path) -> Result<(Vec<Pair>, Vec<Pair>)> {
    let (mut reads, mut writes) = (Vec::new(), Vec::new());
    for _pair in 0..PAIRS {
        let (_, vm) = start(node, container)?;
        // Now, while the guest has not written to its disk that it has run the script.
        let peer = Peer::of(bed, &virsh(&format!("dumpxml --inactive {}", running_domains()?.concat()))?)?;
        let ours = told(&vm.log)?;
        remove(node, &vm)?;
        fs::create_dir_all(peer.shared().join("0"))?;
        fs::create_dir_all(peer.shared().join("1"))?;
        fs::hard_link(dir.join("file"), peer.shared().join("0/file"))?;
        let (_, running) = peer.create()?;
        let baseline = told(&peer.console());
        running.remove()?;
        let baseline = baseline?;
        reads.push(Pair { ours: ours.0, baseline: baseline.0 });
        writes.push(Pair { ours: ours.1, baseline: baseline.1 });
    }
    Ok((reads, writes))
}

/// The medians of what the guest has measured: of reads, and of writes.
fn told(console: &Path) -> Result<(f64, f64)> {
    let samples = wait_for("what the guest measures", BOOT_DEADLINE, || {
        let text = String::from_utf8_lossy(&fs::read(console).unwrap_or_default()).into_owned();
        anyhow::ensure!(!text.contains("not mounted"), "the guest does not mount the share");
        anyhow::ensure!(!text.contains("not written"), "the guest does not write to the share");
        let samples = ["read from ", "written from "]
            .map(|begins| text.lines().filter_map(|line| seconds(line, begins)).collect::<Vec<_>>());
        Ok(samples.iter().all(|samples| samples.len() >= SAMPLES).then_some(samples))
    })
    .with_context(|| format!("the guest said: {}", fs::read_to_string(console).unwrap_or_default()))?;
    #[expect(clippy::cast_precision_loss, reason = "a few hundred MiB")]
    let part = BYTES as f64 / f64::from(1 << 30);
    let [reads, writes] = samples;
    Ok((p50(reads).context("nothing measured")? / part, p50(writes).context("nothing measured")? / part))
}

/// Of a line of the guest's.
fn seconds(line: &str, begins: &str) -> Option<f64> {
    let (began, ended) = line.split_once(begins)?.1.split_once(" to ")?;
    Some(ended.trim().parse::<f64>().ok()? - began.parse::<f64>().ok()?)
}
