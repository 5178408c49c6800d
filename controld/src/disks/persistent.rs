//! Root disks that outlive their pods: a block volume at `devicePath: /`, on which the pod's image is copied once.
//!
//! A header in the device's first sector says which image that is, and whether the copy is whole ([`header`]); the guest has what is
//! behind it. CreateContainer looks at the device and refuses what cannot be ([`check`]). StartContainer decides again, since the device is
//! nobody's in between, and makes the copy ([`ready`]):
//!
//! 1. No other machine may have the device ([`Claims`](super::claims::Claims)), and nobody else on the node: it is opened for us alone.
//! 2. What is on it is judged ([`decide`]); nothing has been written so far.
//! 3. The header goes on it, with a new UUID, as one that is being written. Then the copy, by a confined `qemu-img`, which has the very
//!    same open file: as long as it lives, nobody opens the device for themselves, whatever becomes of controld. Then the header
//!    again, as ready. Each is on the device before the next begins, so whenever it breaks off, the header says so, and the next start
//!    makes the copy anew.
//!
//! It is at the start because it may take long: a stop ends it, as soon as nothing is written any more, and kubelet, which gives a
//! call two minutes, finds the container starting until it is done.

mod decide;
mod device;
mod header;
mod signature;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::off_reactor;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use vmimage::convert::{ChainFile, Place, SandboxError};
use vmimage::digest::ImageId;
use vmspec::draft::persistent;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{BlockDevice, PersistentRoot};

use self::decide::{Booted, Decision, Refusal, Wanted};
use self::device::{Access, Device, DeviceError};
use self::header::{DATA, ImageHash, Written};
use super::Uses;
use super::block_devices::{self, Node};
use crate::model::Container;
use crate::model::domain::RootNow;
use crate::volumes::{Base, forget_uefi_variables};

/// How long a device may take to be opened, read or given a header.
const DEVICE_DEADLINE: Duration = Duration::from_secs(60);
/// What a copy may take besides what its bytes take.
const COPY_DEADLINE: Duration = Duration::from_secs(300);
/// How many images are copied at once on a node: more of them would take the disks, and the memory, from the machines that run.
static COPIES: Semaphore = Semaphore::const_new(2);
const HEADER: &str = "the header of the root disk";
/// Bytes of an image's disk for which a second is given: what a slow network disk takes.
const COPY_BYTES_PER_SECOND: u64 = 4 << 20;

/// The root disk that a container's machine is to have, once its device has been looked at; whether its image was converted here. Blocks.
///
/// # Errors
/// When the device is none, or what is on it is in the way.
pub(crate) fn check(wanted: &persistent::Wanted, base: &Base, converted: bool) -> Result<PersistentRoot> {
    let node = Node::new();
    let path = Path::new(&wanted.host_path);
    let root = PersistentRoot {
        device: node.block_device(&block_devices::at("/"), path)?,
        // Where kubelet links to the device, the link has the name of the volume.
        volume: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        virtual_size: base.virtual_size,
        on_image_change: wanted.on_image_change,
        as_is: wanted.as_is,
        converted,
    };
    let wanted = wanted_of(&root, &base.image_id)?;
    let device = Device::open(&node, &root.device, Access::Look).map_err(not_had)?;
    decide::judge(&device.look().map_err(not_had)?, &wanted).map_err(refused)?;
    Ok(root)
}

/// Makes sure that nobody else uses a container's devices in a way that spoils them, and that what its own machine is to
/// boot from is whole, if that is a volume; how it is used in this start.
///
/// # Errors
/// When the device is in use, is refused or fails, the copy does not come to its end, or `unwanted` is cancelled.
pub(crate) async fn ready(uses: &Uses, container: &Container, unwanted: &CancellationToken) -> Result<Option<RootNow>> {
    uses.claims.claim(container, || uses.store.containers()).map_err(|in_use| {
        let sandbox = uses.store.sandbox(in_use.sandbox());
        let pod = sandbox.map(|sandbox| format!("{}/{}", sandbox.config.namespace, sandbox.config.name));
        in_use.refusal(&pod.unwrap_or_else(|| in_use.sandbox().to_string()))
    })?;
    let Some(root) = container.machine.root.persistent.clone() else { return Ok(None) };
    let wanted = wanted_of(&root, &container.image_id)?;
    let block = root.device.clone();
    let looked = off_reactor(move || {
        let node = Node::new();
        let now = node.use_of("/", &block)?;
        let device = Device::open(&node, &block, Access::Alone).map_err(not_had)?;
        let seen = device.look().map_err(not_had)?;
        Ok::<_, Error>((device, seen, now))
    });
    let (device, seen, now) = timeout(DEVICE_DEADLINE, looked)
        .await
        .map_err(|_elapsed| late("a look at the block device of the root disk", DEVICE_DEADLINE))??;
    let (slice, uuid) = match decide::judge(&seen, &wanted).map_err(refused)? {
        Decision::Boot { slice, uuid, image } => {
            if image == Booted::Kept {
                tracing::warn!(%uuid, "root disk has another image than the pod wants; the runtime handler has it kept");
            }
            (slice, uuid)
        }
        Decision::Copy(why) => {
            let (began, device) = (Instant::now(), Arc::new(device));
            tracing::info!(device = %block_of(container), ?why, bytes = wanted.virtual_size, "copying the image to the root disk");
            let written = copy(uses, container, &device, &wanted, unwanted).await?;
            tracing::info!(uuid = %written.uuid, seconds = began.elapsed().as_secs(), "image copied to the root disk");
            (decide::of_size(device.size, DATA), written.uuid)
        }
    };
    Ok(Some(RootNow { disk: now, slice, uuid: Some(uuid) }))
}

