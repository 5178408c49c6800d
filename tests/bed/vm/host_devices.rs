//! Devices of the node that kubelet allocated, without VFIO, which has a tier of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use proto::cri::{CdiDevice, ContainerConfig, Device, KeyValue};
use serde_json::json;
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::cri;
use tests::image_server::Fault;
use tests::loop_device::LoopDevice;
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Node};
use tests::wait::wait_for;

use super::shell::{exec, prints};

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
    let node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let dir = bed.dir.join("of-cdi");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("word"), "shown\n")?;
    let disk = LoopDevice::new(&bed.dir.join("disk.img"), 1 << 20)?;
    disk.write(b"of the node\n", 0)?;
    let _file = CdiFile::new(disk.node(), &dir)?;

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
    ] {
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("not refused: {said}") };
        ensure!(error.message().contains(said), "{error}");
    }
    node.cri.remove_sandbox(&sandbox)?;

    let tokens = ["/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/vfio/vfio"];
    let devices = tokens.iter().map(|path| device(path)).collect();
    let vm =
        node.start_pod(node.pod("allocated")?, &ContainerConfig { devices, cdi_devices: by_cdi("disk"), ..plain() })?;
    wait_for("our agent", BOOT_DEADLINE, || Ok((exec(bed, &vm, "true")?.code == Some(0)).then_some(())))?;
    prints(bed, &vm, "head -n 1 $BED_DISK", "of the node")?;
    prints(bed, &vm, "cat /of-cdi/word; echo x 2>/dev/null >/of-cdi/word || echo read-only", "shown\nread-only")?;
    let words = ["--socket", CRI_SOCKET, "explain", "allocated"];
    let told = finish(&mut command(bed.program("virtletctl"), words), TOOL_DEADLINE)?;
    ensure!(told.stdout.contains("/dev/kvm, /dev/net/tun, /dev/vfio/vfio, /dev/vhost-net"), "{told:?}");
    node.remove_vm(&vm, GRACE)
}
