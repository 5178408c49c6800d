//! How the disks of a machine are to be used in a start: each as what it is of has it at that time.

use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{DescribedSectors, Disk, DiskSource, Hardware, MountedDevice};

use super::block_devices::Node;
use super::{emptydir, volume_disks};
use crate::model::domain::{AsyncIo, DiskNow};

/// How each of them is used in a start that is now. Blocks.
///
/// # Errors
/// When one is not there any more.
pub(crate) fn all(disks: &[Disk], hardware: &Hardware) -> Result<Vec<DiskNow>> {
    let node = Node::new();
    let io = node.async_io();
    let now = |disk: &Disk| match &disk.source {
        DiskSource::Block(device) | DiskSource::Mounted(MountedDevice { device, .. }) => {
            let said = hardware.said_of(&disk.name).and_then(|said| said.block_size);
            node.now(&disk.path, device, said == Some(DescribedSectors::Matched))
        }
        // QEMU's own library reads and writes it.
        DiskSource::Rbd(_) => Ok(DiskNow { io: AsyncIo::Threads, sectors: None }),
        DiskSource::File(file) => {
            emptydir::now(file, io).map_err(|cause| Error::because(Kind::State, emptydir::gone(&disk.path), cause))
        }
        DiskSource::Volume(volume) => volume_disks::now(disk, volume, hardware.said_of(&disk.name), io),
        // Read by way of the node's cache, which all that have the image share.
        DiskSource::Image(_) | DiskSource::Files(_) => Ok(DiskNow { io: AsyncIo::Threads, sectors: None }),
    };
    disks.iter().map(now).collect()
}
