//! `manifest.json`: what the files of a checkpoint are of, and what of a node and a pod they want.
//!
//! It has what `RestorePod` has to compare, and nothing else: no variable, annotation, argument or path of the pod, of its machine or of
//! QEMU. The memory has those, and is root's alone, too.

use proto::tap::{MacAddr, Nic, PodNet};
use serde::{Deserialize, Serialize};
use vmspec::plan::{Applied, CpuSetting, DiskBus, Firmware, Hardware, MachinePlan, MachineType};

use super::devices::Devices;
use super::plan::Of;
use crate::model::{Container, PodName};

/// Its name.
pub(super) const NAME: &str = "manifest.json";
pub(super) const VERSION: u32 = 1;

/// The manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub(super) version: u32,
    /// When the guest was paused, in nanoseconds since the epoch.
    pub(super) made_at: i64,
    /// For people: whose it is.
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) container: String,
    /// The image's digest, `sha256:...`.
    pub(super) image_id: String,
    pub(super) emulator: Emulator,
    pub(super) machine: Machine,
    /// In the order of the guest's.
    pub(super) nics: Vec<NicMade>,
    /// Beside the root disk, in the order of the guest's.
    pub(super) disks: Vec<DiskMade>,
    pub(super) files: Vec<PartMade>,
}

/// What has written memory and devices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Emulator {
    /// Version of QEMU; empty if libvirt did not tell.
    pub(super) qemu: String,
    pub(super) libvirt: String,
    /// `kvm` or `qemu`.
    pub(super) accelerator: String,
}

/// The node that writes a checkpoint.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) emulator: Emulator,
    /// Its CPU, if a guest sees that.
    pub(super) cpu: Option<String>,
}

/// What the guest finds itself on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    /// With its version, as QEMU calls it.
    #[serde(rename = "type")]
    pub(super) kind: MachineType,
    pub(super) firmware: Firmware,
    pub(super) disk_bus: DiskBus,
    /// The model's name, or `host-passthrough` or its like; `None` is all that the accelerator has.
    pub(super) cpu: Option<String>,
    /// What node the CPU is of, if it is the node's own, or the most like it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node_cpu: Option<String>,
    /// The CPU in detail, if the pod has said it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpu_setting: Option<CpuSetting>,
    /// That it has now, and at most.
    pub(super) vcpus: u16,
    pub(super) max_vcpus: u16,
    /// Bytes.
    pub(super) memory: u64,
    pub(super) max_memory: u64,
    /// What else the guest finds, if it is not as every machine.
    #[serde(default, skip_serializing_if = "Devices::is_default")]
    pub(super) devices: Devices,
}

/// A NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NicMade {
    pub(super) name: String,
    pub(super) mac: MacAddr,
    /// As its driver has found them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queues: Option<u16>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DiskMade {
    /// By which the guest knows it.
    pub(super) serial: String,
    pub(super) read_only: bool,
    /// The digest of an image that it is. Else it is one of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) image_id: Option<String>,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PartMade {
    pub(super) name: String,
    pub(super) of: Of,
    pub(super) bytes: u64,
    /// Of all of it, holes too, in lower case.
    pub(super) sha256: String,
}

// === impl Machine ===

impl Machine {
    /// Of a plan, with what its machine has been given.
    pub(super) fn of(plan: &MachinePlan, applied: Applied, node_cpu: Option<String>) -> Self {
        let Hardware { machine, cpu, disk_bus, firmware, cpu_setting, .. } = &plan.hardware;
        Self {
            kind: machine.clone(),
            firmware: *firmware,
            disk_bus: *disk_bus,
            cpu: cpu.as_ref().map(ToString::to_string),
            node_cpu,
            cpu_setting: cpu_setting.clone(),
            vcpus: applied.vcpus,
            max_vcpus: plan.cpus.max,
            memory: applied.memory,
            max_memory: plan.memory.max,
            devices: Devices::of(plan),
        }
    }
}

// === impl NicMade ===

impl NicMade {
    /// Those of a pod's network, in their order.
    pub(super) fn all(net: &PodNet) -> Vec<Self> {
        let made =
            |nic: &Nic| Self { name: nic.name.to_string(), mac: nic.mac, queues: nic.tap().map(|tap| tap.queues) };
        net.nics.iter().map(made).collect()
    }
}

