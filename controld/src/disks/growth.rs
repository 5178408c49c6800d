//! Disks that grow under a machine that runs: QEMU is told of one that is larger than it knows, and tells its guest.
//!
//! Of block volumes nobody tells: their sizes are looked at now and then, and when kubelet changes the container's resources. The root
//! disk of a pod grows at a start alone, before the guest runs, if the pod has asked for a larger one since its first container. QEMU does
//! that itself, confined as it is: it has written to that file on behalf of a guest, and no program with more rights is to open it.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use tokio::time::sleep;
use tracing::{Instrument as _, Span};
use vmspec::annotations::PodAnnotations;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{BlockDevice, Disk};

use super::Uses;
use super::sizes::Known;
use crate::disks::block_devices::Node;
use crate::hypervisor::Growth;
use crate::model::domain::{target_of, target_of_root};
use crate::model::{Container, ContainerState};

/// Of an overlay's header: magic, version, name of what is below, cluster bits, size (QEMU's `docs/interop/qcow2`).
const HEADER: usize = 32;
const MAGIC: &[u8; 4] = b"QFI\xfb";
/// Where the size is, in big-endian bytes.
const SIZE: std::ops::Range<usize> = 24..32;

/// How often sizes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Looks after the disks of a machine that runs, if it has such; again is fine.
pub(crate) fn watch(uses: &Arc<Uses>, container: &Container, span: Span) {
    let machine = container.machine.id;
    if devices(container).next().is_none() {
        return;
    }
    match uses.sizes.machines().entry(machine) {
        Entry::Occupied(_) => return,
        Entry::Vacant(place) => drop(place.insert(Known::new())),
    }
    let (uses, container) = (uses.clone(), container.clone());
    let watching = async move {
        while uses.store.container(container.id).is_some_and(|now| now.state != ContainerState::Exited) {
            look(&uses, &container).await;
            sleep(LOOK_EVERY).await;
        }
        uses.sizes.machines().remove(&machine);
    };
    tokio::spawn(watching.instrument(span));
}

/// How the root disk is to grow before the guest runs, if it is to and that can be told.
pub(crate) async fn at_start(container: &Container) -> Option<Growth> {
    let bytes = root_size(container)?;
    let root = &container.machine.root;
    if root.persistent.is_some() || root.volume.is_some() {
        return None;
    }
    let overlay = root.overlay.clone();
    let has = off_reactor(move || overlay_size(&overlay)).await?;
    (bytes > has).then(|| Growth { target: target_of_root(&container.machine.hardware), bytes })
}

/// The size of the disk that an overlay is.
fn overlay_size(overlay: &Path) -> Option<u64> {
    let mut header = [0; HEADER];
    File::open(overlay).ok()?.read_exact(&mut header).ok()?;
    let size = header.get(SIZE)?.try_into().ok()?;
    header.starts_with(MAGIC).then(|| u64::from_be_bytes(size))
}

/// Looks once at all disks. What cannot be seen or done now is tried again by the clock.
pub(crate) async fn look(uses: &Arc<Uses>, container: &Container) {
    for (nth, disk, device) in devices(container) {
        if let Err(error) = compare(uses, container, (nth, disk), device).await {
            tracing::warn!(disk = %disk.serial, error = %Chain(&error), "size of a disk not compared; trying again");
        }
    }
}

/// How large the pod wants its root disk, in bytes, if it says so. A volume that is the root disk is as large as it is, and a pod that says
/// otherwise is refused.
fn root_size(container: &Container) -> Option<u64> {
    PodAnnotations::parse(&container.machine_annotations).ok()?.root_volume_size
}

async fn compare(
    uses: &Arc<Uses>,
    container: &Container,
    (nth, disk): (u8, &Disk),
    device: &BlockDevice,
) -> Result<()> {
    let serial = &disk.serial;
    let (machine, number) = (container.machine.id, device.number);
    let size = off_reactor(move || Node::new().size(number)).await;
    let size = size.map_err(|cause| Error::because(Kind::Internal, "size of a block device not read", cause))?;
    if uses.sizes.known(machine, serial) == Some(size) {
        return Ok(());
    }
    let has = grow(uses, container, target_of(&container.machine.hardware, nth, disk), size).await?;
    if size > has {
        tracing::info!(disk = %serial, from = has, to = size, "disk has grown");
    } else if size < has {
        tracing::warn!(disk = %serial, from = has, to = size, "block device of a disk has shrunk; the guest is not told");
    }
    uses.sizes.learn(machine, serial, size);
    Ok(())
}

/// Tells QEMU of a disk that is larger than QEMU knows; what QEMU knew. A guest that has data beyond a disk's new end is not made to lose it by us.
async fn grow(uses: &Uses, container: &Container, target: String, size: u64) -> Result<u64> {
    let machine = container.machine.id.uuid();
    let has = uses.hypervisor.disk_size(machine, target.clone()).await?;
    if size > has {
        uses.hypervisor.resize_disk(machine, target, size).await?;
    }
    Ok(has)
}

/// The disks that are block devices, each with its place.
fn devices(container: &Container) -> impl Iterator<Item = (u8, &Disk, &BlockDevice)> {
    (0..).zip(&container.machine.disks).filter_map(|(nth, disk)| Some((nth, disk, disk.source.block()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_tells_its_size_and_what_is_none_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let (overlay, none) = (dir.path().join("root.qcow2"), dir.path().join("none"));
        let made = std::process::Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&overlay)
            .arg("8M")
            .status();
        assert!(made.expect("qemu-img (package qemu-utils) is installed").success());
        std::fs::write(&none, [0; 64]).unwrap();

        assert_eq!(overlay_size(&overlay), Some(8 << 20));
        assert_eq!((overlay_size(&none), overlay_size(dir.path())), (None, None));
    }
}
