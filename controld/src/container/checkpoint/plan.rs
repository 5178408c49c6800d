//! What a checkpoint has beside the memory, and which machines cannot have one. Pure.
//!
//! What the guest writes to and others, too, is not as the memory knows it when somebody wakes it: such a machine has no checkpoint. An image
//! of the store is named by its digest, and not copied.

use std::path::PathBuf;
use std::sync::Arc;

use proto::tap::PodNet;
use serde::{Deserialize, Serialize};
use vmspec::ContainerId;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{DiskSource, Firmware, MachinePlan};

use crate::model::{Container, ContainerState};
use crate::volumes::uefi_variables;

/// Files of a checkpoint: memory and devices, the root disk's own layer, what UEFI remembers.
pub(super) const MEMORY: &str = "memory";
pub(super) const ROOT: &str = "root.qcow2";
pub(super) const UEFI: &str = "uefi.fd";

/// The file of a disk beside the root disk, by its place among those.
pub(super) fn disk_file(nth: usize) -> String {
    format!("disk-{nth}.raw")
}

/// A file of a machine's that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    /// Its name in the checkpoint.
    pub(super) name: String,
    pub(super) of: Of,
    /// Where it is now.
    pub(super) path: PathBuf,
}

/// What a file of a checkpoint is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Of {
    /// Memory and devices, in libvirt's form of saved machines.
    Memory,
    /// The root disk's own layer, qcow2, on the images that the machine's plan names.
    Root,
    /// A disk beside the root disk, raw, by its serial.
    Disk(String),
    /// What UEFI remembers.
    Uefi,
}

/// The container of a pod that is to be written: `asked` is empty for all that run, of which a pod has one.
///
/// # Errors
/// When none runs, or one that is named is not the one that does.
pub(in crate::container) fn which(containers: &[Arc<Container>], asked: &[ContainerId]) -> Result<Arc<Container>> {
    let running = containers.iter().find(|container| container.state == ContainerState::Running);
    let running =
        running.ok_or_else(|| Error::new(Kind::State, "no machine of the pod runs, so there is nothing to write"))?;
    if let Some(other) = asked.iter().find(|id| **id != running.id) {
        let what = format!("container `{other}` is not the pod's running one, which is `{}`", running.id);
        return Err(Error::new(Kind::State, what));
    }
    Ok(running.clone())
}

/// What is copied of a machine.
///
/// # Errors
/// When it cannot have a checkpoint; all reasons are told.
pub(super) fn of(container: &Container, net: Option<&PodNet>) -> Result<Vec<Part>> {
    let refused = refusals(&container.machine, net);
    if refused.is_empty() {
        return Ok(parts(&container.machine));
    }
    let what = format!("container `{}` cannot be checkpointed: {}", container.id, refused.join("; "));
    Err(Error::new(Kind::State, what))
}

/// Why a machine has no checkpoint, and cannot be made of one.
pub(super) fn refusals(machine: &MachinePlan, net: Option<&PodNet>) -> Vec<String> {
    let mut refused = Vec::new();
    for nic in net.iter().flat_map(|net| &net.nics).filter(|nic| nic.vfio().is_some()) {
        refused.push(format!("NIC `{}` is a virtual function, whose state is in the card", nic.name));
    }
    for device in &machine.passed.devices {
        refused.push(format!("device `{device}` of the node is passed through"));
    }
    if machine.share.is_some() {
        refused.push("the guest sees volumes of the pod by virtiofs, whose state is not saved".into());
    }
    if machine.hardware.tpm {
        refused.push("it has a TPM, whose secrets are not to leave the node".into());
    }
    if machine.root.persistent.is_some() || machine.root.volume.is_some() {
        refused.push("its root disk is of a volume, which goes on without the memory".into());
    }
    for disk in &machine.disks {
        let why = match &disk.source {
            DiskSource::File(_) | DiskSource::Image(_) => continue,
            DiskSource::Block(_) | DiskSource::Mounted(_) => "a block device, which goes on without the memory",
            DiskSource::Rbd(_) => "an image of a Ceph cluster, which goes on without the memory",
            DiskSource::Volume(_) => "of a volume, which goes on without the memory",
            DiskSource::Files(_) => "made of a volume's files anew at each start",
        };
        refused.push(format!("disk `{}` is {why}", disk.serial));
    }
    refused
}

/// Files that are copied of a machine that can have a checkpoint.
pub(super) fn parts(machine: &MachinePlan) -> Vec<Part> {
    let overlay = &machine.root.overlay;
    let mut parts = vec![Part { name: ROOT.into(), of: Of::Root, path: overlay.clone() }];
    for (nth, disk) in machine.disks.iter().enumerate() {
        let Some(file) = disk.source.file() else { continue };
        let of = Of::Disk(disk.serial.to_string());
        parts.push(Part { name: disk_file(nth), of, path: file.path() });
    }
    if matches!(machine.hardware.firmware, Firmware::Uefi { .. }) {
        parts.push(Part { name: UEFI.into(), of: Of::Uefi, path: uefi_variables(overlay) });
    }
    parts
}

