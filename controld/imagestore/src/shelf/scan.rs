//! What a start makes of the directories: sweeps what crashes left, loads what is sound, and reports the rest without
//! touching it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, SFlag};

use super::disk::{Dir, Disk, DiskError, TMP, is_ours, is_regular};
use super::index::{Entry, Index};
use super::links::{id_of_target, image_of};
use super::part::PREFIX as PART_PREFIX;
use super::record::{ImageRecord, LeaseRecord, RefRecord, parse};
use super::{allocated, meta_name};
use crate::name::{ImageId, ImageRef};

/// Something that a start came across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: PathBuf,
    /// Whether it was removed; otherwise it was left alone.
    pub removed: bool,
    /// What it is.
    pub what: &'static str,
}

pub(super) fn load(disk: &Disk) -> Result<(Index, Vec<Finding>), DiskError> {
    let mut scan = Scan { disk, findings: Vec::new(), all_leases_known: true };
    let files = scan.data()?;
    let records = scan.meta(&files)?;
    let leases = scan.leases()?;
    let refs = scan.links(&files)?;
    scan.refs(&refs)?;
    let needed: BTreeSet<&ImageId> = refs.values().chain(leases.values().flatten()).collect();
    let mut index = Index::default();
    for (id, file) in &files {
        let File::Sound(stat) = file else { continue };
        let record = records.get(id);
        if !needed.contains(id) {
            scan.remove_orphan(id, record.is_some())?;
            continue;
        }
        match record {
            None => scan.left(&disk.data, id.hex(), "image without a record; pull it again"),
            Some(record) if i64::try_from(record.size) != Ok(stat.st_size) => {
                scan.left(&disk.data, id.hex(), "image of another size than recorded; pull it again");
            }
            Some(record) => {
                let entry = Entry { record: record.clone(), allocated: allocated(stat), names: BTreeSet::new() };
                index.images.insert(id.clone(), entry);
            }
        }
    }
    for (image, id) in refs {
        if index.images.contains_key(&id) {
            index.bind(&image, &id);
        }
    }
    index.leases = leases;
    for finding in &scan.findings {
        let Finding { path, removed, what } = finding;
        tracing::warn!(path = %path.display(), removed, what, "image store came across something");
    }
    Ok((index, scan.findings))
}

/// What has the name of an image.
enum File {
    Sound(FileStat),
    /// Nothing that we would have made.
    Strange,
}

struct Scan<'a> {
    disk: &'a Disk,
    findings: Vec<Finding>,
    /// Whether every lease could be read. If not, an image without a name may still be needed by somebody.
    all_leases_known: bool,
}