// === impl DiskMade ===

impl DiskMade {
    /// Those of a plan beside the root disk.
    pub(super) fn all(plan: &MachinePlan) -> Vec<Self> {
        let made = plan.disks.iter().map(|disk| Self {
            serial: disk.serial.to_string(),
            read_only: disk.read_only,
            image_id: disk.source.image().map(|image| image.id.clone()),
        });
        made.collect()
    }
}

// === impl Manifest ===

impl Manifest {
    pub(super) fn of(
        container: &Container,
        pod: PodName,
        net: Option<&PodNet>,
        made_at: i64,
        Node { emulator, cpu }: Node,
        files: Vec<PartMade>,
    ) -> Self {
        Self {
            version: VERSION,
            made_at,
            namespace: pod.namespace,
            pod: pod.name,
            container: container.config.name.clone(),
            image_id: container.image_id.clone(),
            emulator,
            machine: Machine::of(&container.machine, container.applied(), cpu),
            nics: net.map(NicMade::all).unwrap_or_default(),
            disks: DiskMade::all(&container.machine),
            files,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;
    use vmspec::plan::{Disk, DiskFile, DiskImage, DiskSource, Guest, GuestCommand, Serial};

    use super::*;
    use crate::container::tests::container;

    fn disk(name: &str, source: DiskSource) -> Disk {
        let serial = Serial::of_name(name);
        Disk {
            name: name.into(),
            serial,
            source,
            path: "/s3cret".into(),
            read_only: false,
            options: Default::default(),
        }
    }

    /// Of a machine that has what it should not tell.
    pub(in crate::container::checkpoint) fn manifest() -> Manifest {
        let mut container = container("vm", 0);
        container.machine_annotations.insert("VirtletCloudInitUserData".into(), "s3cret".into());
        container.config.image = "s3cret/image".into();
        container.machine.guest = Guest {
            command: Some(GuestCommand { argv: vec!["sh".into(), "s3cret".into()], read_only_root: false }),
            ..Guest::default()
        };
        container.machine.root.overlay = "/s3cret/root.qcow2".into();
        container.machine.disks = vec![
            disk("scratch", DiskSource::File(DiskFile { dir: "/s3cret".into(), size: 1 << 30, file_system: None })),
            disk("model", DiskSource::Image(DiskImage { id: "sha256:1".into(), ..DiskImage::default() })),
        ];
        let emulator = Emulator { qemu: "10.0.2".into(), libvirt: "11.3.0".into(), accelerator: "kvm".into() };
        let part =
            PartMade { name: "disk-0.raw".into(), of: Of::Disk("scratch".into()), bytes: 3, sha256: "5f78".into() };
        let pod = PodName { uid: "u".into(), namespace: "ns".into(), name: "web".into() };
        Manifest::of(&container, pod, None, 7, Node { emulator, cpu: None }, vec![part])
    }

    #[test]
    fn a_manifest_says_what_is_compared_and_nothing_that_the_pod_hides() {
        let manifest = manifest();
        let text = serde_json::to_string_pretty(&manifest).expect("JSON");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(serde_json::from_str::<Manifest>(&text).expect("read"), manifest);
        let expected = json!({
            "version": 1, "made_at": 7, "namespace": "ns", "pod": "web", "container": "vm", "image_id": "sha256:0",
            "emulator": { "qemu": "10.0.2", "libvirt": "11.3.0", "accelerator": "kvm" },
            "machine": {
                "type": "q35", "firmware": "bios", "disk_bus": "virtio", "cpu": null,
                "vcpus": 1, "max_vcpus": 1, "memory": 1 << 27, "max_memory": 1 << 27, "devices": { "command": true },
            },
            "nics": [],
            "disks": [
                { "serial": "scratch", "read_only": false },
                { "serial": "model", "read_only": false, "image_id": "sha256:1" },
            ],
            "files": [{ "name": "disk-0.raw", "of": { "disk": "scratch" }, "bytes": 3, "sha256": "5f78" }],
        });
        assert_eq!(serde_json::to_value(&manifest).expect("JSON"), expected);
    }
}
