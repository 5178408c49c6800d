//! The content store: images on disk by their digest, their names and leases, and an index of all that in memory.
//!
//! ```text
//! <root>/                       0711, the daemon's
//!   lock                        held while a process has the store
//!   data/                       0700, or 0710 and of the group that it is served to
//!   data/<hex>                  0444, the bytes whose SHA-256 this is; never changed
//!   data/part_*                 downloads under way
//!   data/.gc-<hex>              being removed
//!   links/<name> -> ../data/<hex>                    names of the default runtime handler
//!   handlers/<handler>/links/<name> -> ../../../data/<hex>      those of another
//!   meta/<hex>.json             what the bytes are
//!   refs/<handler>/<name>.json  where a name got them; `_default` for the default handler
//!   leases/<holder>.json        who needs which image, whatever happens to its names
//!   partial/                    downloads that broke off ([`partial`])
//!   quarantine/                 images that were found broken ([`verify`])
//! ```
//!
//! Everybody can search `root`, only the group that it is served to can search `data`, and neither can be listed.
//! So QEMU, as its own user, opens a base image by its path without a change of the file's owner, and another user of
//! the node cannot read an image even if he knows its digest.
//!
//! An image is listed while it has a name. It is removed when it has neither a name nor a lease, no work under way holds
//! it, and no image stands on it.
//!
//! Every change holds one lock, and runs off the reactor; a lookup holds another lock, for a moment. Nothing is hashed
//! under either. An image is written to disk before it is added to memory, and removed from memory before it is removed
//! from disk.
//!
//! The steps of publishing, and what a crash after each one leaves to the next start:
//!
//! | step | left behind | at the next start |
//! |---|---|---|
//! | part file written, synced, judged | a part file | swept |
//! | renamed to `data/<hex>` | an image without a name | swept |
//! | `meta/<hex>.json` written | the same, and its record | swept |
//! | records of layers written again, with the images below them, the lowest first | images without names, and their records | swept |
//! | `refs/<handler>/<name>.json` written | the same, and a record of a name without a link, or beside a link to the image before | swept, or not believed |
//! | link renamed over the old one | all of it | the image is there under its name |
//! | image that the name had before, and nobody needs, renamed to `.gc-<hex>` | that, and its record | swept |
//! | that removed | all of it | |
//!
//! A removal takes the same two steps: names, then `.gc-<hex>`. If a pull wants an image that is being removed, a rename
//! brings it back.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::Notify;
use vmimage::digest::ImageId;
use vmimage::inspect::DiskFormat;

mod collect;
mod details;
mod disk;
mod grant;
mod index;
mod key;
mod layers;
mod lease;
mod links;
mod part;
mod partial;
mod publish;
mod record;
mod remove;
mod scan;
mod sum;
#[cfg(test)]
mod tests;
mod usage;
mod verify;

pub use collect::{GcOptions, GcReport, Gone};
pub use details::{Details, Name};
use disk::Dir;
pub use disk::DiskError;
pub(crate) use disk::{Disk, is_regular};
pub(crate) use grant::Grant;
pub use index::Image;
use index::Index;
pub(crate) use index::{Known, MAX_CHAIN};
pub(crate) use key::{Handler, Key};
pub(crate) use layers::Misfit;
pub(crate) use lease::{Hold, is_holder};
pub(crate) use part::{GRAIN, Part, Reader, Received, Resumable, is_zero};
pub(crate) use partial::{PartialFile, Partials};
pub(crate) use publish::Facts;
pub(crate) use record::{Alias, Cover, Giver, Origin, Parent, Sought};
pub(crate) use remove::Losing;
pub use remove::{Binding, Keepers, Removed};
pub use scan::Finding;
pub use usage::FsUsage;
pub(crate) use usage::{free, reserve, usage};
pub use verify::{Verdict, Verified};

/// Longest name of a lease's holder.
pub(crate) const MAX_HOLDER: usize = 128;
/// The holder of images that are pinned. No caller's holder can have that name.
const PINNED: &str = ".pinned";

/// Steps of changes, for tests that fail or die behind one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Data,
    Meta,
    Ref,
    Link,
    Unlinked,
    Retired,
    Displaced,
    /// The only one that is not under the lock of changes.
    Hashed,
    Suspected,
    Quarantined,
    Stood,
}

/// Called behind each step.
pub(crate) type Hook = Box<dyn Fn(Step) -> Result<(), DiskError> + Send + Sync>;

pub(crate) struct ContentStore {
    disk: Arc<Disk>,
    changing: Mutex<()>,
    index: RwLock<Index>,
    /// All images as they are shown, until something changes: kubelet asks again and again.
    listed: Mutex<Option<Vec<Arc<Image>>>>,
    /// Told of each change of the index.
    changes: Arc<Notify>,
    /// What was hashed since this process began: written or verified by it.
    verified: Mutex<BTreeSet<ImageId>>,
    findings: Vec<Finding>,
    /// Whether it is known who needs what. If not, nothing is removed for want of somebody who does.
    leases_known: bool,
    keep: Keep,
    after: Hook,
}

/// What is kept of things that nobody needs just now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keep {
    pub(crate) partial_ttl: Duration,
    pub(crate) partial_quota: u64,
    /// Bytes of the file system that are left free.
    pub(crate) reserve: u64,
}