impl Scan<'_> {
    fn data(&mut self) -> Result<BTreeMap<ImageId, File>, DiskError> {
        let dir = &self.disk.data;
        let mut files = BTreeMap::new();
        for name in dir.names()? {
            let Some(stat) = dir.stat(&name)? else { continue };
            if name.starts_with(PART_PREFIX) && is_regular(&stat) {
                self.sweep_part(&name)?;
                continue;
            }
            let Some(id) = ImageId::from_hex(&name) else {
                self.left(dir, &name, "not a file of the store");
                continue;
            };
            let sound = is_regular(&stat) && is_ours(&stat) && stat.st_mode & 0o022 == 0;
            if !sound {
                self.left(dir, &name, "has the name of an image, but not its type, owner or mode");
            }
            files.insert(id, if sound { File::Sound(stat) } else { File::Strange });
        }
        Ok(files)
    }

    /// The store's lock says that no part is live, but somebody may have removed the lock file under a running daemon.
    fn sweep_part(&mut self, name: &str) -> Result<(), DiskError> {
        let dir = &self.disk.data;
        let fd = dir.open_file(name, OFlag::O_RDONLY)?;
        match Flock::lock(fd, FlockArg::LockExclusiveNonblock) {
            Ok(_lock) => self.removed(dir, name, "part of an unfinished download"),
            Err(_) => {
                self.left(dir, name, "part of a download that another process has open");
                Ok(())
            }
        }
    }

    fn meta(&mut self, files: &BTreeMap<ImageId, File>) -> Result<BTreeMap<ImageId, ImageRecord>, DiskError> {
        let dir = &self.disk.meta;
        let mut records = BTreeMap::new();
        for name in self.records(dir)? {
            let id = name.strip_suffix(".json").and_then(ImageId::from_hex);
            let record = dir.read_record(&name)?.and_then(|text| parse::<ImageRecord>(&text));
            match (id, record) {
                (Some(id), Some(_)) if !files.contains_key(&id) => {
                    self.removed(dir, &name, "record of an image that is gone")?;
                }
                (Some(id), Some(record)) => {
                    records.insert(id, record);
                }
                _ => self.left(dir, &name, "not a record of an image"),
            }
        }
        Ok(records)
    }

    fn leases(&mut self) -> Result<BTreeMap<String, BTreeSet<ImageId>>, DiskError> {
        let dir = &self.disk.leases;
        let mut leases = BTreeMap::new();
        for name in self.records(dir)? {
            let holder = name.strip_suffix(".json").filter(|holder| crate::shelf::is_holder(holder));
            let record = dir.read_record(&name)?.and_then(|text| parse::<LeaseRecord>(&text));
            match (holder, record) {
                (Some(holder), Some(record)) => {
                    leases.insert(holder.to_owned(), record.images.into_iter().collect());
                }
                _ => {
                    self.all_leases_known = false;
                    self.left(dir, &name, "not a lease");
                }
            }
        }
        Ok(leases)
    }

    /// Links whose target has the name of an image that exists; whether it is sound is another question.
    fn links(&mut self, files: &BTreeMap<ImageId, File>) -> Result<BTreeMap<ImageRef, ImageId>, DiskError> {
        let dir = &self.disk.links;
        let mut refs = BTreeMap::new();
        for name in dir.names()? {
            let target = dir.read_link(&name)?;
            if name.starts_with(TMP) && target.is_some() {
                self.removed(dir, &name, "unfinished link")?;
                continue;
            }
            // Only a name that was cut needs its record to be known.
            let recorded = match name.contains('~') {
                true => self.disk.refs.read_record(&format!("{name}.json"))?,
                false => None,
            };
            let recorded = recorded.and_then(|text| parse::<RefRecord>(&text));
            let image = image_of(&name, recorded.as_ref().map(|record| record.image.as_str()));
            let id = target.as_deref().and_then(id_of_target);
            match (image, id) {
                (Some(image), Some(id)) if files.contains_key(&id) => {
                    refs.insert(image, id);
                }
                (Some(_), Some(_)) => self.removed(dir, &name, "link to an image that is gone")?,
                _ => self.left(dir, &name, "not a link of the store"),
            }
        }
        Ok(refs)
    }

    fn refs(&mut self, refs: &BTreeMap<ImageRef, ImageId>) -> Result<(), DiskError> {
        let dir = &self.disk.refs;
        for name in self.records(dir)? {
            let record = dir.read_record(&name)?.and_then(|text| parse::<RefRecord>(&text));
            let image = record.and_then(|record| record.image.parse::<ImageRef>().ok());
            match image.filter(|image| super::links::record_name(image) == name) {
                Some(image) if refs.contains_key(&image) => {}
                Some(_) => self.removed(dir, &name, "record of a name that is bound no more")?,
                None => self.left(dir, &name, "not a record of a name"),
            }
        }
        Ok(())
    }

    /// Names in a directory of records, once unfinished ones are swept.
    fn records(&mut self, dir: &Dir) -> Result<Vec<String>, DiskError> {
        let (unfinished, names): (Vec<_>, Vec<_>) = dir.names()?.into_iter().partition(|name| name.starts_with(TMP));
        for name in unfinished {
            if dir.stat(&name)?.is_some_and(|stat| stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits()) {
                self.removed(dir, &name, "unfinished record")?;
            } else {
                self.left(dir, &name, "not a record");
            }
        }
        Ok(names)
    }

    fn remove_orphan(&mut self, id: &ImageId, recorded: bool) -> Result<(), DiskError> {
        if !self.all_leases_known {
            self.left(&self.disk.data, id.hex(), "image without a name, kept as a lease cannot be read");
            return Ok(());
        }
        self.removed(&self.disk.data, id.hex(), "image without a name or a lease")?;
        if recorded { self.disk.meta.remove(&meta_name(id)) } else { Ok(()) }
    }

    fn removed(&mut self, dir: &Dir, name: &str, what: &'static str) -> Result<(), DiskError> {
        dir.remove(name)?;
        self.findings.push(Finding { path: dir.path().join(name), removed: true, what });
        Ok(())
    }

    fn left(&mut self, dir: &Dir, name: &str, what: &'static str) {
        self.findings.push(Finding { path: dir.path().join(name), removed: false, what });
    }
}