/// The turn to copy an image; the time until then is not the copy's.
async fn turn(unwanted: &CancellationToken) -> Result<SemaphorePermit<'static>> {
    tokio::select! {
        turn = COPIES.acquire() => turn.map_err(|closed| Error::because(Kind::Internal, "no turn to copy an image", closed)),
        () = unwanted.cancelled() => Err(Error::new(Kind::State, "the machine was stopped while its root disk waited for its turn to be written")),
    }
}

/// Copies the image, from one header to the next. When this has ended, nothing is written any more.
async fn copy(
    uses: &Uses,
    container: &Container,
    device: &Arc<Device>,
    wanted: &Wanted,
    unwanted: &CancellationToken,
) -> Result<Written> {
    let slice = decide::of_size(device.size, DATA);
    let _turn = turn(unwanted).await?;
    let begun = Written::begin(wanted.image, wanted.virtual_size);
    let (on, header) = (device.clone(), begun.clone());
    written(HEADER, DEVICE_DEADLINE, move || on.write(&header).map_err(not_had)).await?;
    // The earlier disk is none any more. What breaks off here is done again with the copy.
    let overlay = container.machine.root.overlay.clone();
    off_reactor(move || forget_uefi_variables(&overlay))
        .await
        .map_err(|cause| Error::because(Kind::Internal, "what UEFI remembers of the earlier root disk stays", cause))?;
    let files: Vec<_> = (container.machine.root.images.iter())
        .map(|layer| ChainFile { path: layer.path.clone(), format: layer.format.clone() })
        .collect();
    let place = Place { offset: slice.offset, size: slice.size };
    let time = COPY_DEADLINE + Duration::from_secs(wanted.virtual_size / COPY_BYTES_PER_SECOND);
    let converter = uses.images.store().converter();
    converter.copy_to_device(&files, &device.file, place, time, unwanted.cancelled()).await.map_err(not_copied)?;
    let (on, length) = (device.clone(), wanted.virtual_size);
    let flush = move || on.blank_end(slice, length).and_then(|()| on.flush()).map_err(not_had);
    written("the copy of the image to the root disk", time, flush).await?;
    let (on, header) = (device.clone(), begun.finished());
    let ready = header.clone();
    written(HEADER, DEVICE_DEADLINE, move || on.write(&header).map_err(not_had)).await?;
    Ok(ready)
}

/// Waits until the device has what is written to it, also when that is late: as long as it is not there it may still come, and nobody
/// else may have the device. Until then the container is one that is being started.
async fn written(what: &str, deadline: Duration, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let began = Instant::now();
    let mut work = pin!(off_reactor(work));
    if let Ok(done) = timeout(deadline, &mut work).await {
        return done;
    }
    loop {
        let seconds = began.elapsed().as_secs();
        tracing::error!(
            seconds,
            "{what} is late and may still come; the container stays one that is being started until then"
        );
        if timeout(DEVICE_DEADLINE, &mut work).await.is_ok() {
            return Err(late(what, deadline));
        }
    }
}

fn late(what: &str, deadline: Duration) -> Error {
    Error::new(Kind::Deadline, format!("{what} took longer than {} s", deadline.as_secs()))
}

fn wanted_of(root: &PersistentRoot, image_id: &str) -> Result<Wanted> {
    let id: ImageId =
        image_id.parse().map_err(|cause| Error::because(Kind::Internal, "the record names no image", cause))?;
    Ok(Wanted {
        image: hash_of(&id).ok_or_else(|| Error::new(Kind::Internal, "the image's id is no sha256"))?,
        virtual_size: root.virtual_size,
        on_image_change: root.on_image_change,
        volume: root.volume.clone(),
        as_is: root.as_is,
        converted: root.converted,
    })
}

fn hash_of(id: &ImageId) -> Option<ImageHash> {
    let digits = id.hex().as_bytes().chunks_exact(2);
    let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    bytes.collect::<Option<Vec<u8>>>()?.try_into().ok()
}

fn block_of(container: &Container) -> String {
    let device = container.machine.root.persistent.as_ref().map(|root| &root.device);
    device.map_or_else(String::new, |BlockDevice { node, .. }| node.display().to_string())
}

const NOT_ROOT: &str = "device at `/` cannot be the root disk of the VM";

fn refused(cause: Refusal) -> Error {
    Error::because(Kind::State, NOT_ROOT, cause)
}

fn not_had(cause: DeviceError) -> Error {
    let kind = match cause {
        DeviceError::Busy(_) | DeviceError::Other { .. } => Kind::State,
        DeviceError::Io { .. } => Kind::Internal,
    };
    Error::because(kind, NOT_ROOT, cause)
}

fn stopped() -> Error {
    Error::new(Kind::State, "the machine was stopped while its root disk was being written")
}

fn not_copied(cause: SandboxError) -> Error {
    let kind = match cause {
        SandboxError::Stopped { .. } => return stopped(),
        SandboxError::Deadline { .. } => Kind::Deadline,
        _ => Kind::Internal,
    };
    Error::because(kind, "the image was not copied to the root disk", cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_id_is_the_hash_of_the_header() {
        let id: ImageId = format!("sha256:{}", "0123456789abcdef".repeat(4)).parse().expect("an id");
        let hash = hash_of(&id).expect("a hash");
        assert_eq!(hash[..8], [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        assert_eq!(hash[24..], hash[..8]);
    }
}
