//! Disks of a plan as the guest sees them.

use super::GuestDisk;
use crate::MountOptions;
use crate::plan::{Disk, DiskBus, Serial};

/// The machine's disks as its guest sees them.
#[must_use]
pub fn guest_disks(disks: &[Disk], bus: DiskBus) -> Vec<GuestDisk> {
    let disk = |disk: &Disk| {
        let device = guest_device(&disk.serial, &disk.path, disk.read_only, bus);
        let partition = disk.partition();
        let link = match partition {
            0 => device.link,
            number => format!("{}-part{number}", device.link),
        };
        GuestDisk { partition, link, file_system: disk.file_system(), options: disk.options, ..device }
    };
    disks.iter().map(disk).collect()
}

/// A disk that its guest has a link to, by the link that udev makes on its bus.
#[must_use]
pub fn guest_device(serial: &Serial, path: &str, read_only: bool, bus: DiskBus) -> GuestDisk {
    let prefix = match bus {
        DiskBus::Virtio => "virtio-",
        DiskBus::Scsi => "scsi-0QEMU_QEMU_HARDDISK_",
        DiskBus::Sata => "ata-QEMU_HARDDISK_",
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
    use super::*;
    use crate::plan::{BlockDevice, DeviceNumber, DiskFile, DiskSource, FileSystem};

    #[test]
    fn a_disk_is_known_by_the_link_that_udev_makes_on_its_bus() {
        let device = BlockDevice { node: "/dev/vdb".into(), number: DeviceNumber { major: 252, minor: 16 } };
        let file = DiskFile { dir: "/pods/scratch".into(), size: 1 << 30, file_system: Some(FileSystem::Ext4) };
        let disks =
            [("testpvc", DiskSource::Block(device)), ("scratch", DiskSource::File(file))].map(|(name, source)| Disk {
                serial: Serial::of_name(name),
                source,
                path: format!("/{name}"),
                read_only: false,
                options: MountOptions::default(),
            });
        for (bus, prefix) in [
            (DiskBus::Virtio, "virtio-"),
            (DiskBus::Scsi, "scsi-0QEMU_QEMU_HARDDISK_"),
            (DiskBus::Sata, "ata-QEMU_HARDDISK_"),
        ] {
            let [volume, file] = &guest_disks(&disks, bus)[..] else { panic!("two disks") };
            assert_eq!((&*volume.link, volume.file_system), (&*format!("/dev/disk/by-id/{prefix}testpvc"), ""));
            assert_eq!((&*file.link, file.file_system), (&*format!("/dev/disk/by-id/{prefix}scratch"), "ext4"));
            assert_eq!(*volume, guest_device(&disks[0].serial, "/testpvc", false, bus));
        }
    }
}
