//! Downloads that broke off and may be resumed: `partial/<key>.data` and, beside it, `<key>.json` with what is needed
//! to resume.
//!
//! The key is the SHA-256 of the download's identity, as that may hold a secret. A download that uses a partial holds a
//! lock on its `.data` file, also against other processes (the record is replaced by renaming, so a lock on the record
//! would be lost). A locked partial never expires. The bytes of a partial are untrusted: they are verified when the
//! file is whole, as any download is.
//!
//! Invariant: the bytes that a record counts as received are on disk before the record is.

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::fstat;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use vmimage::digest::{Algorithm, Digest};

use super::disk::{Disk, DiskError, errno_of, is_ours, is_regular};
use super::record::{Record, encode, parse};
use super::{allocated, now};

const DATA: &str = ".data";
const RECORD: &str = ".json";
/// A name that is taken away between opening and locking it is tried again, so often at most.
const ATTEMPTS: usize = 8;

/// What is needed to go on with a download. [`PartialRecord::default`] is one at its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartialRecord {
    pub(crate) version: u32,
    /// The place, redacted: for people.
    #[serde(default)]
    pub(crate) source: String,
    /// The strong validator that a server must confirm before anything is added.
    #[serde(default)]
    pub(crate) etag: Option<String>,
    /// Length of the whole, if it is known.
    #[serde(default)]
    pub(crate) total: Option<u64>,
    /// So many bytes from the beginning are there.
    #[serde(default)]
    pub(crate) received: u64,
    /// Whatever else the one who downloads needs: states of hashes, ranges that are there already.
    #[serde(default)]
    pub(crate) state: serde_json::Value,
    /// Seconds since 1970.
    #[serde(default)]
    pub(crate) updated_at: u64,
}

impl Record for PartialRecord {}

/// A partial download, locked for us. Kept when dropped; see [`PartialFile::discard`].
#[derive(Debug)]
pub(crate) struct PartialFile {
    disk: Arc<Disk>,
    stem: String,
    file: Flock<File>,
    record: PartialRecord,
}

/// A partial in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartialEntry {
    pub(crate) stem: String,
    /// Bytes that it takes on the disk.
    pub(crate) allocated: u64,
    pub(crate) record: PartialRecord,
}

/// All partial downloads of a store.
#[derive(Debug, Clone)]
pub(crate) struct Partials {
    disk: Arc<Disk>,
}

impl Partials {
    pub(crate) fn new(disk: &Arc<Disk>) -> Self {
        Self { disk: disk.clone() }
    }

    /// The partial of that key, begun if there is none. `None` while somebody else works on it.
    pub(crate) fn open(&self, key: &str) -> Result<Option<PartialFile>, DiskError> {
        let stem = stem_of(key);
        let Some(file) = self.lock(&stem, OFlag::O_RDWR | OFlag::O_CREAT)? else { return Ok(None) };
        let record = self.disk.partial.read_record(&record_of(&stem))?.and_then(|text| parse(&text));
        let mut opened = PartialFile { disk: self.disk.clone(), stem, file, record: record.unwrap_or_default() };
        if opened.length()? < opened.record.received {
            // Shorter than its record says: not what we left.
            opened.restart()?;
        }
        Ok(Some(opened))
    }

    /// The partial of that key, if there is one and nobody works on it.
    pub(crate) fn find(&self, key: &str) -> Result<Option<PartialFile>, DiskError> {
        match self.disk.partial.stat(&data_of(&stem_of(key)))? {
            Some(_) => self.open(key),
            None => Ok(None),
        }
    }

