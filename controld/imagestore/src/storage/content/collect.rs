//! Collects images: takes their names away, and removes images that nothing needs. [`remove`](super::remove) removes by
//! name.
//!
//! A removal has two steps. The first takes the image out of memory and renames its file to `data/.gc-<hex>`; the
//! second unlinks it. In between, a pull that wants these very bytes takes the file back. The file is unlinked while it
//! is open, and closed without the lock, so that nobody waits while [`ContentStore::gc`] gives the blocks of a large
//! file back.
//!
//! While one lease cannot be read, no image is removed for want of a lease. An image in use is never removed, however
//! little room is left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use vmimage::digest::ImageId;

use super::disk::{is_regular, is_sound};
use super::index::Entry;
use super::links::{link_name, record_name};
use super::record::{ImageRecord, parse};
use super::{ContentStore, DiskError, Handler, Key, Partials, Step, allocated, free, meta_name, reserve};

/// Start of the names of images on their way out.
pub(super) const RETIRED: &str = ".gc-";

/// What a collection takes beside that which nobody can want any more: images that nothing needs, and partial downloads
/// that are too old or too many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GcOptions {
    /// Also all broken-off downloads that nobody works on.
    pub partials: bool,
    /// Also the names of handlers that are configured no more.
    pub orphan_handlers: bool,
    /// Also what was found broken and put aside.
    pub quarantine: bool,
}

/// How much of one kind went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gone {
    /// How many.
    pub count: u64,
    /// Bytes that they took.
    pub bytes: u64,
}

/// What a collection did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Broken-off downloads.
    pub partials: Gone,
    pub images: Gone,
    /// Broken images.
    pub quarantine: Gone,
    /// Names of handlers that are configured no more.
    pub names: u64,
    /// Whether images were kept because a lease cannot be read. The findings of the start say which.
    pub kept_back: bool,
}

impl Gone {
    pub(super) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
    }
}

impl GcReport {
    /// Bytes that went in all.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.partials.bytes + self.images.bytes + self.quarantine.bytes
    }
}

impl ContentStore {
    /// Takes names away, for whoever has the lock of changes.
    pub(super) fn unbind(&self, names: &[Key]) -> Result<(), DiskError> {
        let handlers: BTreeSet<&Handler> = names.iter().map(|key| &key.handler).collect();
        for key in names {
            let bindings = self.disk.bindings(&key.handler)?;
            bindings.links.remove(&link_name(&key.image))?;
            self.write().unbind(key);
            (self.after)(Step::Unlinked)?;
            bindings.refs.remove(&record_name(&key.image))?;
        }
        handlers.into_iter().try_for_each(|handler| self.disk.bindings(handler)?.links.sync())
    }

    /// Removes an image that nothing needs any more, and then what it stood on. For whoever has the lock of changes.
    pub(super) fn drop_unused(&self, id: &ImageId) -> Result<(), DiskError> {
        let mut next = Some(id.clone());
        while let Some(id) = next.take().filter(|id| self.leases_known && self.read().is_unused(id)) {
            if let Some(entry) = self.retire(&id)? {
                self.bury(&id)?;
                next = entry.parent().cloned();
            }
        }
        Ok(())
    }

    /// The first step out.
    fn retire(&self, id: &ImageId) -> Result<Option<Entry>, DiskError> {
        let Some(entry) = self.write().images.remove(id) else { return Ok(None) };
        self.verified().remove(id);
        let data = &self.disk.data;
        match data.rename(id.hex(), &retired(id)) {
            Err(DiskError::Os { cause: nix::errno::Errno::ENOENT, .. }) => {}
            renamed => renamed?,
        }
        (self.after)(Step::Retired)?;
        tracing::info!(image = %id, "image removed");
        Ok(Some(entry))
    }

    /// The second one, unless it was taken back. Its blocks are given back when the answer is dropped.
    fn bury(&self, id: &ImageId) -> Result<Option<File>, DiskError> {
        let last = self.disk.open_data(&retired(id)).ok();
        self.disk.data.remove(&retired(id))?;
        if !self.read().images.contains_key(id) {
            self.disk.meta.remove(&meta_name(id))?;
        }
        Ok(last)
    }

