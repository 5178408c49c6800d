//! Claims of pods whose volumes are directories with a disk in a file, and layers on claims, as pods of KubeVirt's objects have them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use proto::cri::{ContainerConfig, ContainerState, Device, Mount, PodSandboxConfig};
use tests::agent_image::tiny_with_agent;
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri;
use tests::image_server::Fault;
use tests::loop_device::LoopDevice;
use tests::node::{Node, SHUTDOWN};

use super::shell::{answers, prints};

/// Guests boot five times.
const DEADLINE: Duration = Duration::from_secs(720);
const GRACE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;
const DESCRIBED: &str = r#"{"v":1,"disks":[{"name":"data","serial":"D-1","source":{"diskImage":{"size":67108864}}},
    {"name":"golden","source":{"overlay":{}}},{"name":"lun","source":{"overlay":{}}}]}"#;

/// Where the disk that a VM boots from and its NIC are, and that the NIC has no carrier.
const PLACES: &str =
    r#""pciAddress":"0000:00:1a.0"}],"nics":[{"name":"pod","pciAddress":"0000:00:1c.0","acpiIndex":7,"state":"down""#;
/// Place, number and carrier of each NIC, as the guest has them.
const NICS: &str = "for nic in /sys/class/net/*; do if [ -e $nic/device ]; then ip link set ${nic##*/} up; at=$(readlink -f $nic/device/..); \
                    echo ${at##*/} $(cat $at/acpi_index) $(cat $nic/carrier); fi; done";

pub(super) const CASES: &[Case] =
    &[Case { name: "vm::claims_have_disks_in_files_and_layers_on_them", deadline: DEADLINE, run: disks }];

/// A claim's volume as a CSI driver mounts it for a pod, in directories that QEMU's user does not get into; what it is of is `dir`.
fn mounted(pod: &PodSandboxConfig, name: &str, dir: &Path) -> Result<Mount> {
    let pods = Path::new("/var/lib/kubelet/pods");
    let uid = &pod.metadata.as_ref().context("no metadata")?.uid;
    let at = pods.join(uid).join(format!("volumes/kubernetes.io~csi/pvc-{name}/mount"));
    fs::create_dir_all(&at)?;
    fs::set_permissions(pods, fs::Permissions::from_mode(0o700))?;
    sh(&format!("mount --bind {} {}", dir.display(), at.display()))?;
    Ok(Mount {
        container_path: format!("/run/virtlet/seed/{name}"),
        host_path: at.display().to_string(),
        ..Mount::default()
    })
}

