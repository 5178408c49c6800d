//! Whether described disks are those that a machine has, and can be as they are described. Pure.

use std::collections::BTreeMap;

use super::invalid;
use crate::draft::volumes::Volumes;
use crate::error::Result;
use crate::plan::{DescribedDisk, DescribedSectors, DiskBus, DiskCache, DiskSource, Hardware};

/// What a disk is of, as far as it matters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A block device of the node.
    Block,
    /// An image of a cluster, which QEMU's own library reads and writes.
    Cluster,
    Other,
}

/// # Errors
/// When one is none of the machine's, or cannot be so.
pub(in crate::draft) fn check(hardware: &Hardware, volumes: &Volumes) -> Result<()> {
    let described = &hardware.described;
    root(&described.root, hardware, volumes)?;
    let there = names(volumes)?;
    for (name, said) in &described.disks {
        let Some(of) = there.get(name.as_str()) else {
            return invalid(format!(
                "disks[{name}]: no disk of the VM is of a volume that is called so; a block volume is that whose `devicePath` is \
                 `/dev/virtlet/{name}`, an image that whose `mountPath` is `/mnt/{name}`"
            ));
        };
        possible(name, said, *of, hardware)?;
    }
    Ok(())
}

fn root(said: &DescribedDisk, hardware: &Hardware, volumes: &Volumes) -> Result<()> {
    let bus = hardware.disk_bus;
    if said.bus.is_some_and(|said| said != bus) {
        return invalid(format!("the root disk is on the bus of all disks, {bus}; say another by VirtletDiskDriver"));
    }
    if said.slot.is_some() && bus != DiskBus::Virtio {
        return invalid("pciAddress of the root disk: it is on `virtio` alone that a disk is on PCI".to_owned());
    }
    if bus == DiskBus::Sata && has_large_sectors(said) {
        return invalid("blockSize of the root disk: one on sata has logical sectors of 512 bytes".to_owned());
    }
    let Volumes { share: _, disks, files, images, flexvolumes, with_files, of_volumes, root: _ } = volumes;
    let of_files = files.iter().chain(flexvolumes).chain(with_files).map(|disk| &disk.serial);
    let of_volumes = of_volumes.iter().map(|disk| &disk.serial);
    let blocks = disks.iter().map(|disk| &disk.serial).chain(images.iter().map(|image| &image.serial));
    let mut others = blocks.chain(of_files).chain(of_volumes);
    match &said.serial {
        Some(serial) if serial.as_str() == "seed" || others.any(|other| other == serial) => {
            invalid(format!("the root disk would have the serial `{serial}` of another disk; choose another one"))
        }
        _ => Ok(()),
    }
}

fn has_large_sectors(said: &DescribedDisk) -> bool {
    matches!(said.block_size, Some(DescribedSectors::Said { logical, .. }) if logical != 512)
}

fn possible(name: &str, said: &DescribedDisk, of: Of, hardware: &Hardware) -> Result<()> {
    let bus = hardware.bus_of(name);
    if said.is_cd && bus == DiskBus::Virtio {
        return invalid(format!("disks[{name}].bus: there is no CD on virtio; choose `sata` or `scsi`"));
    }
    if said.slot.is_some() && bus != DiskBus::Virtio {
        return invalid(format!("disks[{name}].pciAddress: it is on `virtio` alone that a disk is on PCI"));
    }
    if said.block_size == Some(DescribedSectors::Matched) && of != Of::Block {
        return invalid(format!("disks[{name}].blockSize.matchVolume: only block volumes have sectors to match"));
    }
    // QEMU's IDE and CDs know no other.
    let is_fixed = bus == DiskBus::Sata || said.is_cd;
    if is_fixed && has_large_sectors(said) {
        return invalid(format!("disks[{name}].blockSize: a CD, or a disk on sata, has logical sectors of 512 bytes"));
    }
    if said.io.is_some() && of == Of::Cluster {
        return invalid(format!("disks[{name}].io: is of disks that the node's kernel reads, and this one QEMU does"));
    }
    if hardware.shared_disks && of == Of::Block && said.cache.is_some_and(|cache| cache != DiskCache::None) {
        return invalid(format!("disks[{name}].cache: a disk that several VMs write to has none"));
    }
    if said.shareable && of != Of::Block {
        return invalid(format!("disks[{name}].shareable: only block volumes can be written to by several VMs"));
    }
    if said.shareable && !hardware.shared_disks {
        return invalid(format!("disks[{name}].shareable: takes a runtime handler with `shared_disks = true`"));
    }
    Ok(())
}

