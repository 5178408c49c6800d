//! Verifies that stored bytes still have their digest, and takes those out of use that have not.
//!
//! A broken image is moved to `quarantine/` with a record of what was found, and loses its names: the next pull
//! downloads it again. Holders of a lease keep it, and are named in the answer, as their disks stand on broken bytes.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::sys::stat::{FileStat, fstat};
use serde::{Deserialize, Serialize};
use vmimage::digest::{Digest, ImageId};

use super::disk::errno_of;
use super::record::{VERSION, encode};
use super::sum;
use super::{ContentStore, DiskError, Key, Step, meta_name, now};

/// What became of an image's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// They are those that were stored.
    Sound,
    /// They are others, and were put aside.
    Corrupt {
        /// Their digest.
        found: String,
    },
    /// They are gone.
    Missing,
}

/// An image that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Which.
    pub id: ImageId,
    /// What was found.
    pub verdict: Verdict,
    /// The names that it had.
    pub names: Vec<String>,
    /// Who has disks on it.
    pub holders: Vec<String>,
    /// Whether it is to be kept also without a name.
    pub pinned: bool,
}

/// `quarantine/<hex>.json`.
#[derive(Debug, Serialize, Deserialize)]
struct QuarantineRecord {
    version: u32,
    expected: ImageId,
    found: String,
    names: Vec<String>,
    holders: Vec<String>,
    /// Seconds since 1970.
    found_at: u64,
}

impl ContentStore {
    /// All images, or those that a text means under whatever handler, for verifying one after the other.
    pub(crate) fn stored(&self, text: Option<&str>) -> Vec<ImageId> {
        let index = self.read();
        match text {
            Some(text) => {
                let mut ids = index.resolve_everywhere(text);
                ids.extend(index.pinned(text).cloned());
                ids.into_iter().collect()
            }
            None => index.images.keys().cloned().collect(),
        }
    }

    /// Hashes an image's bytes anew. `None` if there is no such image.
    pub(crate) fn verify(&self, id: &ImageId) -> Result<Option<Verified>, DiskError> {
        loop {
            if !self.read().images.contains_key(id) {
                return Ok(None);
            }
            let hashed = self.hash(id)?;
            (self.after)(Step::Hashed)?;
            let _changing = self.lock();
            // Meanwhile somebody else may have found the same and brought the image anew: that is not what was read.
            if self.is_at(id, hashed.as_ref().map(|(file, _)| file))? {
                return self.judge(id, hashed.map(|(_, digest)| digest));
            }
        }
    }

    /// What becomes of an image of which that was found, for whoever has the lock of changes.
    fn judge(&self, id: &ImageId, found: Option<Digest>) -> Result<Option<Verified>, DiskError> {
        let (names, holders, pinned, mut record) = {
            let index = self.read();
            // It may have been removed while it was read.
            let Some(entry) = index.images.get(id) else { return Ok(None) };
            let names: Vec<Key> = entry.names.keys().cloned().collect();
            (names, index.holders_of(id), index.is_pinned(id), entry.record.clone())
        };
        let verdict = match found {
            Some(found) if found.to_id().as_ref() == Some(id) => {
                record.verified_at = now();
                self.disk.meta.write_record(&meta_name(id), &encode(&record))?;
                if let Some(entry) = self.write().images.get_mut(id) {
                    entry.record = record;
                }
                self.verified().insert(id.clone());
                Verdict::Sound
            }
            Some(found) => {
                let found = found.to_string();
                self.set_aside(id, &found, &names, &holders)?;
                Verdict::Corrupt { found }
            }
            None => {
                self.forget(id, &names)?;
                Verdict::Missing
            }
        };
        let names = names.iter().map(|key| key.image.to_string()).collect();
        Ok(Some(Verified { id: id.clone(), verdict, names, holders, pinned }))
    }

    /// Whether an image is here, and was found sound since this process began: now, if not before.
    pub(super) fn is_trusted(&self, id: &ImageId) -> Result<bool, DiskError> {
        if !self.is_there(id)? {
            return Ok(false);
        }
        if self.verified().contains(id) {
            return Ok(true);
        }
        Ok(self.verify(id)?.is_some_and(|verified| verified.verdict == Verdict::Sound))
    }

    /// What is there, still open, and its digest. `None` if nothing is.
    fn hash(&self, id: &ImageId) -> Result<Option<(File, Digest)>, DiskError> {
        let failed = |error: io::Error| self.disk.data.failed("read", id.hex(), errno_of(&error));
        let file = match self.disk.open_data(id.hex()) {
            Ok(file) => file,
            Err(DiskError::Os { cause: Errno::ENOENT, .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (_, digest) = sum::sha256(&file).map_err(failed)?;
        Ok(Some((file, digest)))
    }

    /// Whether just this file is an image's, or none. While it is open nothing else gets its number.
    fn is_at(&self, id: &ImageId, file: Option<&File>) -> Result<bool, DiskError> {
        let data = &self.disk.data;
        let opened = file.map(fstat).transpose().map_err(|cause| data.failed("examine", id.hex(), cause))?;
        let number = |stat: FileStat| (stat.st_dev, stat.st_ino);
        Ok(data.stat(id.hex())?.map(number) == opened.map(number))
    }

    fn set_aside(&self, id: &ImageId, found: &str, names: &[Key], holders: &[String]) -> Result<(), DiskError> {
        tracing::error!(image = %id, found, ?holders, "stored image is not what was stored; put aside, pull it again");
        let record = QuarantineRecord {
            version: VERSION,
            expected: id.clone(),
            found: found.to_owned(),
            names: names.iter().map(|key| key.image.to_string()).collect(),
            holders: holders.to_vec(),
            found_at: now(),
        };
        let quarantine = &self.disk.quarantine;
        quarantine.write_record(&meta_name(id), &encode(&record))?;
        (self.after)(Step::Suspected)?;
        self.write().images.remove(id);
        self.verified().remove(id);
        self.disk.data.rename_into(id.hex(), quarantine, id.hex())?;
        self.disk.data.sync()?;
        (self.after)(Step::Quarantined)?;
        self.forget(id, names)
    }

    /// Takes the names and the record of an image away whose file is gone.
    fn forget(&self, id: &ImageId, names: &[Key]) -> Result<(), DiskError> {
        self.write().images.remove(id);
        self.unbind(names)?;
        self.disk.meta.remove(&meta_name(id))
    }
}