/// An image that others stand on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The file, as in [`Image::path`].
    pub path: PathBuf,
    pub format: DiskFormat,
}

impl ContentStore {
    /// Takes what is on the disk, and sweeps what a crash left there.
    pub(crate) fn open(disk: Disk, known: Known, keep: Keep, after: Hook) -> Result<Self, DiskError> {
        let scan::Loaded { index, findings, leases_known } = scan::load(&disk, known)?;
        let disk = Arc::new(disk);
        Partials::new(&disk).expire(keep.partial_ttl, keep.partial_quota)?;
        Ok(Self {
            disk,
            changing: Mutex::default(),
            index: RwLock::new(index),
            listed: Mutex::default(),
            changes: Arc::default(),
            verified: Mutex::default(),
            findings,
            leases_known,
            keep,
            after,
        })
    }

    pub(crate) fn disk(&self) -> &Arc<Disk> {
        &self.disk
    }

    pub(crate) fn changes(&self) -> Arc<Notify> {
        self.changes.clone()
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What a text means under a handler.
    pub(crate) fn get(&self, text: &str, handler: &Handler) -> Option<Image> {
        let index = self.read();
        index.image(index.resolve(text, handler)?, handler, self.disk.data.path())
    }

    /// All images, or those of one handler, by id and handler.
    pub(crate) fn list(&self, handler: Option<&Handler>) -> Vec<Arc<Image>> {
        let index = self.read();
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        // What changes the index waits until it is read, and then forgets this list.
        let all = listed.get_or_insert_with(|| index.list(self.disk.data.path()));
        let wanted = handler.map(|handler| index.known.name_of(handler));
        all.iter().filter(|image| wanted.is_none_or(|wanted| wanted == image.handler)).cloned().collect()
    }

    /// Images that are pinned and have no name left to be listed by.
    pub(crate) fn nameless(&self) -> Vec<Image> {
        self.read().nameless(self.disk.data.path())
    }

    /// Handlers, by their own names, under which a text means an image that may be used.
    pub(crate) fn handlers_of(&self, text: &str) -> Vec<String> {
        let index = self.read();
        let having = index.known.platforms.keys().filter(|handler| index.resolve(text, handler).is_some());
        having.map(|handler| index.known.name_of(handler).to_owned()).collect()
    }

    /// Bytes that each image takes on the disk, whether or not it has a name.
    pub(crate) fn sizes(&self) -> BTreeMap<ImageId, u64> {
        self.read().images.iter().map(|(id, entry)| (id.clone(), entry.allocated)).collect()
    }

    /// What was pulled under a name, if it may be used.
    pub(crate) fn remembered(&self, key: &Key) -> Option<(Image, Origin)> {
        let index = self.read();
        let bound = index.refs.get(key).filter(|bound| index.is_usable(key, &bound.record))?;
        let image = index.image(&bound.id, &key.handler, self.disk.data.path())?;
        Some((image, bound.record.origin.clone()))
    }

    /// The names under a handler of the image that a digest or an id means.
    pub(crate) fn names_of(&self, digest: &str, handler: &Handler) -> Vec<Key> {
        self.read().names_of(digest, handler)
    }

    /// Whether a digest of a source leads to an image that is here.
    pub(crate) fn has(&self, sought: &Sought, provider: &str) -> bool {
        self.read().behind(sought, provider).is_some()
    }

    /// The files that an image stands on, from the top down, or what is missing.
    pub(crate) fn below(&self, id: &ImageId) -> Result<Vec<Layer>, String> {
        let index = self.read();
        let chain = index.chain(id)?;
        let layers = chain.iter().skip(1).filter_map(|id| {
            let format = index.images.get(id)?.record.format;
            Some(Layer { path: self.disk.data.path().join(id.hex()), format })
        });
        Ok(layers.collect())
    }

    /// See [`ImageRecord::is_converted`](record::ImageRecord::is_converted).
    pub(crate) fn is_converted(&self, id: &ImageId) -> bool {
        self.read().images.get(id).is_some_and(|entry| entry.record.is_converted())
    }

    /// Whether the image is known and its file is still there.
    fn is_there(&self, id: &ImageId) -> Result<bool, DiskError> {
        let size = self.read().images.get(id).map(|entry| entry.record.size);
        let Some(size) = size else { return Ok(false) };
        let there = self.disk.data.stat(id.hex())?;
        Ok(there.is_some_and(|stat| disk::is_sound(&stat) && u64::try_from(stat.st_size) == Ok(size)))
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Index> {
        let index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        *self.listed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        // Who is told waits for the index.
        self.changes.notify_one();
        index
    }

    fn verified(&self) -> MutexGuard<'_, BTreeSet<ImageId>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ContentStore {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ContentStore").field("root", &self.disk.root.path()).finish_non_exhaustive()
    }
}

fn meta_name(id: &ImageId) -> String {
    format!("{}.json", id.hex())
}

fn allocated(stat: &nix::sys::stat::FileStat) -> u64 {
    // The kernel counts in units of 512 bytes, whatever the file system's blocks are.
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

fn obstructed(dir: &Dir, name: &str) -> DiskError {
    let path: PathBuf = dir.path().join(name);
    DiskError::Obstructed { path }
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