    /// Takes back an image that is on its way out.
    pub(super) fn bring_back(&self, id: &ImageId) -> Result<(), DiskError> {
        let _changing = self.lock();
        let data = &self.disk.data;
        if self.read().images.contains_key(id) {
            return Ok(());
        }
        let Some(stat) = data.stat(&retired(id))?.filter(is_sound) else { return Ok(()) };
        let record = self.disk.meta.read_record(&meta_name(id))?.and_then(|text| parse::<ImageRecord>(&text));
        let record = record.filter(|record| u64::try_from(stat.st_size) == Ok(record.size));
        if let Some(record) = record.filter(|_| matches!(data.stat(id.hex()), Ok(None))) {
            data.rename(&retired(id), id.hex())?;
            let entry = Entry { record, allocated: allocated(&stat), names: BTreeMap::new() };
            self.write().images.insert(id.clone(), entry);
        }
        Ok(())
    }

    /// Removes what nobody needs.
    pub(crate) fn gc(&self, options: GcOptions) -> Result<GcReport, DiskError> {
        self.collect(options, &|| Ok(false))
    }

    /// Makes room for so many bytes, and for the reserve of the file system: broken-off downloads go first, then images
    /// that nothing needs. Whether there is room now.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<bool, DiskError> {
        let enough = || {
            Ok(free(&self.disk)?
                .is_none_or(|free| free >= bytes.saturating_add(reserve(&self.disk, self.keep.reserve))))
        };
        if enough()? {
            return Ok(true);
        }
        let options = GcOptions { partials: true, ..GcOptions::default() };
        let report = self.collect(options, &enough)?;
        tracing::info!(bytes = report.bytes(), "room made in the image store");
        enough()
    }

    fn collect(&self, options: GcOptions, enough: &dyn Fn() -> Result<bool, DiskError>) -> Result<GcReport, DiskError> {
        let mut report = GcReport { kept_back: !self.leases_known, ..GcReport::default() };
        if options.orphan_handlers {
            report.names = self.drop_orphans()?;
        }
        let partials = Partials::new(&self.disk);
        let (ttl, quota) = (self.keep.partial_ttl, if options.partials { 0 } else { self.keep.partial_quota });
        (report.partials.count, report.partials.bytes) = partials.expire(ttl, quota)?;
        if options.quarantine {
            report.quarantine = self.empty_quarantine()?;
        }
        if enough()? {
            return Ok(report);
        }
        let mut unused = if self.leases_known { self.read().unused() } else { Vec::new() };
        while let Some(id) = unused.pop() {
            let going = {
                let _changing = self.lock();
                // Somebody may have come to need it since.
                if self.read().is_unused(&id) { self.retire(&id)? } else { None }
            };
            let Some(entry) = going else { continue };
            let last = {
                let _changing = self.lock();
                self.bury(&id)?
            };
            // None if it was taken back.
            if last.is_some() {
                report.images.add(entry.allocated);
            }
            drop(last);
            // Its turn may have come while this one still stood on it.
            unused.extend(entry.parent().cloned());
            if enough()? {
                break;
            }
        }
        Ok(report)
    }

    /// Removes broken images for good.
    fn empty_quarantine(&self) -> Result<Gone, DiskError> {
        let dir = &self.disk.quarantine;
        let mut gone = Gone::default();
        for name in dir.names()? {
            let Some(stat) = dir.stat(&name)?.filter(is_regular) else { continue };
            dir.remove(&name)?;
            if ImageId::from_hex(&name).is_some() {
                gone.add(allocated(&stat));
            }
        }
        Ok(gone)
    }

    /// Takes the names of handlers away that are configured no more. Their images are for the collection to count.
    fn drop_orphans(&self) -> Result<u64, DiskError> {
        let _changing = self.lock();
        let names: Vec<Key> = {
            let index = self.read();
            let orphans = index.refs.keys().filter(|key| !index.known.platforms.contains_key(&key.handler));
            orphans.cloned().collect()
        };
        self.unbind(&names)?;
        Ok(names.len() as u64)
    }
}

/// The name of an image on its way out.
pub(super) fn retired(id: &ImageId) -> String {
    format!("{RETIRED}{}", id.hex())
}
