//! Block volumes that grow under a machine that runs. Nobody tells: their sizes are looked at now and then, and when kubelet changes the
//! container's resources. QEMU is told of one that is larger than it knows, and tells its guest.

use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use tokio::time::sleep;
use tracing::{Instrument as _, Span};

use super::disks::Node;
use super::sizes::Known;
use super::uses::Uses;
use crate::model::domain::target_of;
use crate::model::error::{Error, Kind, Result};
use crate::model::plan::{BlockDevice, Serial};
use crate::model::{Container, ContainerState};

/// How often sizes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Looks after the disks of a machine that runs, if it has such; again is fine.
pub(super) fn watch(uses: &Arc<Uses>, container: &Container, span: Span) {
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
        let lives = || uses.store.container(container.id).is_some_and(|now| now.state != ContainerState::Exited);
        while lives() {
            look(&uses, &container).await;
            sleep(LOOK_EVERY).await;
        }
        uses.sizes.machines().remove(&machine);
    };
    tokio::spawn(watching.instrument(span));
}

/// Looks once at all disks. What cannot be seen or done now is tried again by the clock.
pub(super) async fn look(uses: &Arc<Uses>, container: &Container) {
    for (nth, serial, device) in devices(container) {
        if let Err(error) = compare(uses, container, nth, serial, device).await {
            tracing::warn!(disk = %serial, error = %Chain(&error), "size of a disk not compared; trying again");
        }
    }
}

async fn compare(
    uses: &Arc<Uses>,
    container: &Container,
    nth: u8,
    serial: &Serial,
    device: &BlockDevice,
) -> Result<()> {
    let (machine, number) = (container.machine.id, device.number);
    let size = off_reactor(move || Node::new().size(number)).await;
    let size = size.map_err(|cause| Error::because(Kind::Internal, "size of a block device not read", cause))?;
    if uses.sizes.known(machine, serial) == Some(size) {
        return Ok(());
    }
    let target = target_of(&container.machine.hardware, nth);
    let has = uses.hypervisor.disk_size(machine.uuid(), target.clone()).await?;
    // A guest that has data beyond a device's new end is not made to lose it by us.
    if size > has {
        uses.hypervisor.resize_disk(machine.uuid(), target, size).await?;
        tracing::info!(disk = %serial, from = has, to = size, "disk has grown");
    } else if size < has {
        tracing::warn!(disk = %serial, from = has, to = size, "block device of a disk has shrunk; the guest is not told");
    }
    uses.sizes.learn(machine, serial, size);
    Ok(())
}

/// The disks that are block devices, each with its place.
fn devices(container: &Container) -> impl Iterator<Item = (u8, &Serial, &BlockDevice)> {
    (0..).zip(&container.machine.disks).filter_map(|(nth, disk)| Some((nth, &disk.serial, disk.source.block()?)))
}