    /// All of them, the oldest first.
    pub(crate) fn list(&self) -> Result<Vec<PartialEntry>, DiskError> {
        let dir = &self.disk.partial;
        let mut found = Vec::new();
        for name in dir.names()? {
            let Some(stem) = name.strip_suffix(DATA).filter(|stem| is_stem(stem)) else { continue };
            let Some(stat) = dir.stat(&name)?.filter(is_regular) else { continue };
            let record = dir.read_record(&record_of(stem))?.and_then(|text| parse(&text)).unwrap_or(PartialRecord {
                updated_at: u64::try_from(stat.st_mtime).unwrap_or(0),
                ..PartialRecord::default()
            });
            found.push(PartialEntry { stem: stem.to_owned(), allocated: allocated(&stat), record });
        }
        found.sort_by(|a, b| a.record.updated_at.cmp(&b.record.updated_at).then_with(|| a.stem.cmp(&b.stem)));
        Ok(found)
    }

    /// Removes those that nobody touched for `ttl`, then the oldest until no more than `quota` bytes are left. What
    /// somebody works on stays. Returns how many went, and their bytes.
    pub(crate) fn expire(&self, ttl: Duration, quota: u64) -> Result<(u64, u64), DiskError> {
        let all = self.list()?;
        let (mut total, oldest) =
            (all.iter().map(|entry| entry.allocated).sum::<u64>(), now().saturating_sub(ttl.as_secs()));
        let (mut count, mut bytes) = (0, 0);
        for entry in all {
            if (entry.record.updated_at < oldest || total > quota) && self.remove(&entry.stem)? {
                total -= entry.allocated;
                count += 1;
                bytes += entry.allocated;
            }
        }
        self.sweep_records()?;
        Ok((count, bytes))
    }

    /// Removes one. `false` if somebody works on it.
    fn remove(&self, stem: &str) -> Result<bool, DiskError> {
        let Some(_locked) = self.lock(stem, OFlag::O_RDWR)? else { return Ok(false) };
        remove_both(&self.disk, stem)?;
        Ok(true)
    }

    /// Records whose bytes are gone, and unfinished ones.
    fn sweep_records(&self) -> Result<(), DiskError> {
        let dir = &self.disk.partial;
        for name in dir.names()? {
            let orphan = match name.strip_suffix(RECORD).filter(|stem| is_stem(stem)) {
                Some(stem) => dir.stat(&data_of(stem))?.is_none(),
                None => false,
            };
            if orphan {
                dir.remove(&name)?;
            }
        }
        Ok(())
    }

    fn lock(&self, stem: &str, flags: OFlag) -> Result<Option<Flock<File>>, DiskError> {
        let (dir, name) = (&self.disk.partial, data_of(stem));
        for _ in 0..ATTEMPTS {
            let file = File::from(dir.open_file(&name, flags)?);
            let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(file) => file,
                Err((_, nix::errno::Errno::EAGAIN)) => return Ok(None),
                Err((_, cause)) => return Err(dir.failed("lock", &name, cause)),
            };
            let opened = fstat(&*file).map_err(|cause| dir.failed("examine", &name, cause))?;
            if !is_regular(&opened) || !is_ours(&opened) || opened.st_nlink > 1 {
                return Err(super::obstructed(dir, &name));
            }
            // Whoever had it may have removed it before it let go of the lock.
            if dir.stat(&name)?.is_some_and(|named| (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)) {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }
}

impl PartialFile {
    /// The bytes: readable and writable at any place.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn record(&self) -> &PartialRecord {
        &self.record
    }

    /// Brings the bytes to the disk, then the record that counts them.
    pub(crate) fn save(&mut self, record: PartialRecord) -> Result<(), DiskError> {
        let dir = &self.disk.partial;
        self.file.sync_data().map_err(|error| dir.failed("sync", &data_of(&self.stem), errno_of(&error)))?;
        let record = PartialRecord { version: super::record::VERSION, updated_at: now(), ..record };
        dir.write_record(&record_of(&self.stem), &encode(&record))?;
        self.record = record;
        Ok(())
    }

    /// Forgets all that is there, as when the server has other bytes now.
    pub(crate) fn restart(&mut self) -> Result<(), DiskError> {
        let dir = &self.disk.partial;
        dir.remove(&record_of(&self.stem))?;
        self.file.set_len(0).map_err(|error| dir.failed("empty", &data_of(&self.stem), errno_of(&error)))?;
        self.record = PartialRecord::default();
        Ok(())
    }

