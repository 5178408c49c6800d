//! StartContainer beside `virsh create` of the same machine with the plain emulator.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tests::case::Bed;
use tests::cri;
use tests::libvirt::{only_qemu, running_domains, virsh};
use tests::net_node::QEMU;
use tests::node::{Node, Vm};

use super::report::{Pair, Row};
use super::{p50, timed};

const PAIRS: usize = 11;
const CONNECTS: usize = 5;
const PEER: &str = "peer";
/// Below these everything belongs to one machine, but for the images.
const OURS: [&str; 3] = ["/run/virtlet/", "/var/lib/virtlet/volumes/", "/var/lib/virtlet/console/"];

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let image = node.pull(bed, "tiny.qcow2")?;
    // Not measured: libvirt asks each emulator for its capabilities once.
    let (_, vm) = start(node, &image)?;
    let domain = running_domains()?.concat();
    let peer = Peer::of(&virsh(&format!("dumpxml --inactive {domain}"))?, &bed.dir.join(PEER))?;
    remove(node, &vm)?;
    peer.start()?;

    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let (ours, vm) = start(node, &image)?;
        remove(node, &vm)?;
        let created = peer.start()?;
        let connects = (0..CONNECTS).map(|_| Ok(timed(|| virsh("uri"))?.0)).collect::<Result<Vec<f64>>>()?;
        pairs.push(Pair { ours: ours / 1000.0, baseline: (created - p50(connects)?) / 1000.0 });
    }
    Ok(vec![Row { name: "StartContainer / virsh create, less its connect", unit: "ms", target: Some(1.05), pairs }])
}

/// Microseconds of StartContainer, and what it started.
fn start(node: &Node, image: &str) -> Result<(f64, Vm)> {
    let pod = node.pod("start")?;
    let container = cri::container(image, [].into());
    let sandbox = node.cri.run_sandbox(&pod)?;
    let id = node.cri.create(&sandbox, &container, &pod)?;
    let (micros, ()) = timed(|| node.cri.start(&id))?;
    let ip = node.cri.sandbox(&sandbox)?.network.context("no network")?.ip.parse()?;
    let machine = node.cri.machine(&id)?;
    Ok((micros, Vm { sandbox, container: id, machine, ip, log: PathBuf::new(), pod }))
}

fn remove(node: &Node, vm: &Vm) -> Result<()> {
    node.remove_vm(vm, Duration::ZERO)
}

/// The same machine as ours, without us.
struct Peer {
    xml: PathBuf,
}

impl Peer {
    /// Copies what is the machine's own to `dir`, and describes a machine of that.
    fn of(ours: &str, dir: &Path) -> Result<Self> {
        fs::create_dir(dir)?;
        chown(dir, Some(QEMU.uid), Some(QEMU.gid))?;
        let mut xml = ours.to_owned();
        for path in own_paths(ours) {
            let copy = dir.join(Path::new(path).file_name().context("a directory in the description")?);
            if let Some(disk) = disk(Path::new(path))? {
                fs::copy(disk, &copy)?;
                chown(&copy, Some(QEMU.uid), Some(QEMU.gid))?;
            }
            xml = xml.replace(path, &copy.display().to_string());
        }
        xml = replace_element(&xml, "metadata", "")?;
        xml = replace_element(&xml, "qemu:commandline", "")?;
        xml = replace_element(&xml, "name", &format!("<name>{PEER}</name>"))?;
        xml = replace_element(&xml, "uuid", "")?;
        xml = replace_element(&xml, "emulator", "<emulator>/usr/bin/qemu-system-x86_64</emulator>")?;
        let peer = Self { xml: dir.join("peer.xml") };
        fs::write(&peer.xml, xml)?;
        Ok(peer)
    }

    /// Microseconds of `virsh create`; the machine is gone afterwards.
    fn start(&self) -> Result<f64> {
        let (micros, _said) = timed(|| virsh(&format!("create {}", self.xml.display())))?;
        virsh(&format!("destroy {PEER}"))?;
        Ok(micros)
    }
}

/// Where the running machine's disk of this path can be read; nowhere if the path is not of a disk.
fn disk(path: &Path) -> Result<Option<PathBuf>> {
    let [name, unlinked] = [path.display().to_string(), format!("{} (deleted)", path.display())];
    for descriptor in fs::read_dir(format!("/proc/{}/fd", only_qemu()?))? {
        let descriptor = descriptor?.path();
        // The seed is unlinked as soon as QEMU has it open.
        let target = fs::read_link(&descriptor)?.display().to_string();
        if [&name, &unlinked].contains(&&target) && fs::metadata(&descriptor)?.is_file() {
            return Ok(Some(descriptor));
        }
    }
    Ok(None)
}

fn own_paths(xml: &str) -> BTreeSet<&str> {
    xml.split(['"', '\'']).filter(|text| OURS.iter().any(|dir| text.starts_with(dir))).collect()
}

fn replace_element(xml: &str, name: &str, by: &str) -> Result<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let (before, rest) = xml.split_once(&open).with_context(|| format!("no {open} in\n{xml}"))?;
    let (_, after) = rest.split_once(&close).with_context(|| format!("no {close} in\n{xml}"))?;
    Ok(format!("{before}{by}{after}"))
}
