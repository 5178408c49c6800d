//! Block devices of the node that machines have as disks. They are looked at by their numbers, in `/sys`: nothing here opens one, and libvirt
//! gives QEMU its node in a `/dev` of QEMU's own.
//!
//! kubelet hands over a link to a device, or a file that the device's node is bound to. It is resolved once, when the container is made:
//! the plan has the device's number and its node in `/dev`, and a start checks that these still belong together.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use vmspec::MountOptions;
use vmspec::draft::disks::Wanted;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{BlockDevice, DeviceNumber, Disk, DiskSource};

use crate::model::domain::{AsyncIo, DiskNow, Sectors};

/// The unit of a device's size in `/sys`, whatever its sectors are.
const SIZE_UNIT: u64 = 512;
/// What every device has that does not say otherwise.
const SECTOR: u32 = 512;

/// Where a node shows its devices.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    root: PathBuf,
}

/// Why a path of the node is no disk.
#[derive(Debug, thiserror::Error)]
enum NoDisk {
    #[error("`{0}` is not there on the node")]
    Gone(String, #[source] io::Error),
    #[error("device `{0}` cannot be given to a VM: it is no block device")]
    NotBlock(String),
    #[error("the kernel does not show block device {number} at `{}`", path.display())]
    Unknown {
        number: DeviceNumber,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` on the node has nothing behind it any more, as a device that was detached", node.display())]
    Empty { node: PathBuf },
    #[error("`{}` on the node is not block device {number}", node.display())]
    OtherNode { node: PathBuf, number: DeviceNumber },
}

impl Node {
    pub(crate) fn new() -> Self {
        Self { root: PathBuf::from("/") }
    }

    /// The disks that a machine is to have. Blocks.
    ///
    /// # Errors
    /// When what a pod names is no block device.
    pub(crate) fn resolve(&self, wanted: &[Wanted]) -> Result<Vec<Disk>> {
        let resolve = |Wanted { name, serial, host_path, path, read_only }: &Wanted| {
            let source = DiskSource::Block(self.block_device(&at(path), Path::new(host_path))?);
            Ok(Disk {
                name: name.clone(),
                serial: serial.clone(),
                source,
                path: path.clone(),
                read_only: *read_only,
                options: MountOptions::default(),
            })
        };
        wanted.iter().map(resolve).collect()
    }

    /// How a device is to be used in a start that is now, which the pod wants at `path` in its guest: with its own sectors, also those that
    /// every guest takes for granted, if the disk `is_matched` to it. Blocks.
    ///
    /// # Errors
    /// When it is not there any more.
    pub(crate) fn now(&self, path: &str, device: &BlockDevice, is_matched: bool) -> Result<DiskNow> {
        let used = self.use_of(path, device)?;
        let sectors = if is_matched { self.all_sectors(device.number) } else { used.sectors };
        Ok(DiskNow { sectors, ..used })
    }

    /// The device of a path of the node, for `what` of the pod. Blocks.
    ///
    /// # Errors
    /// When it is no block device.
    pub(crate) fn block_device(&self, what: &str, host_path: &Path) -> Result<BlockDevice> {
        self.device(host_path).map_err(|cause| refused(what, cause))
    }

    /// How a device is to be used in a start that is now, which the pod wants at `path` in its guest. Blocks.
    ///
    /// # Errors
    /// When it is not there any more.
    pub(crate) fn use_of(&self, path: &str, device: &BlockDevice) -> Result<DiskNow> {
        self.check(device).map_err(|cause| refused(&at(path), cause))?;
        Ok(DiskNow { io: self.async_io(), sectors: self.sectors(device.number) })
    }

    /// Bytes of a device, as the kernel has them now. Blocks.
    pub(crate) fn size(&self, number: DeviceNumber) -> io::Result<u64> {
        Ok(read_number::<u64>(&self.of_device(number).join("size"))?.saturating_mul(SIZE_UNIT))
    }

    /// What a loop device has its bytes from; `None` for another device. Blocks.
    pub(crate) fn loop_file(&self, number: DeviceNumber) -> Option<PathBuf> {
        let device = self.of_device(number);
        // A partition has what its whole disk has.
        let mut files =
            ["loop", "../loop"].into_iter().map(|dir| fs::read_to_string(device.join(dir).join("backing_file")));
        Some(PathBuf::from(files.find_map(Result::ok)?.trim_end_matches('\n')))
    }

    fn device(&self, path: &Path) -> Result<BlockDevice, NoDisk> {
        let shown = || path.display().to_string();
        let found = fs::metadata(path).map_err(|cause| NoDisk::Gone(shown(), cause))?;
        if !found.file_type().is_block_device() {
            return Err(NoDisk::NotBlock(shown()));
        }
        let number = DeviceNumber::of(found.rdev());
        let uevent = self.of_device(number).join("uevent");
        let unknown = |cause| NoDisk::Unknown { number, path: uevent.clone(), cause };
        let text = fs::read_to_string(&uevent).map_err(unknown)?;
        let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let name = name.ok_or_else(|| unknown(io::ErrorKind::InvalidData.into()))?;
        let device = BlockDevice { node: self.root.join("dev").join(name), number };
        self.check(&device)?;
        Ok(device)
    }

    /// Whether a device's node is still that of the device, and the device has something behind it: the kernel keeps numbers of devices
    /// that are gone, and QEMU would show the guest a disk without a sector.
    fn check(&self, BlockDevice { node, number }: &BlockDevice) -> Result<(), NoDisk> {
        let found = fs::metadata(node).map_err(|cause| NoDisk::Gone(node.display().to_string(), cause))?;
        if !found.file_type().is_block_device() || DeviceNumber::of(found.rdev()) != *number {
            return Err(NoDisk::OtherNode { node: node.clone(), number: *number });
        }
        self.check_content(node, *number)
    }

    fn check_content(&self, node: &Path, number: DeviceNumber) -> Result<(), NoDisk> {
        match self.size(number) {
            Ok(0) => Err(NoDisk::Empty { node: node.to_owned() }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Sizes of a device's sectors, if they are not what every guest takes for granted. A partition has those of its whole disk.
    pub(crate) fn sectors(&self, number: DeviceNumber) -> Option<Sectors> {
        self.all_sectors(number).filter(|sectors| sectors.logical != SECTOR)
    }

    /// Sizes of a device's sectors, if the kernel tells them.
    fn all_sectors(&self, number: DeviceNumber) -> Option<Sectors> {
        let device = self.of_device(number);
        let queue = ["queue", "../queue"].map(|queue| device.join(queue)).into_iter().find(|queue| queue.is_dir())?;
        let bytes = |name| read_number::<u32>(&queue.join(name)).ok();
        let (logical, physical) = (bytes("logical_block_size")?, bytes("physical_block_size")?);
        Some(Sectors { logical, physical: physical.max(logical) })
    }

    /// Whether QEMU may use io_uring, which an admin can switch off (kernel, `io_uring_disabled`: 0 is for everybody). Kernels before
    /// 6.6 have no switch.
    pub(super) fn async_io(&self) -> AsyncIo {
        match read_number::<u32>(&self.root.join("proc/sys/kernel/io_uring_disabled")) {
            Ok(0) => AsyncIo::IoUring,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => AsyncIo::IoUring,
            Ok(_) | Err(_) => AsyncIo::Native,
        }
    }

    fn of_device(&self, number: DeviceNumber) -> PathBuf {
        self.root.join("sys/dev/block").join(number.to_string())
    }
}

fn read_number<T: std::str::FromStr>(path: &Path) -> io::Result<T> {
    fs::read_to_string(path)?.trim().parse().map_err(|_not_a_number| io::ErrorKind::InvalidData.into())
}

/// A device that the pod wants at a path in its guest, in words.
pub(crate) fn at(path: &str) -> String {
    format!("device at `{path}`")
}

fn refused(what: &str, cause: NoDisk) -> Error {
    let kind = match cause {
        NoDisk::Unknown { .. } => Kind::Internal,
        NoDisk::Gone(..) | NoDisk::NotBlock(_) | NoDisk::OtherNode { .. } | NoDisk::Empty { .. } => Kind::State,
    };
    Error::because(kind, format!("{what} cannot be a disk of the VM"), cause)
}

#[cfg(test)]
mod tests {
    use common::Chain;
    use vmspec::plan::Serial;

    use super::*;

    const NUMBER: DeviceNumber = DeviceNumber { major: 7, minor: 3 };

    fn node() -> (tempfile::TempDir, Node) {
        let dir = tempfile::tempdir().expect("tempdir");
        let device = dir.path().join("sys/dev/block/7:3");
        fs::create_dir_all(device.join("queue")).expect("made");
        fs::create_dir_all(dir.path().join("proc/sys/kernel")).expect("made");
        fs::create_dir_all(dir.path().join("dev")).expect("made");
        for (file, text) in [("size", "2048\n"), ("queue/logical_block_size", "4096\n")] {
            fs::write(device.join(file), text).expect("written");
        }
        fs::write(device.join("queue/physical_block_size"), "512\n").expect("written");
        let node = Node { root: dir.path().to_owned() };
        (dir, node)
    }

    fn wanted(host_path: &Path) -> Wanted {
        let host_path = host_path.display().to_string();
        Wanted {
            name: String::new(),
            serial: Serial::of_path("/dev/a"),
            host_path,
            path: "/dev/a".into(),
            read_only: false,
        }
    }

    #[test]
    fn size_and_sectors_are_as_the_kernel_says() {
        let (dir, node) = node();
        assert_eq!(node.size(NUMBER).expect("read"), 1 << 20);
        assert_eq!(node.sectors(NUMBER), Some(Sectors { logical: 4096, physical: 4096 }));
        fs::write(dir.path().join("sys/dev/block/7:3/queue/logical_block_size"), "512").expect("written");
        assert_eq!(node.sectors(NUMBER), None);
        assert!(node.size(DeviceNumber { major: 7, minor: 4 }).is_err());
    }

    #[test]
    fn a_device_that_was_detached_is_no_disk() {
        let (dir, node) = node();
        let (path, size) = (Path::new("/dev/loop3"), dir.path().join("sys/dev/block/7:3/size"));
        node.check_content(path, NUMBER).expect("it has a size");
        fs::write(&size, "0\n").expect("written");
        let error = node.check_content(path, NUMBER).expect_err("refused").to_string();
        assert!(error.starts_with("`/dev/loop3` on the node has nothing behind it"), "{error}");
        // What the kernel does not say is not held against it.
        fs::remove_file(&size).expect("removed");
        node.check_content(path, NUMBER).expect("not known");
    }

    #[test]
    fn io_uring_is_used_where_everybody_may() {
        let (dir, node) = node();
        let switch = dir.path().join("proc/sys/kernel/io_uring_disabled");
        assert_eq!(node.async_io(), AsyncIo::IoUring);
        for (text, io) in [("0\n", AsyncIo::IoUring), ("1\n", AsyncIo::Native), ("2\n", AsyncIo::Native)] {
            fs::write(&switch, text).expect("written");
            assert_eq!(node.async_io(), io, "{text}");
        }
    }

    #[test]
    fn what_is_no_block_device_is_no_disk() {
        let (dir, node) = node();
        let refused = |path: &Path| Chain(&node.resolve(&[wanted(path)]).expect_err("refused")).to_string();
        let file = dir.path().join("dev/file");
        fs::write(&file, "").expect("written");
        let shown = |path: &Path, why: &str| {
            format!("device at `/dev/a` cannot be a disk of the VM: `{}` {why}", path.display())
        };
        for path in [&file, Path::new("/dev/null")] {
            let why = format!("device `{}` cannot be given to a VM: it is no block device", path.display());
            assert_eq!(refused(path), format!("device at `/dev/a` cannot be a disk of the VM: {why}"));
        }
        let gone = dir.path().join("gone");
        std::os::unix::fs::symlink("nowhere", &gone).expect("linked");
        assert!(refused(&gone).starts_with(&shown(&gone, "is not there on the node: ")));
    }

    #[test]
    fn a_node_that_became_another_devices_is_not_used() {
        let (dir, node_of) = node();
        let file = dir.path().join("dev/loop3");
        let refused = |node: &Path| {
            let device = BlockDevice { node: node.to_owned(), number: NUMBER };
            Chain(&node_of.now("/dev/a", &device, false).expect_err("refused")).to_string()
        };
        assert!(refused(&file).contains("is not there on the node"));
        fs::write(&file, "").expect("written");
        assert!(refused(&file).contains("is not block device 7:3"));
    }
}