    /// Removes it, as when its bytes are of no use any more.
    pub(crate) fn discard(&self) -> Result<(), DiskError> {
        remove_both(&self.disk, &self.stem)
    }

    /// Gives the file the name `name` in `data/`, in place of what may be there. The name must still be that of the
    /// file that was written and judged.
    pub(crate) fn publish(&self, name: &str) -> Result<(), DiskError> {
        let (dir, own) = (&self.disk.partial, data_of(&self.stem));
        let opened = fstat(&*self.file).map_err(|cause| dir.failed("examine", &own, cause))?;
        let named = dir.stat(&own)?;
        if named.is_none_or(|named| (named.st_dev, named.st_ino) != (opened.st_dev, opened.st_ino)) {
            return Err(super::obstructed(dir, &own));
        }
        dir.rename_into(&own, &self.disk.data, name)?;
        dir.remove(&record_of(&self.stem))
    }

    /// Where it is, for errors.
    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.disk.partial.path().join(data_of(&self.stem))
    }

    fn length(&self) -> Result<u64, DiskError> {
        let facts = self.file.metadata();
        let failed =
            |error: std::io::Error| self.disk.partial.failed("examine", &data_of(&self.stem), errno_of(&error));
        Ok(facts.map_err(failed)?.len())
    }
}

impl Default for PartialRecord {
    fn default() -> Self {
        Self {
            version: super::record::VERSION,
            source: String::new(),
            etag: None,
            total: None,
            received: 0,
            state: serde_json::Value::Null,
            updated_at: 0,
        }
    }
}

fn remove_both(disk: &Disk, stem: &str) -> Result<(), DiskError> {
    // The record first: bytes without one are begun anew.
    disk.partial.remove(&record_of(stem))?;
    disk.partial.remove(&data_of(stem))
}

fn stem_of(key: &str) -> String {
    let sum = Digest::computed(Algorithm::Sha256, &Sha256::digest(key.as_bytes())).to_string();
    sum.trim_start_matches("sha256:").to_owned()
}

fn is_stem(text: &str) -> bool {
    text.len() == 64 && vmimage::digest::is_hex(text)
}

fn data_of(stem: &str) -> String {
    format!("{stem}{DATA}")
}

