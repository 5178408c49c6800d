//! Reads the directories at start-up: removes what a crash left, loads what is sound, and reports the rest without
//! touching it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::sys::stat::{FileStat, SFlag};
use vmimage::digest::ImageId;
use vmimage::name::ImageRef;

use super::collect::RETIRED;
use super::disk::{Bindings, Dir, Disk, DiskError, TMP, is_regular, is_sound};
use super::index::{Bound, Entry, Index};
use super::links::{id_of_target, image_of, record_name};
use super::part::PREFIX as PART_PREFIX;
use super::record::{ImageRecord, LeaseRecord, RefRecord, parse};
use super::{Key, Known, Origin, PINNED, allocated, meta_name};

/// Something that a start came across.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub path: PathBuf,
    /// Whether it was removed; otherwise it was left alone.
    pub removed: bool,
    pub what: &'static str,
}

pub(super) struct Loaded {
    pub(super) index: Index,
    pub(super) findings: Vec<Finding>,
    /// Whether every lease could be read. If not, an image without a name may still be needed by somebody.
    pub(super) leases_known: bool,
}

pub(super) fn load(disk: &Disk, known: Known) -> Result<Loaded, DiskError> {
    let mut scan = Scan { disk, findings: Vec::new(), leases_known: true };
    let leases = scan.leases()?;
    let mut files = scan.data()?;
    let records = scan.meta(&files)?;
    let refs = scan.names(&files)?;
    let needed = needed(&records, refs.values().map(|bound| &bound.id).chain(leases.values().flatten()));
    scan.retired(&mut files, &needed)?;
    let mut index = Index { known, leases, ..Index::default() };
    for (id, file) in files {
        let stat = match file {
            File::Sound(stat) => stat,
            File::Strange | File::Retired(_) => continue,
        };
        let record = records.get(&id);
        if !needed.contains(&id) {
            scan.remove_orphan(&id, record.is_some())?;
            continue;
        }
        match record {
            None => scan.left(&disk.data, id.hex(), "image without a record; pull it again"),
            Some(record) if i64::try_from(record.size) != Ok(stat.st_size) => {
                scan.left(&disk.data, id.hex(), "image of another size than recorded; pull it again");
            }
            Some(record) => {
                let entry = Entry { record: record.clone(), allocated: allocated(&stat), names: BTreeMap::new() };
                index.images.insert(id, entry);
            }
        }
    }
    for (key, bound) in refs {
        if index.images.contains_key(&bound.id) {
            index.bind(&key, bound);
        }
    }
    for finding in &scan.findings {
        let Finding { path, removed, what } = finding;
        tracing::warn!(path = %path.display(), removed, what, "image store came across something");
    }
    Ok(Loaded { index, findings: scan.findings, leases_known: scan.leases_known })
}

/// These images, and what they stand on.
fn needed<'a>(
    records: &'a BTreeMap<ImageId, ImageRecord>,
    wanted: impl Iterator<Item = &'a ImageId>,
) -> BTreeSet<ImageId> {
    let mut needed = BTreeSet::new();
    let mut ahead: Vec<&ImageId> = wanted.collect();
    while let Some(id) = ahead.pop() {
        if needed.insert(id.clone()) {
            ahead.extend(records.get(id).and_then(|record| record.parent.as_ref()?.id.as_ref()));
        }
    }
    needed
}

/// What has the name of an image.
enum File {
    Sound(FileStat),
    /// On its way out when the process ended.
    Retired(FileStat),
    /// Nothing that we would have made.
    Strange,
}

