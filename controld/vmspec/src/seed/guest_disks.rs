//! Disks of a plan as the guest sees them.

use super::GuestDisk;
use crate::MountOptions;
use crate::plan::{Disk, DiskBus, Hardware, Serial};

/// The machine's disks as its guest sees them, but for those of which it is told nothing.
#[must_use]
pub fn guest_disks(disks: &[Disk], hardware: &Hardware) -> Vec<GuestDisk> {
    let disk = |disk: &Disk| {
        let device = guest_device(&disk.serial, &disk.path, disk.read_only, (hardware, &disk.name));
        let partition = disk.partition();
        let link = match partition {
            0 => device.link,
            number => format!("{}-part{number}", device.link),
        };
        GuestDisk { partition, link, file_system: disk.file_system(), options: disk.options, ..device }
    };
    disks.iter().filter(|disk| !disk.path.is_empty()).map(disk).collect()
}

/// A disk that its guest has a link to, by the link that udev makes on its bus, which is that of the machine's disk with this name.
#[must_use]
pub fn guest_device(serial: &Serial, path: &str, read_only: bool, (hardware, name): (&Hardware, &str)) -> GuestDisk {
    let prefix = match (hardware.bus_of(name), hardware.is_cd(name)) {
        (DiskBus::Virtio, _) => "virtio-",
        (DiskBus::Scsi, false) => "scsi-0QEMU_QEMU_HARDDISK_",
        (DiskBus::Scsi, true) => "scsi-0QEMU_QEMU_CD-ROM_",
        (DiskBus::Sata, false) => "ata-QEMU_HARDDISK_",
        (DiskBus::Sata, true) => "ata-QEMU_DVD-ROM_",
    };
    let link = format!("/dev/disk/by-id/{prefix}{serial}");
    GuestDisk {
        serial: serial.to_string(),
        partition: 0,
        link,
        path: path.to_owned(),
        file_system: "",
        read_only,
        options: MountOptions::default(),
    }
}

#[cfg(test)]
mod tests {
    use proto::vm::VmDescription;

    use super::*;
    use crate::plan::{BlockDevice, Described, DeviceNumber, DiskFile, DiskSource, FileSystem};

    #[test]
    fn a_disk_is_known_by_the_link_that_udev_makes_on_its_bus() {
        let device = BlockDevice { node: "/dev/vdb".into(), number: DeviceNumber { major: 252, minor: 16 } };
        let file = DiskFile { dir: "/pods/scratch".into(), size: 1 << 30, file_system: Some(FileSystem::Ext4) };
        let disks =
            [("testpvc", DiskSource::Block(device)), ("scratch", DiskSource::File(file))].map(|(name, source)| Disk {
                name: String::new(),
                serial: Serial::of_name(name),
                source,
                path: format!("/{name}"),
                read_only: false,
                options: MountOptions::default(),
            });
        for (disk_bus, prefix) in [
            (DiskBus::Virtio, "virtio-"),
            (DiskBus::Scsi, "scsi-0QEMU_QEMU_HARDDISK_"),
            (DiskBus::Sata, "ata-QEMU_HARDDISK_"),
        ] {
            let hardware = Hardware { disk_bus, ..Hardware::default() };
            let [volume, file] = &guest_disks(&disks, &hardware)[..] else { panic!("two disks") };
            assert_eq!((&*volume.link, volume.file_system), (&*format!("/dev/disk/by-id/{prefix}testpvc"), ""));
            assert_eq!((&*file.link, file.file_system), (&*format!("/dev/disk/by-id/{prefix}scratch"), "ext4"));
            assert_eq!(*volume, guest_device(&disks[0].serial, "/testpvc", false, (&hardware, "")));
        }
        let description =
            r#"{"v":1,"disks":[{"name":"cd","kind":"cdrom"},{"name":"drivers","kind":"cdrom","bus":"scsi"}]}"#;
        let described = Described::of(VmDescription::parse(description).expect("one")).expect("built");
        let hardware = Hardware { described, ..Hardware::default() };
        let link = |name| guest_device(&Serial::of_name("s"), "/s", true, (&hardware, name)).link;
        assert_eq!(link("cd"), "/dev/disk/by-id/ata-QEMU_DVD-ROM_s", "there is no CD on virtio");
        assert_eq!(link("drivers"), "/dev/disk/by-id/scsi-0QEMU_QEMU_CD-ROM_s");
    }
}