fn record_of(stem: &str) -> String {
    format!("{stem}{RECORD}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, symlink};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn partials(root: &std::path::Path) -> Partials {
        Partials::new(&Arc::new(Disk::open(&root.join("images")).expect("opened")))
    }

    fn fill(partial: &mut PartialFile, bytes: u64) {
        partial.file().write_all_at(&vec![7; usize::try_from(bytes).expect("small")], 0).expect("written");
        let record = PartialRecord { received: bytes, etag: Some("\"a\"".into()), ..partial.record().clone() };
        partial.save(record).expect("saved");
    }

    #[test]
    fn it_goes_on_where_it_was_left() {
        let root = tempfile::tempdir().expect("a directory");
        let all = partials(root.path());
        let mut first = all.open("https://x/y a").expect("opened").expect("free");
        assert_eq!(*first.record(), PartialRecord::default());
        fill(&mut first, 1000);
        assert!(all.open("https://x/y a").expect("looked").is_none(), "somebody works on it");
        assert!(all.open("https://x/y b").expect("looked").is_some(), "another one");
        drop(first);
        drop(all);
        let all = partials(root.path());
        let mut again = all.open("https://x/y a").expect("opened").expect("free");
        assert_eq!((again.record().received, again.record().etag.as_deref()), (1000, Some("\"a\"")));
        again.restart().expect("emptied");
        assert_eq!((again.record().received, again.length().expect("known")), (0, 0));
        again.discard().expect("removed");
        assert_eq!(all.list().expect("listed").len(), 1);
    }

    #[test]
    fn a_record_that_counts_more_than_there_is_is_not_believed() {
        let root = tempfile::tempdir().expect("a directory");
        let all = partials(root.path());
        let mut partial = all.open("k").expect("opened").expect("free");
        fill(&mut partial, 1000);
        partial.file().set_len(999).expect("cut");
        drop(partial);
        assert_eq!(all.open("k").expect("opened").expect("free").record().received, 0);
    }

    #[test]
    fn it_becomes_an_image_unless_its_name_belongs_to_another() {
        let root = tempfile::tempdir().expect("a directory");
        let all = partials(root.path());
        let mut partial = all.open("k").expect("opened").expect("free");
        fill(&mut partial, 10);
        partial.publish(&"a".repeat(64)).expect("published");
        assert_eq!(std::fs::read(all.disk.data.path().join("a".repeat(64))).expect("read"), [7; 10]);
        assert_eq!(all.disk.partial.names().expect("listed"), Vec::<String>::new());
        let mut partial = all.open("k").expect("opened").expect("free");
        fill(&mut partial, 10);
        std::fs::remove_file(partial.path()).expect("removed");
        std::fs::write(partial.path(), "other").expect("written");
        assert!(matches!(partial.publish(&"b".repeat(64)), Err(DiskError::Obstructed { .. })));
    }

    #[test]
    fn the_old_ones_go_and_then_the_oldest_and_never_one_in_use() {
        let root = tempfile::tempdir().expect("a directory");
        let all = partials(root.path());
        for (key, age) in [("old", 7200), ("first", 30), ("second", 20), ("third", 10)] {
            let mut partial = all.open(key).expect("opened").expect("free");
            fill(&mut partial, 8192);
            let record = PartialRecord { updated_at: now() - age, ..partial.record().clone() };
            all.disk.partial.write_record(&record_of(&stem_of(key)), &encode(&record)).expect("written");
        }
        let keys = |all: &Partials| all.list().expect("listed").into_iter().map(|entry| entry.stem).collect::<Vec<_>>();
        let stems = |keys: &[&str]| keys.iter().map(|key| stem_of(key)).collect::<Vec<_>>();
        assert_eq!(keys(&all), stems(&["old", "first", "second", "third"]));
        let used = all.open("first").expect("opened").expect("free");
        assert_eq!(all.expire(HOUR, u64::MAX).expect("expired").0, 1);
        assert_eq!(keys(&all), stems(&["first", "second", "third"]));
        let each = all.list().expect("listed")[0].allocated;
        assert_eq!(all.expire(HOUR, 2 * each).expect("expired"), (1, each), "the oldest that is free");
        assert_eq!(keys(&all), stems(&["first", "third"]));
        assert_eq!(all.expire(HOUR, 0).expect("expired").0, 1);
        assert_eq!(keys(&all), stems(&["first"]));
        drop(used);
        std::fs::remove_file(all.disk.partial.path().join(data_of(&stem_of("first")))).expect("removed");
        all.expire(HOUR, 0).expect("expired");
        assert!(all.disk.partial.names().expect("listed").is_empty());
    }

    #[test]
    fn what_was_planted_is_not_written_to() {
        let root = tempfile::tempdir().expect("a directory");
        let all = partials(root.path());
        let secret = root.path().join("secret");
        std::fs::write(&secret, "secret").expect("written");
        let planted = |key: &str| all.disk.partial.path().join(data_of(&stem_of(key)));
        symlink(&secret, planted("link")).expect("linked");
        std::fs::hard_link(&secret, planted("hard")).expect("linked");
        nix::unistd::mkfifo(&planted("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        std::fs::create_dir(planted("dir")).expect("made");
        for key in ["link", "hard", "fifo", "dir"] {
            assert!(all.open(key).is_err(), "{key}");
        }
        assert_eq!(std::fs::read_to_string(&secret).expect("read"), "secret");
    }
}
