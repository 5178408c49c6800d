//! The store's content: what lies on the disk, and the same in memory.
//!
//! ```text
//! <root>/                    0711, ours
//!   lock                     held while a process has the store
//!   data/<hex>               0444, the bytes whose SHA-256 this is; never changed
//!   data/part_*              downloads under way
//!   links/<name> -> ../data/<hex>
//!   meta/<hex>.json          what the bytes are
//!   refs/_default/<name>.json  where a name got them
//!   leases/<holder>.json     who needs which image, whatever happens to its names
//! ```
//!
//! `root` and `data` can be passed but not listed by others, so QEMU, as its own user, opens a base image by its name
//! and nobody has to change the image's owner. An image is listed while it has a name. It goes when it has neither a
//! name nor a lease.
//!
//! Every change holds one lock, and runs off the reactor; looking something up holds another, for a moment. An image
//! comes on the disk before it comes into memory, and goes from memory before it goes from the disk.
//!
//! The order of publishing, and what a crash behind each step leaves for the next start:
//!
//! | step | left behind | at the next start |
//! |---|---|---|
//! | part file written, synced, judged | a part file | swept |
//! | renamed to `data/<hex>` | an image without a name | swept |
//! | `meta/<hex>.json` written | the same, and its record | swept |
//! | `refs/_default/<name>.json` written | the same, and a record of a name without a link | swept |
//! | link renamed over the old one | all of it | the image is there under its name |
//! | image that the name had before, and nobody needs, removed | if it is not yet: an image without a name | swept |

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::inspect::ImageInfo;
use crate::name::{ImageId, ImageRef};

mod disk;
mod index;
mod links;
mod part;
mod record;
mod scan;
#[cfg(test)]
mod tests;
mod usage;

pub use disk::DiskError;
use disk::{Dir, is_ours};
pub(crate) use disk::{Disk, is_regular};
pub use index::Image;
use index::{Entry, Index};
use links::{link_name, record_name, target};
pub(crate) use part::{Part, Received};
use record::{ImageRecord, LeaseRecord, RefRecord, VERSION, encode};
pub use scan::Finding;
pub use usage::FsUsage;
pub(crate) use usage::{free, usage};

/// Longest name of a lease's holder.
pub(crate) const MAX_HOLDER: usize = 128;

/// Steps of publishing, for tests that fail or die behind one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Data,
    Meta,
    Ref,
    Link,
    Displaced,
}

/// Called behind each step.
pub(crate) type Hook = Box<dyn Fn(Step) -> Result<(), DiskError> + Send + Sync>;

/// Where a name got its bytes from.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    pub(crate) source: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) etag: Option<String>,
    pub(crate) last_modified: Option<String>,
}

pub(crate) struct Shelf {
    disk: Arc<Disk>,
    changing: Mutex<()>,
    index: RwLock<Index>,
    findings: Vec<Finding>,
    after: Hook,
}

impl Shelf {
    /// Takes what is on the disk, and sweeps what a crash left there.
    pub(crate) fn open(disk: Disk, after: Hook) -> Result<Self, DiskError> {
        let (index, findings) = scan::load(&disk)?;
        Ok(Self { disk: Arc::new(disk), changing: Mutex::default(), index: RwLock::new(index), findings, after })
    }

    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    pub(crate) fn get(&self, text: &str) -> Option<Image> {
        let index = self.read();
        index.image(index.resolve(text)?, self.disk.data.path())
    }

    pub(crate) fn list(&self) -> Vec<Image> {
        self.read().list(self.disk.data.path())
    }

    pub(crate) fn holders(&self) -> Vec<String> {
        self.read().leases.keys().cloned().collect()
    }