struct Scan<'a> {
    disk: &'a Disk,
    findings: Vec<Finding>,
    leases_known: bool,
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
            let retired = name.strip_prefix(RETIRED);
            let Some(id) = ImageId::from_hex(retired.unwrap_or(&name)) else {
                self.left(dir, &name, "not a file of the store");
                continue;
            };
            if !is_sound(&stat) {
                self.left(dir, &name, "has the name of an image, but not its type, owner or mode");
            }
            match (is_sound(&stat), retired) {
                // In the order of names these come first, and one that has its own name again counts for more.
                (true, Some(_)) => files.insert(id, File::Retired(stat)),
                (true, None) => files.insert(id, File::Sound(stat)),
                (false, Some(_)) => None,
                (false, None) => files.insert(id, File::Strange),
            };
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
            let holder = name.strip_suffix(".json").filter(|holder| super::is_holder(holder) || *holder == PINNED);
            let record = dir.read_record(&name)?.and_then(|text| parse::<LeaseRecord>(&text));
            match (holder, record) {
                (Some(holder), Some(record)) => {
                    leases.insert(holder.to_owned(), record.images.into_iter().collect());
                }
                _ => {
                    self.leases_known = false;
                    self.left(dir, &name, "not a lease");
                }
            }
        }
        Ok(leases)
    }

    /// Ends what a crash left halfway: what is needed again comes back, the rest goes.
    fn retired(&mut self, files: &mut BTreeMap<ImageId, File>, needed: &BTreeSet<ImageId>) -> Result<(), DiskError> {
        let dir = &self.disk.data;
        for name in dir.names()?.iter().filter(|name| name.starts_with(RETIRED)) {
            let Some(id) = name.strip_prefix(RETIRED).and_then(ImageId::from_hex) else { continue };
            match files.get(&id) {
                Some(File::Retired(stat)) if needed.contains(&id) => {
                    let stat = *stat;
                    dir.rename(name, id.hex())?;
                    files.insert(id, File::Sound(stat));
                }
                Some(File::Retired(_)) if !self.leases_known => {
                    self.left(dir, name, "image without a name, kept as a lease cannot be read");
                }
                Some(File::Retired(_)) => {
                    self.removed(dir, name, "image on its way out")?;
                    self.disk.meta.remove(&meta_name(&id))?;
                }
                Some(File::Sound(_)) => self.removed(dir, name, "image on its way out")?,
                Some(File::Strange) | None => {}
            }
        }
        Ok(())
    }

    /// The names of all handlers, whether or not they are configured.
    fn names(&mut self, files: &BTreeMap<ImageId, File>) -> Result<BTreeMap<Key, Bound>, DiskError> {
        let (handlers, strange) = self.disk.handlers()?;
        for name in strange {
            self.left(self.disk.handlers_dir(), &name, "not a directory of a handler");
        }
        let mut refs = BTreeMap::new();
        for handler in handlers {
            let bindings = self.disk.bindings(&handler)?;
            let mut records = self.refs(&bindings.refs)?;
            let links = self.links(&bindings, &records, files)?;
            for (name, record) in &records {
                if !links.contains_key(&record.image) {
                    self.removed(&bindings.refs, name, "record of a name that is bound no more")?;
                }
            }
            for (image, (link, id)) in links {
                let Ok(parsed) = image.parse::<ImageRef>() else { continue };
                let record = records.remove(&format!("{link}.json")).unwrap_or_default();
                // A record of other bytes than the link leads to says nothing of these.
                let of_these = record.id.as_ref().is_none_or(|of| *of == id);
                let origin = if of_these { record.origin } else { Origin::default() };
                let record = RefRecord { image, origin, ..record };
                refs.insert(Key::new(&handler, &parsed), Bound { id, record: record.into() });
            }
        }
        Ok(refs)
    }

    /// Links whose target has the name of an image that exists; whether it is sound is another question. By the whole
    /// reference.
    fn links(
        &mut self,
        bindings: &Bindings,
        records: &BTreeMap<String, RefRecord>,
        files: &BTreeMap<ImageId, File>,
    ) -> Result<BTreeMap<String, (String, ImageId)>, DiskError> {
        let dir = &bindings.links;
        let mut links = BTreeMap::new();
        for name in dir.names()? {
            let target = dir.read_link(&name)?;
            if name.starts_with(TMP) && target.is_some() {
                self.removed(dir, &name, "unfinished link")?;
                continue;
            }
            let recorded = records.get(&format!("{name}.json"));
            let image = image_of(&name, recorded.map(|record| record.image.as_str()));
            let id = target.as_deref().and_then(|target| id_of_target(bindings.to_data, target));
            match (image, id) {
                (Some(image), Some(id)) if files.contains_key(&id) => {
                    links.insert(image.to_string(), (name, id));
                }
                (Some(_), Some(_)) => self.removed(dir, &name, "link to an image that is gone")?,
                _ => self.left(dir, &name, "not a link of the store"),
            }
        }
        Ok(links)
    }

    /// Records of names, by the names of their files.
    fn refs(&mut self, dir: &Dir) -> Result<BTreeMap<String, RefRecord>, DiskError> {
        let mut records = BTreeMap::new();
        for name in self.records(dir)? {
            let record = dir.read_record(&name)?.and_then(|text| parse::<RefRecord>(&text));
            let image = record.as_ref().and_then(|record| record.image.parse::<ImageRef>().ok());
            match (record, image.filter(|image| record_name(image) == name)) {
                (Some(record), Some(_)) => {
                    records.insert(name, record);
                }
                _ => self.left(dir, &name, "not a record of a name"),
            }
        }
        Ok(records)
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
        if !self.leases_known {
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