#[cfg(test)]
mod tests {
    use proto::tap::{DataPath, Dns, Nic, NicKind, Tap, Vfio};
    use vmspec::plan::{BlockDevice, DeviceNumber, Disk, DiskFile, DiskImage, FilesDisk, PassedDevice, Serial};

    use super::*;
    use crate::container::tests::container;

    fn disk(name: &str, source: DiskSource) -> Disk {
        Disk {
            name: String::new(),
            serial: Serial::of_name(name),
            source,
            path: String::new(),
            read_only: false,
            options: Default::default(),
        }
    }

    fn file() -> DiskSource {
        DiskSource::File(DiskFile { dir: "/empty".into(), size: 1 << 30, file_system: None })
    }

    fn block() -> DiskSource {
        DiskSource::Block(BlockDevice { node: "/dev/vdb".into(), number: DeviceNumber { major: 252, minor: 16 } })
    }

    #[test]
    fn what_is_the_pods_own_is_copied_and_images_are_not() {
        let mut container = container("vm", 0);
        let machine = &mut container.machine;
        machine.disks = vec![disk("models", DiskSource::Image(DiskImage::default())), disk("scratch", file())];
        machine.root.overlay = "/pods/u/root.qcow2".into();
        let names = |container: &Container| -> Vec<_> {
            let parts = of(container, None).expect("can have one");
            parts.into_iter().map(|part| (part.name, part.path.display().to_string())).collect()
        };
        let wanted = |name: &str, path: &str| (name.to_owned(), path.to_owned());
        let [root, scratch] = [wanted("root.qcow2", "/pods/u/root.qcow2"), wanted("disk-1.raw", "/empty/disk.img")];
        assert_eq!(names(&container), [root.clone(), scratch.clone()]);
        container.machine.hardware.firmware = Firmware::Uefi { secure_boot: false };
        assert_eq!(names(&container), [root, scratch, wanted("uefi.fd", "/pods/u/uefi.fd")]);
    }

    #[test]
    fn all_that_a_checkpoint_cannot_have_is_named() {
        let mut container = container("vm", 0);
        let machine = &mut container.machine;
        let files = DiskSource::Files(FilesDisk { volume: "/v".into(), label: "cfg".into() });
        machine.disks = vec![disk("data", block()), disk("cfg", files), disk("scratch", file())];
        machine.passed.devices = vec![PassedDevice::Pci("0000:01:10.0".parse().expect("address"))];
        machine.hardware.tpm = true;
        let nic = |name: &str, kind| Nic {
            name: name.parse().expect("a name"),
            network: "pods".into(),
            mac: "02:00:00:00:00:01".parse().expect("an address"),
            mtu: 1500,
            kind,
            addresses: Vec::new(),
            routes: Vec::new(),
        };
        let tap = NicKind::Tap(Tap { data_path: DataPath::Tc, queues: 1 });
        let vf = NicKind::Vfio(Vfio { device: "0000:02:00.1".parse().expect("address") });
        let net = PodNet { netns: "/n".into(), nics: vec![nic("eth0", tap), nic("net1", vf)], dns: Dns::default() };
        let refused = of(&container, Some(&net)).expect_err("cannot have one");
        assert_eq!(refused.kind(), Kind::State);
        let text = refused.to_string();
        for named in
            ["NIC `net1`", "device `0000:01:10.0`", "TPM", "disk `data` is a block device", "disk `cfg` is made of"]
        {
            assert!(text.contains(named), "{named}: {text}");
        }
        assert!(!text.contains("eth0") && !text.contains("scratch"), "{text}");
    }

    #[test]
    fn of_a_pod_the_one_that_runs_is_meant() {
        let state = |attempt, state| Arc::new(Container { state, ..container("vm", attempt) });
        let [ended, running] = [state(0, ContainerState::Exited), state(1, ContainerState::Running)];
        let pod = [ended.clone(), running.clone()];
        assert_eq!(which(&pod, &[]).expect("one runs").id, running.id);
        assert_eq!(which(&pod, &[running.id]).expect("it is named").id, running.id);
        for (containers, asked) in
            [(&pod[..], vec![ended.id]), (&pod[..1], vec![]), (&pod[..], vec![running.id, ended.id])]
        {
            assert_eq!(which(containers, &asked).expect_err("not that one").kind(), Kind::State);
        }
    }
}
