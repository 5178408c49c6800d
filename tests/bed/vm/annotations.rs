//! What a pod says of its machine, as the guest finds it; and what is no word of ours, as the pod's user is told.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{ContainerConfig, KeyValue, PodSandboxConfig};
use tests::case::{Bed, Case};
use tests::cri;
use tests::emulator::of_one_thread;
use tests::kubelet_volumes::PodVolumes;
use tests::node::{BOOT_DEADLINE, Node, Vm};
use tonic::Code;

const DEADLINE: Duration = Duration::from_secs(480);
const GRACE: Duration = Duration::from_secs(30);
/// A handler whose pods have seeds of another kind, unless they say so.
const DRIVE: &str = "[handlers.drive]\nseed = 'configdrive'\nnetwork_config = 'none'\n";
const UUID: &str = "53008994-44c0-4017-ad44-9c49758083da";
const SIZE_MIB: u64 = 3000;
/// Tells on the console what the guest finds itself on; a sector of a disk is 512 bytes in `/sys`.
const TELL: &str = "#!/bin/sh\nexec >/dev/console\n\
    echo uuid $(cat /sys/class/dmi/id/product_uuid)\n\
    echo disk $(($(cat /sys/block/vda/size) / 2048)) MiB\n\
    grep -m1 'model name' /proc/cpuinfo\n";

pub(super) const CASES: &[Case] = &[
    Case { name: "vm::a_guest_has_what_annotations_say", deadline: DEADLINE, run: said },
    Case { name: "vm::what_is_wrong_with_a_pod_is_told_at_once", deadline: DEADLINE, run: wrong },
];

fn annotations(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn said(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, &(of_one_thread(bed)? + DRIVE))?;
    let volumes = PodVolumes::new(&bed.dir, "said");
    let image = node.pull(bed, "tiny.qcow2")?;
    let size = format!("{SIZE_MIB}Mi");
    let mut container = cri::container(
        &image,
        annotations(&[
            ("VirtletVCPUCount", "2"),
            ("VirtletCPUModel", "Opteron_G2"),
            ("virtlet.cloud/system-uuid", UUID),
            ("VirtletRootVolumeSize", &size),
            ("virtlet.cloud/root-lifetime", "container"),
            ("VirtletForceDHCPNetworkConfig", "true"),
            ("virtlet.cloud/config-delivery", "none"),
            ("VirtletChown9pfsMounts", "true"),
            ("VirtletCloudInitMetaData", "local-hostname: named"),
            // Replaced as a whole, and read all the same.
            ("VirtletCloudInitUserDataSource", "volume/told"),
            ("VirtletCloudInitUserDataSourceEncoding", "base64"),
            ("VirtletCloudInitUserDataOverwrite", "true"),
            ("VirtletCloudInitUserDataScript", TELL),
        ]),
    );
    container.mounts = vec![volumes.fill("configmap", "told", &[("runcmd", "W10K")], "/run/virtlet/seed/told")?];
    let vm = node.start_pod(node.pod("said")?, &container)?;
    vm.wait_up()?;
    for line in [&format!("uuid {UUID}"), &format!("disk {SIZE_MIB} MiB"), "Opteron 22xx"] {
        vm.wait_log(line, BOOT_DEADLINE).with_context(|| vm.log_text().unwrap_or_default())?;
    }
    for line in ["cpus 2", "hostname named", "seed nocloud", "boots 1"] {
        ensure!(vm.info()?.contains(line), "no `{line}`:\n{}", vm.info()?);
    }

    // The next container of the pod has a disk of its own.
    node.cri.stop(&vm.container, GRACE)?;
    container.metadata.get_or_insert_default().attempt = 1;
    container.log_path = "vm_1.log".into();
    let id = node.cri.create(&vm.sandbox, &container, &vm.pod)?;
    node.cri.start(&id)?;
    let next = Vm { machine: node.cri.machine(&id)?, container: id, log: vm.log.with_file_name("vm_1.log"), ..vm };
    next.wait_up()?;
    ensure!(next.info()?.contains("boots 1"), "the disk of the container before it:\n{}", next.info()?);
    node.remove_vm(&next, GRACE)?;

    // What the handler says, and that the pod's word is before it.
    let vm = of_drive(&node, "handled", &cri::container(&image, [].into()))?;
    vm.wait_up()?;
    ensure!(vm.info()?.contains("seed configdrive"), "{}", vm.info()?);
    node.remove_vm(&vm, GRACE)?;
    let container = cri::container(&image, annotations(&[("VirtletCloudInitImageType", "NoCloud")]));
    let vm = of_drive(&node, "pods", &container)?;
    vm.wait_up()?;
    ensure!(vm.info()?.contains("seed nocloud"), "{}", vm.info()?);
    node.remove_vm(&vm, GRACE)
}

fn of_drive(node: &Node, name: &str, container: &ContainerConfig) -> Result<Vm> {
    let mut pod = node.pod(name)?;
    pod.annotations.extend(container.annotations.clone());
    let sandbox = node.cri.run_sandbox_for(&pod, "drive")?;
    node.start_in(&sandbox, container, &pod)
}

fn wrong(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "machine.max_disk_gib = 4")?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let sandbox = node.cri.run_sandbox(&node.pod("wrong")?)?;
    for (pairs, whys) in [
        (
            &[("VirtletVCPUcount", "2")][..],
            &["annotation VirtletVCPUcount: unknown; did you mean VirtletVCPUCount?"][..],
        ),
        (
            &[("VirtletVCPUCount", "2"), ("virtlet.cloud/vcpu-count", "3")],
            &["annotation virtlet.cloud/vcpu-count: differs from VirtletVCPUCount"],
        ),
        (
            &[("VirtletDiskDriver", "ide"), ("VirtletSystemUUID", "1"), ("virtlet.cloud/network-config", "bond")],
            &[
                "annotation VirtletDiskDriver: \"ide\" is not one of virtio, scsi, sata",
                "annotation VirtletSystemUUID: \"1\" is not a UUID",
                "annotation virtlet.cloud/network-config: \"bond\" is not one of auto, dhcp, static, none",
            ],
        ),
        (
            &[("VirtletVCPUCount", "4"), ("virtlet.cloud/max-vcpus", "2"), ("virtlet.cloud/root-device", "as-is")],
            &["virtlet.cloud/max-vcpus: 2 is below", "annotation virtlet.cloud/root-device: as-is: no block volume"],
        ),
        (
            &[("VirtletRootVolumeSize", "5Gi")],
            &["annotation VirtletRootVolumeSize: 5 GiB are more than the 4 GiB that controld gives a disk"],
        ),
        (&[("VirtletCloudInitImageType", "ignition")], &["needs cloud-init: variables"]),
    ] {
        let mut container = cri::container(&image, annotations(pairs));
        container.envs = vec![KeyValue { key: "MODE".into(), value: "x".into() }];
        let pod = PodSandboxConfig { annotations: container.annotations.clone(), ..node.pod("wrong")? };
        let Err(error) = node.cri.create(&sandbox, &container, &pod) else { anyhow::bail!("not refused: {whys:?}") };
        ensure!(error.code() == Code::InvalidArgument, "{error}");
        for why in whys {
            ensure!(error.message().contains(why), "{error}, not {why}");
        }
    }
    node.cri.remove_sandbox(&sandbox)?;
    let left = fs::read_dir("/var/lib/virtlet/volumes")?.count();
    ensure!(left == 0, "{left} folders of disks are left");
    Ok(())
}
