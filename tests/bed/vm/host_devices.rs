//! Devices of the node that kubelet allocated, without VFIO, which has a tier of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use nix::sys::stat::{Mode, SFlag, mknod};
use proto::cri::{CdiDevice, ContainerConfig, Device, KeyValue, Mount};
use serde_json::json;
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::image_server::Fault;
use tests::kubelet_volumes::PodVolumes;
use tests::loop_device::LoopDevice;
use tests::node::{CRI_SOCKET, Node};

use super::shell::{answers, prints};

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
const CDI: &str = "/run/cdi";

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::allocated_devices_are_disks_tokens_or_refused", deadline: DEADLINE, run: allocated }];

/// A file of CDI, as long as it is needed.
struct CdiFile(PathBuf);

impl CdiFile {
    fn new(disk: &Path, dir: &Path) -> Result<Self> {
        let path = Path::new(CDI).join("virtlet-bed.json");
        fs::create_dir_all(CDI)?;
        let edits = json!({
            "env": ["BED_DISK=/dev/of-cdi"],
            "deviceNodes": [{"path": "/dev/of-cdi", "hostPath": disk}],
            "mounts": [{"hostPath": dir, "containerPath": "/of-cdi", "options": ["ro", "bind"]}],
        });
        let hooked = json!({"hooks": [{"hookName": "createContainer", "path": "/bin/true"}]});
        let devices =
            [json!({"name": "disk", "containerEdits": edits}), json!({"name": "hooked", "containerEdits": hooked})];
        fs::write(&path, json!({"cdiVersion": "0.6.0", "kind": "bed.example/any", "devices": devices}).to_string())?;
        Ok(Self(path))
    }
}

impl Drop for CdiFile {
    fn drop(&mut self) {
        // What is left of a case that failed is removed with its machine.
        let _ = fs::remove_file(&self.0);
    }
}

fn device(path: &str) -> Device {
    Device { container_path: path.into(), host_path: path.into(), permissions: "mrw".into() }
}

fn by_cdi(name: &str) -> Vec<CdiDevice> {
    vec![CdiDevice { name: format!("bed.example/any={name}") }]
}

fn allocated(bed: &Bed) -> Result<()> {
    let dir = bed.dir.join("of-cdi");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("word"), "shown\n")?;
    let disk = LoopDevice::new(&bed.dir.join("disk.img"), 1 << 20)?;
    disk.write(b"of the node\n", 0)?;
    let _file = CdiFile::new(disk.node(), &dir)?;
    let other = LoopDevice::new(&bed.dir.join("other.img"), 1 << 20)?;
    other.write(b"mounted\n", 0)?;
    // As kubelet has one on each block volume.
    let stacked = LoopDevice::on(&other)?;
    let named =
        [&other, &stacked].map(|device| format!("'{}'", device.node().file_name().unwrap_or_default().display()));
    let settings = format!("raw_devices = [{}]\nhandlers.virtlet.guest_agent = true", named.join(", "));
    let node = Node::configured(bed, &settings)?;
    // As an administrator may have it.
    let link = bed.dir.join("by-name");
    symlink(other.node(), &link)?;
    let by_path = |path: &Path| {
        let host_path = path.display().to_string();
        vec![Mount { container_path: "/dev/mounted".into(), host_path, readonly: true, ..Mount::default() }]
    };

    // Whoever can write to a volume can make a device's node in it.
    let volumes = PodVolumes::new(&bed.dir, "devices");
    let in_volume = volumes.path("empty-dir", "data").join("dev");
    fs::create_dir_all(volumes.path("empty-dir", "data"))?;
    let number = fs::metadata(other.node())?.rdev();
    mknod(&in_volume, SFlag::S_IFBLK, Mode::S_IRUSR, number)?;
    let of_volume =
        Mount { container_path: "/data".into(), host_path: in_volume.display().to_string(), ..Mount::default() };

    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    node.cri.pull(&image)?;
    let plain = || cri::container(&image, [].into());
    let pod = node.pod("devices")?;
    let sandbox = node.cri.run_sandbox(&pod)?;
    let variable = |key: &str| vec![KeyValue { key: key.into(), value: "0000:09:00.0".into() }];
    for (container, said) in [
        (
            ContainerConfig { devices: vec![device("/dev/null")], ..plain() },
            "device `/dev/null` cannot be given to a VM",
        ),
        (
            ContainerConfig { devices: vec![device("/dev/vfio/4000")], ..plain() },
            "device `/dev/vfio/4000` cannot be given to a VM",
        ),
        (
            ContainerConfig {
                envs: variable("PCI_RESOURCE_BED_EXAMPLE"),
                devices: vec![device("/dev/kvm")],
                ..plain()
            },
            "kubelet allocated the device `0000:09:00.0` (`PCI_RESOURCE_BED_EXAMPLE`), and the pod's networks gave it none",
        ),
        (
            ContainerConfig { cdi_devices: by_cdi("absent"), ..plain() },
            "CDI device `bed.example/any=absent` is in no file",
        ),
        (ContainerConfig { cdi_devices: by_cdi("hooked"), ..plain() }, "ask for `hooks`"),
        (ContainerConfig { mounts: by_path(Path::new("/dev/null")), ..plain() }, "`/dev` is the guest's own"),
        (ContainerConfig { mounts: by_path(disk.node()), ..plain() }, "which `raw_devices` of controld does not name"),
        (ContainerConfig { mounts: by_path(stacked.node()), ..plain() }, "by which kubelet holds a block volume"),
        (ContainerConfig { mounts: vec![of_volume], ..plain() }, "is a device, which a guest cannot see"),
    ] {
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("not refused: {said}") };
        ensure!(error.message().contains(said), "{error}");
    }
    node.cri.remove_sandbox(&sandbox)?;

    let tokens = ["/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vfio/vfio"];
    let devices = tokens.iter().map(|path| device(path)).collect();
    let wanted = ContainerConfig { devices, cdi_devices: by_cdi("disk"), mounts: by_path(&link), ..plain() };
    let vm = answers(bed, node.start_pod(node.pod("allocated")?, &wanted)?)?;
    prints(bed, &vm, "head -n 1 $BED_DISK; head -n 1 /dev/mounted", "of the node\nmounted")?;
    prints(bed, &vm, "echo x 2>/dev/null >/dev/mounted || echo read-only", "read-only")?;
    prints(bed, &vm, "cat /of-cdi/word; echo x 2>/dev/null >/of-cdi/word || echo read-only", "shown\nread-only")?;
    let words = ["--socket", CRI_SOCKET, "explain", "allocated"];
    let told = finish(&mut command(bed.program("virtletctl"), words), TOOL_DEADLINE)?;
    ensure!(told.stdout.contains("/dev/kvm, /dev/net/tun, /dev/vfio/vfio, /dev/vhost-net"), "{told:?}");
    node.remove_vm(&vm, GRACE)
}