fn directory(bed: &Bed, name: &str) -> Result<PathBuf> {
    let dir = bed.dir.join(name);
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

fn described(mut pod: PodSandboxConfig, text: &str) -> PodSandboxConfig {
    pod.annotations.insert("virtlet.k8s/vm".into(), text.into());
    pod
}

/// A line that finds the disk with this serial.
fn of(serial: &str) -> String {
    format!(
        "$(for d in /sys/block/*; do [ \"$(cat $d/serial 2>/dev/null)\" = {serial} ] && echo /dev/${{d##*/}}; done)"
    )
}

fn disks(bed: &Bed) -> Result<()> {
    let node = Node::configured(bed, "handlers.virtlet.guest_agent = true")?;
    let agent = tiny_with_agent(bed)?;
    let image = node.images.offer("agent.qcow2", &agent, Fault::None);
    node.cri.pull(&image)?;
    let [data, golden] = [directory(bed, "data")?, directory(bed, "golden")?];
    let mut of_golden = b"golden\n".to_vec();
    of_golden.resize(1 << 20, 0);
    fs::write(golden.join("disk.img"), &of_golden)?;
    let lun = LoopDevice::new(&bed.dir.join("lun.img"), MIB)?;
    lun.write(b"lun\n", 0)?;

    let pod = described(node.pod("claims")?, DESCRIBED);
    let golden_at = Mount { readonly: true, ..mounted(&pod, "golden", &golden)? };
    let device = Device {
        container_path: "/dev/virtlet/lun".into(),
        host_path: lun.node().display().to_string(),
        permissions: "r".into(),
    };
    let mut container = ContainerConfig {
        mounts: vec![mounted(&pod, "data", &data)?, golden_at],
        devices: vec![device],
        ..cri::container(&image, [].into())
    };
    let sandbox = node.cri.run_sandbox(&pod)?;
    fs::write(data.join("other"), "")?;
    let Err(error) = node.cri.create(&sandbox, &container, &pod) else { bail!("a disk beside other files") };
    ensure!(error.message().contains("is not empty (there is \"other\")"), "{error}");
    fs::remove_file(data.join("other"))?;

    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    let made = fs::metadata(data.join("disk.img"))?;
    ensure!((made.len(), made.uid(), made.blocks()) == (60 * MIB, 0, 0), "{made:?}");
    prints(bed, &vm, &format!("cat /sys/block/$(basename {})/size", of("D-1")), &(60 * MIB / 512).to_string())?;
    prints(bed, &vm, &format!("head -n 1 {} {} -q", of("golden"), of("lun")), "golden\nlun")?;
    for serial in ["D-1", "golden", "lun"] {
        prints(bed, &vm, &format!("echo 'of the guest' | dd of={} conv=fsync,notrunc 2>/dev/null", of(serial)), "")?;
    }
    prints(
        bed,
        &vm,
        &format!("head -n 1 {} {} {} -q", of("D-1"), of("golden"), of("lun")),
        &["of the guest"; 3].join("\n"),
    )?;
    prints(bed, &vm, "ls /run/virtlet/seed 2>/dev/null || true", "")?;
    ensure!(fs::read(data.join("disk.img"))?.starts_with(b"of the guest"), "not written");
    ensure!(fs::read(golden.join("disk.img"))? == of_golden && lun.read(4, 0)? == b"lun\n", "written");

    // As two pods of one claim have it: by paths of their own, which lead to one file.
    let other = described(node.pod("other")?, r#"{"v":1,"disks":[{"name":"data","source":{"diskImage":{}}}]}"#);
    let mounts = vec![mounted(&other, "data", &data)?];
    let also = ContainerConfig { mounts, ..cri::container(&image, [].into()) };
    let second = node.cri.run_sandbox(&other)?;
    let id = node.cri.create(&second, &also, &other)?;
    let Err(error) = node.cri.start(&id) else { bail!("two VMs write to one file") };
    ensure!(error.message().contains("`disk.img` of volume `pvc-data` is in use by the VM of pod"), "{error}");
    ensure!(node.cri.container(&id)?.state() == ContainerState::ContainerExited, "it is not over");
    node.cri.remove_sandbox(&second)?;

    // As kubelet starts it again: what is in the claim is there, and layers are new.
    node.cri.stop(&vm.container, SHUTDOWN)?;
    container.metadata.as_mut().context("no metadata")?.attempt += 1;
    let vm = answers(bed, node.start_in(&sandbox, &container, &pod)?)?;
    prints(
        bed,
        &vm,
        &format!("head -n 1 {} {} {} -q", of("D-1"), of("golden"), of("lun")),
        "of the guest\ngolden\nlun",
    )?;
    node.remove_vm(&vm, GRACE)?;
    roots(bed, &node, &agent, &image)
}

/// A guest boots from a file of a claim, and from a layer on it.
fn roots(bed: &Bed, node: &Node, agent: &Path, image: &str) -> Result<()> {
    let dir = directory(bed, "os")?;
    fs::copy(agent, dir.join("disk.img"))?;
    for (name, source, places) in
        [("file", r#"{"diskImage":{}}"#, PLACES), ("layer", r#"{"overlay":{}}"#, r#""serial":"root""#)]
    {
        let text = format!(r#"{{"v":1,"disks":[{{"name":"os","root":true,"source":{source},{places}}}]}}"#);
        let pod = described(node.pod(name)?, &text);
        let mounts = vec![mounted(&pod, "os", &dir)?];
        let container = ContainerConfig { mounts, ..cri::container(image, [].into()) };
        let vm = answers(bed, node.start_pod(pod, &container)?)?;
        if name == "file" {
            let line = format!("at=$(readlink -f /sys/block/$(basename {})/device/..); echo ${{at##*/}}", of("root"));
            prints(bed, &vm, &line, "0000:00:1a.0")?;
            prints(bed, &vm, NICS, "0000:00:1c.0 7 0")?;
            // Behind the file system of the tiny guest, which is in memory.
            prints(
                bed,
                &vm,
                &format!("printf kept | dd of={} bs=512 seek=1 conv=fsync,notrunc 2>/dev/null", of("root")),
                "",
            )?;
        }
        let line = format!("dd if={} bs=512 skip=1 count=1 2>/dev/null | head -c 4", of("root"));
        prints(bed, &vm, &line, "kept")?;
        if name == "layer" {
            let before = fs::metadata(dir.join("disk.img"))?.mtime_nsec();
            prints(
                bed,
                &vm,
                &format!("printf lost | dd of={} bs=512 seek=1 conv=fsync,notrunc 2>/dev/null", of("root")),
                "",
            )?;
            prints(bed, &vm, &line, "lost")?;
            ensure!(fs::metadata(dir.join("disk.img"))?.mtime_nsec() == before, "the claim was written to");
        }
        node.remove_vm(&vm, GRACE)?;
    }
    Ok(())
}