/// The disks of which the description says more. A name is that of one.
fn names(volumes: &Volumes) -> Result<BTreeMap<&str, Of>> {
    let Volumes { share: _, disks, files, images, flexvolumes, with_files, of_volumes, root: _ } = volumes;
    let block = disks.iter().map(|disk| (disk.name.as_str(), Of::Block));
    let images = images.iter().map(|image| (image.name.as_str(), Of::Other));
    let of_volumes = of_volumes.iter().map(|disk| (disk.name.as_str(), Of::Other));
    let others = files.iter().chain(flexvolumes).chain(with_files).map(|disk| {
        let of = match &disk.source {
            DiskSource::Block(_) | DiskSource::Mounted(_) => Of::Block,
            DiskSource::Rbd(_) => Of::Cluster,
            DiskSource::File(_) | DiskSource::Image(_) | DiskSource::Files(_) | DiskSource::Volume(_) => Of::Other,
        };
        (disk.name.as_str(), of)
    });
    let mut names = BTreeMap::new();
    for (name, of) in block.chain(images).chain(of_volumes).chain(others) {
        if names.insert(name, of).is_some() && !name.is_empty() {
            invalid(format!(
                "disks[{name}]: two disks of the VM are called so; give one of their volumes another name"
            ))?;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::annotations::PodAnnotations;
    use crate::draft::Wishes;
    use crate::plan::{Described, Serial};
    use crate::settings::{Handler, MachineConfig};
    use crate::{Accelerator, ContainerConfig, Device, MachineId, Mount, MountImage, SandboxConfig};

    /// Two block volumes, an emptyDir that is a disk, and an image.
    fn planned(hardware: &Hardware) -> Result<Volumes> {
        let device = |path: &str| Device { host_path: "/pods/x".into(), container_path: path.into(), read_only: false };
        let scratch = Mount {
            container_path: "/scratch".into(),
            host_path: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/scratch".into(),
            ..Mount::default()
        };
        let image = Some(MountImage { image: "drivers".into(), ..MountImage::default() });
        let image = Mount { container_path: "/mnt/drivers".into(), image, ..Mount::default() };
        let container = ContainerConfig {
            devices: vec![device("/dev/virtlet/data"), device("/dev/data")],
            mounts: vec![scratch, image],
            ..ContainerConfig::default()
        };
        let sandbox = SandboxConfig { uid: "u".into(), ..SandboxConfig::default() };
        let said = [("virtlet.cloud/emptydir-disks".to_owned(), "scratch=32Mi".to_owned())];
        let wishes = Wishes {
            id: MachineId::random(),
            sandbox: &sandbox,
            container: &container,
            annotations: &PodAnnotations::parse(&said.into()).expect("right"),
            flexvolumes: &[],
            handler: &Handler::default(),
            offer: None,
            accel: Accelerator::Kvm,
            node: &MachineConfig::default(),
        };
        Volumes::of(&wishes, hardware)
    }

    fn hardware(disks: &str) -> Hardware {
        let text = format!(r#"{{"v":1,"disks":[{disks}]}}"#);
        let described = Described::of(VmDescription::parse(&text).expect(disks)).expect(disks);
        Hardware { described, ..Hardware::default() }
    }

    #[test]
    fn disks_are_known_by_their_volumes_and_are_as_they_are_described() {
        let hardware = hardware(
            r#"{"name":"data","serial":"D-1","readonly":true},{"name":"scratch","kind":"cdrom"},{"name":"drivers","kind":"cdrom","bus":"scsi"}"#,
        );
        let volumes = planned(&hardware).expect("planned");
        check(&hardware, &volumes).expect("possible");
        let blocks: Vec<_> =
            volumes.disks.iter().map(|disk| (&*disk.name, disk.serial.as_str(), disk.read_only)).collect();
        assert_eq!(blocks, [("data", "D-1", true), ("", "data", false)]);
        assert_eq!((&*volumes.files[0].name, volumes.files[0].read_only), ("scratch", true));
        assert_eq!(
            (&*volumes.images[0].name, &volumes.images[0].serial),
            ("drivers", &Serial::of_path("/mnt/drivers"))
        );
        assert_eq!(hardware.bus_of("scratch"), DiskBus::Sata, "there is no CD on virtio");
        assert_eq!((hardware.bus_of("drivers"), hardware.bus_of("data")), (DiskBus::Scsi, DiskBus::Virtio));
    }

    #[test]
    fn what_is_no_disk_or_cannot_be_is_told_by_its_name() {
        let told: Vec<String> = [
            r#"{"name":"config"}"#,
            r#"{"name":"data","serial":"root"}"#,
            r#"{"name":"drivers","serial":"scratch"}"#,
            r#"{"name":"data","kind":"cdrom","bus":"virtio"}"#,
            r#"{"name":"drivers","bus":"sata"}"#,
            r#"{"name":"data","bus":"sata","readonly":true}"#,
            r#"{"name":"scratch","blockSize":{"matchVolume":{}}}"#,
            r#"{"name":"data","bus":"sata","blockSize":{"custom":{"logical":4096,"physical":4096}}}"#,
            r#"{"name":"scratch","shareable":true}"#,
            r#"{"name":"data","shareable":true}"#,
            r#"{"name":"data","bus":"scsi","pciAddress":"0000:00:10.0"}"#,
            r#"{"name":"x","root":true,"bus":"scsi"}"#,
            r#"{"name":"x","root":true,"serial":"scratch"}"#,
        ]
        .map(|disks| {
            let hardware = hardware(disks);
            let checked = planned(&hardware).and_then(|volumes| check(&hardware, &volumes));
            checked.expect_err(disks).to_string()
        })
        .into();
        insta::assert_snapshot!(told.join("\n"));
        let shared = Hardware { shared_disks: true, ..hardware(r#"{"name":"data","shareable":true}"#) };
        check(&shared, &planned(&shared).expect("planned")).expect("the handler shares disks");
        let cached = Hardware { shared_disks: true, ..hardware(r#"{"name":"data","cache":"writeback"}"#) };
        let checked = planned(&cached).and_then(|volumes| check(&cached, &volumes));
        let refused = checked.expect_err("cached").to_string();
        assert_eq!(refused, "annotation virtlet.k8s/vm: disks[data].cache: a disk that several VMs write to has none");
    }
}
