//! Devices that a device plugin has: a pod asks for them by its limits, the scheduler finds the node, and kubelet asks the plugin.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::{TOOL_DEADLINE, command, finish};
use tests::controllers::Controllers;
use tests::device_plugin::{DeviceNode, DevicePlugin, Given};
use tests::image_server::Fault;
use tests::kubelet::Kubelet;
use tests::libvirt::domains;
use tests::loop_device::LoopDevice;
use tests::node::CRI_SOCKET;
use tests::wait::wait_for;

use super::whole::{self, STEP_DEADLINE, is_empty, runtime_class, says};

/// A whole Kubernetes starts, and a machine boots beside it.
const DEADLINE: Duration = Duration::from_secs(720);
const MIB: u64 = 1 << 20;
/// Has a block device, and what QEMU needs anyway.
const DISK: &str = "bed.example/disk";
/// Has another, which CDI describes.
const BY_CDI: &str = "bed.example/by-cdi";
/// Has a character device, which no machine can have.
const CHAR: &str = "bed.example/char";

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::a_device_plugin_gives_a_machine_tokens_and_disks", deadline: DEADLINE, run }];

fn run(bed: &Bed) -> Result<()> {
    let disk = LoopDevice::new(&bed.dir.join("disk.img"), MIB)?;
    disk.write(b"of the node\n", 0)?;
    let (node, cluster, mut plane) = whole::start(bed, "handlers.virtlet.guest_agent = true")?;
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let _kubelet = Kubelet::configured_in(bed, &cluster, &json!({"nodeStatusUpdateFrequency": "2s"}))?;
    let as_it_is = |path: &str| given(path, path);
    let of_disk =
        vec![given(&disk.node().to_string_lossy(), "/dev/bed-disk"), as_it_is("/dev/kvm"), as_it_is("/dev/net/tun")];
    let _disks = DevicePlugin::start(DISK, Given::Nodes(of_disk))?;
    let described = LoopDevice::new(&bed.dir.join("described.img"), MIB)?;
    described.write(b"of CDI\n", 0)?;
    let _by_cdi = DevicePlugin::start(BY_CDI, describe(described.node())?)?;
    let _chars = DevicePlugin::start(CHAR, Given::Nodes(vec![as_it_is("/dev/null")]))?;
    plane.apply(&[runtime_class(), pod("disk", &image, &[DISK, BY_CDI]), pod("char", &image, &[CHAR])])?;

    refused(&mut plane)?;
    let script =
        "head -n 1 /dev/bed-disk; echo of the guest | dd of=/dev/bed-disk bs=512 seek=1 conv=fsync 2>/dev/null";
    says(&plane, "disk", script, "of the node\n")?;
    says(&plane, "disk", "head -n 1 $BED_DISK", "of CDI\n")?;
    let written = disk.read(13, 512)?;
    ensure!(written == b"of the guest\n", "the plugin's disk: {written:?}");
    let words = ["--socket", CRI_SOCKET, "explain", "disk"];
    let told = finish(&mut command(bed.program("virtletctl"), words), TOOL_DEADLINE)?;
    ensure!(told.stdout.contains("/dev/kvm, /dev/net/tun"), "{told:?}");
    ensure!(domains()?.len() == 1, "a machine of the refused pod: {:?}", domains()?);

    plane.kubectl(&["delete", "pod", "--all", "--wait=false"])?;
    wait_for("end of the pods", STEP_DEADLINE, || Ok((is_empty(&mut plane)? && domains()?.is_empty()).then_some(())))
}

/// The pod says why it does not run, in its status and in an event.
fn refused(plane: &mut Controllers) -> Result<()> {
    let why = "device `/dev/null` cannot be given to a VM";
    let status = ["get", "pod", "char", "-o", "jsonpath={.status.containerStatuses[0].state.waiting.message}"];
    let events =
        ["get", "events", "--field-selector", "involvedObject.name=char", "-o", "jsonpath={.items[*].message}"];
    for query in [&status[..], &events] {
        wait_for("refusal of a character device", STEP_DEADLINE, || {
            Ok(plane.kubectl(query)?.contains(why).then_some(()))
        })?;
    }
    Ok(())
}

fn given(on_node: &str, in_container: &str) -> DeviceNode {
    DeviceNode { in_container: in_container.to_owned(), on_node: on_node.to_owned(), permissions: "rw".to_owned() }
}

/// Writes a file of CDI, which is the case's own as all of `/run` is.
fn describe(disk: &Path) -> Result<Given> {
    let edits = json!({"env": ["BED_DISK=/dev/of-cdi"], "deviceNodes": [{"path": "/dev/of-cdi", "hostPath": disk}]});
    let devices = json!([{"name": "disk", "containerEdits": edits}]);
    fs::create_dir_all("/run/cdi")?;
    let file = json!({"cdiVersion": "0.6.0", "kind": "bed.example/any", "devices": devices});
    fs::write("/run/cdi/bed.json", file.to_string())?;
    Ok(Given::ByCdi("bed.example/any=disk".to_owned()))
}

fn pod(name: &str, image: &str, resources: &[&str]) -> Value {
    let mut pod = whole::pod(name, image);
    for resource in resources {
        pod["spec"]["containers"][0]["resources"]["limits"][resource] = json!("1");
    }
    pod
}