    /// Puts received bytes on the shelf under a name. If it fails, everything is as before.
    pub(crate) fn publish(
        &self,
        received: Received,
        info: ImageInfo,
        image: &ImageRef,
        origin: Origin,
    ) -> Result<Image, DiskError> {
        let _changing = self.lock();
        // Received bytes are named by their SHA-256.
        let id = received.sha256.to_id().ok_or_else(|| obstructed(&self.disk.data, "part"))?;
        let created = !self.is_sound(&id)?;
        if created {
            self.place(received, info, &id)?;
        }
        let bound = self.bind(image, &id, origin);
        if bound.is_err() && created && self.read().is_unused(&id) {
            self.discard(&id);
        }
        bound
    }

    /// Binds a name to an image whose digest it has. `None` if there is no such image.
    pub(crate) fn adopt(&self, image: &ImageRef) -> Result<Option<Image>, DiskError> {
        let _changing = self.lock();
        let Some(digest) = image.digest() else { return Ok(None) };
        let bound = self.read().refs.get(image).cloned();
        let known = bound.clone().or_else(|| self.read().present(digest).cloned());
        let Some(id) = known else { return Ok(None) };
        if !self.is_sound(&id)? {
            return Ok(None);
        }
        if bound.is_some() {
            return Ok(self.read().image(&id, self.disk.data.path()));
        }
        self.bind(image, &id, Origin::default()).map(Some)
    }

    /// Takes all names from the image that `text` means. The file stays while it is leased.
    pub(crate) fn remove(&self, text: &str) -> Result<(), DiskError> {
        let _changing = self.lock();
        let index = self.read();
        let Some(id) = index.resolve(text).cloned() else { return Ok(()) };
        let names: Vec<_> = index.images.get(&id).into_iter().flat_map(|entry| entry.names.iter().cloned()).collect();
        drop(index);
        for name in &names {
            self.disk.links.remove(&link_name(name))?;
            self.write().unbind(name);
            self.disk.refs.remove(&record_name(name))?;
        }
        self.disk.links.sync()?;
        self.drop_unused(&id)
    }

    /// Keeps an image for a holder until it is released. `false` if it is not here.
    pub(crate) fn lease(&self, id: &ImageId, holder: &str) -> Result<bool, DiskError> {
        let _changing = self.lock();
        let index = self.read();
        if !index.images.contains_key(id) {
            return Ok(false);
        }
        let mut images = index.leases.get(holder).cloned().unwrap_or_default();
        drop(index);
        if images.insert(id.clone()) {
            let record = LeaseRecord { version: VERSION, images: images.iter().cloned().collect() };
            self.disk.leases.write_record(&lease_name(holder), &encode(&record))?;
            self.write().leases.insert(holder.to_owned(), images);
        }
        Ok(true)
    }

    /// Gives up all that a holder has.
    pub(crate) fn release(&self, holder: &str) -> Result<(), DiskError> {
        let _changing = self.lock();
        if !self.read().leases.contains_key(holder) {
            return Ok(());
        }
        self.disk.leases.remove(&lease_name(holder))?;
        self.disk.leases.sync()?;
        let images = self.write().leases.remove(holder).unwrap_or_default();
        images.iter().try_for_each(|id| self.drop_unused(id))
    }

    /// Whether the image is known and its file is still there.
    fn is_sound(&self, id: &ImageId) -> Result<bool, DiskError> {
        let size = self.read().images.get(id).map(|entry| entry.record.size);
        let Some(size) = size else { return Ok(false) };
        let there = self.disk.data.stat(id.hex())?;
        Ok(there.is_some_and(|stat| is_regular(&stat) && is_ours(&stat) && u64::try_from(stat.st_size) == Ok(size)))
    }

    /// Gives the file its name and its record, or leaves neither.
    fn place(&self, mut received: Received, info: ImageInfo, id: &ImageId) -> Result<(), DiskError> {
        let data = &self.disk.data;
        // What lies there is not known as this image: a broken one of ours is replaced, anything else is not touched.
        if data.stat(id.hex())?.is_some_and(|there| !is_regular(&there) || !is_ours(&there)) {
            return Err(obstructed(data, id.hex()));
        }
        received.part.publish(id.hex())?;
        self.record(&received, info, id).inspect_err(|_| {
            if self.read().is_unused(id) {
                self.discard(id);
            }
        })
    }

    fn record(&self, received: &Received, info: ImageInfo, id: &ImageId) -> Result<(), DiskError> {
        let data = &self.disk.data;
        data.sync()?;
        (self.after)(Step::Data)?;
        let record = ImageRecord {
            version: VERSION,
            size: received.length,
            format: info.format,
            virtual_size: info.virtual_size,
            aliases: received.sha512.iter().cloned().collect(),
            verified_at: now(),
        };
        self.disk.meta.write_record(&meta_name(id), &encode(&record))?;
        (self.after)(Step::Meta)?;
        let allocated = data.stat(id.hex())?.map_or(0, |stat| allocated(&stat));
        let mut index = self.write();
        // It has names already if its file was lost and came back.
        let names = index.images.remove(id).map(|entry| entry.names).unwrap_or_default();
        index.images.insert(id.clone(), Entry { record, allocated, names });
        Ok(())
    }

    fn bind(&self, image: &ImageRef, id: &ImageId, origin: Origin) -> Result<Image, DiskError> {
        let new = !self.read().refs.contains_key(image);
        let linked = self.write_ref(image, origin).and_then(|()| {
            (self.after)(Step::Ref)?;
            self.disk.links.replace_link(&link_name(image), &target(id))
        });
        if let Err(error) = linked {
            if new {
                let _ = self.disk.refs.remove(&record_name(image));
            }
            return Err(error);
        }
        // From here on the name is bound: what fails now is told, but not undone.
        let displaced = self.write().bind(image, id);
        self.disk.links.sync()?;
        (self.after)(Step::Link)?;
        if let Some(displaced) = displaced {
            self.drop_unused(&displaced)?;
            (self.after)(Step::Displaced)?;
        }
        let gone = || obstructed(&self.disk.data, id.hex());
        self.read().image(id, self.disk.data.path()).ok_or_else(gone)
    }

    fn write_ref(&self, image: &ImageRef, origin: Origin) -> Result<(), DiskError> {
        let Origin { source, by, etag, last_modified } = origin;
        let record =
            RefRecord { version: VERSION, image: image.to_string(), source, by, etag, last_modified, pulled_at: now() };
        self.disk.refs.write_record(&record_name(image), &encode(&record))
    }

    /// Removes an image that nobody needs any more.
    fn drop_unused(&self, id: &ImageId) -> Result<(), DiskError> {
        if !self.read().is_unused(id) || self.write().images.remove(id).is_none() {
            return Ok(());
        }
        tracing::info!(image = %id, "image removed");
        self.disk.data.remove(id.hex())?;
        self.disk.meta.remove(&meta_name(id))
    }

    /// Takes back what [`Shelf::place`] put there. What cannot be removed is swept at the next start.
    fn discard(&self, id: &ImageId) {
        self.write().images.remove(id);
        for removed in [self.disk.data.remove(id.hex()), self.disk.meta.remove(&meta_name(id))] {
            if let Err(error) = removed {
                tracing::warn!(%error, "image left behind until the next start");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shelf").field("root", &self.disk.root.path()).finish_non_exhaustive()
    }
}

fn meta_name(id: &ImageId) -> String {
    format!("{}.json", id.hex())
}

fn allocated(stat: &nix::sys::stat::FileStat) -> u64 {
    // The kernel counts in units of 512 bytes, whatever the file system's blocks are.
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

fn lease_name(holder: &str) -> String {
    format!("{holder}.json")
}

fn obstructed(dir: &Dir, name: &str) -> DiskError {
    let path: PathBuf = dir.path().join(name);
    DiskError::Obstructed { path }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Whether a text can be the name of a lease's file.
pub(crate) fn is_holder(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=MAX_HOLDER).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}
