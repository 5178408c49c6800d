//! The disks of pods: a folder for each pod under `volumes/`, with the root overlay and a note of whose it is.
//!
//! The disks belong to the pod, not to a container or a sandbox: a container that kubelet restarts finds its disk again
//! while the image is the same. They go with the last sandbox of the pod. A folder is named by the pod's UID. One whose
//! owner is not known is kept ([`Volumes::keep`]), and no pod is given it: one of that UID gets another folder beside it,
//! with a number after the name.

mod error;
mod files;
mod machine;
mod overlay;
mod owner;
mod root;
mod uefi;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::Chain;
use common::off_reactor;
use common::small_file::{self, SmallFileError};

pub use self::error::VolumeError;
pub use self::files::{DiskUsage, disk_usage, make_dir};
use self::files::{io_error, remove_dir, remove_file};
pub use self::owner::{FORMAT, Kept, Owner};
pub use self::root::{Base, Root};
pub use self::uefi::{UefiFirmware, forget_uefi_variables, uefi_variables};

/// More folders of one pod than anybody has left behind.
const MAX_FOLDERS: usize = 100;
const OWNER: &str = "owner.json";
const KEPT: &str = "kept.json";
/// What the name of a folder in the making begins with; no pod's begins so.
const HALF: &str = ".new-";

/// The pods' disks. Clones share them.
#[derive(Debug, Clone)]
pub struct Volumes {
    dir: PathBuf,
    /// Folders that nobody is given, with the reason.
    kept: Arc<Mutex<BTreeMap<String, Kept>>>,
}

/// The folder of a pod's disks. Its name is also the name of the pod's leases on images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    name: String,
    path: PathBuf,
}

/// A folder that was found, and what is written in it.
#[derive(Debug)]
pub struct Found {
    pub folder: Folder,
    /// Whose it is, if that is written there; why it cannot be read.
    pub owner: Result<Option<Owner>, String>,
    /// It was found to be nobody's, earlier.
    pub kept: Option<Kept>,
}

impl Volumes {
    /// Disks under `dir`, which is made if absent. Half-made folders go.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: PathBuf) -> Result<Self, VolumeError> {
        // QEMU's uid passes through but cannot look around.
        make_dir(&dir, 0o711)?;
        for entry in std::fs::read_dir(&dir).map_err(io_error("list", &dir))?.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(HALF) {
                remove_dir(&entry.path(), |_| true)?;
            }
        }
        Ok(Self { dir, kept: Arc::default() })
    }

    /// Disks under `dir`, to be looked at only.
    #[must_use]
    pub fn peek(dir: PathBuf) -> Self {
        Self { dir, kept: Arc::default() }
    }

    /// Makes sure that no newer release has written a note: a pod of a folder whose note says nothing here gets other disks.
    ///
    /// # Errors
    /// When one has, or the directory cannot be read.
    pub fn refuse_newer(&self) -> Result<(), VolumeError> {
        let newer = |error: &SmallFileError| matches!(error, SmallFileError::Newer { .. });
        self.unread_notes()?.into_iter().find(newer).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Why notes cannot be read, for each of them that cannot.
    ///
    /// # Errors
    /// When the directory cannot be read. One that is not there has none.
    pub fn unread_notes(&self) -> Result<Vec<SmallFileError>, VolumeError> {
        if !self.dir.exists() {
            return Ok(Vec::new());
        }
        let of_folder = |folder: Folder| {
            let owner = small_file::read::<Owner>(&folder.path.join(OWNER), owner::VERSION).map(drop);
            let kept = small_file::read::<Kept>(&folder.path.join(KEPT), owner::VERSION).map(drop);
            [owner, kept].into_iter().filter_map(Result::err)
        };
        Ok(self.folders()?.into_iter().flat_map(of_folder).collect())
    }

    /// The folder of a pod: the one that it has, or a new one. A note in it says whose it is, and when it was claimed last.
    ///
    /// # Errors
    /// When it cannot be made; nothing is left of it then.
    pub fn claim(&self, owner: &Owner) -> Result<Folder, VolumeError> {
        if let Some(folder) = self.of_pod(&owner.pod_uid)?.into_iter().next() {
            match small_file::read::<Owner>(&folder.path.join(OWNER), owner::VERSION) {
                Ok(_) => self.stamp(&folder, owner)?,
                Err(error @ SmallFileError::Io { .. }) => return Err(error.into()),
                // A newer release's, or damaged: it stays as it is.
                Err(SmallFileError::Newer { .. } | SmallFileError::Damaged { .. }) => {}
            }
            return Ok(folder);
        }
        let free = |folder: &Folder| !folder.path.exists() && !self.kept().contains_key(&folder.name);
        if let Some(folder) = self.candidates(&owner.pod_uid)?.find(free) {
            // No folder without a note, whenever we are killed.
            let half = self.folder(format!("{HALF}{}", folder.name));
            remove_dir(&half.path, |_| true)?;
            return match self.make(&half, &folder, owner) {
                Ok(()) => Ok(folder),
                Err(error) => {
                    // The error that matters is the first one; the next claim and the next start remove it, too.
                    let _ = remove_dir(&half.path, |_| true);
                    Err(error)
                }
            };
        }
        Err(VolumeError::Folders { pod_uid: owner.pod_uid.clone() })
    }

    /// Makes a folder by way of a half one.
    fn make(&self, half: &Folder, folder: &Folder, owner: &Owner) -> Result<(), VolumeError> {
        make_dir(&half.path, 0o711)?;
        self.stamp(half, owner)?;
        std::fs::rename(&half.path, &folder.path).map_err(io_error("name", &folder.path))
    }

    /// Writes down whose a folder is.
    ///
    /// # Errors
    /// When that cannot be written.
    pub fn stamp(&self, folder: &Folder, owner: &Owner) -> Result<(), VolumeError> {
        Ok(small_file::write(&folder.path.join(OWNER), owner)?)
    }

    /// The folders of a pod that are not kept: one, or none; more only if what was kept has been given back.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn of_pod(&self, pod_uid: &str) -> Result<Vec<Folder>, VolumeError> {
        let mut folders = Vec::new();
        for folder in self.candidates(pod_uid)?.filter(|folder| folder.path.exists()) {
            let is_ours = match small_file::read::<Owner>(&folder.path.join(OWNER), owner::VERSION) {
                Ok(Some(owner)) => owner.pod_uid == pod_uid,
                // Of the first release, or of a later one. It is its pod's, or it would be kept.
                Ok(None) | Err(_) => folder.name == pod_uid,
            };
            if is_ours && !self.kept().contains_key(&folder.name) {
                folders.push(folder);
            }
        }
        Ok(folders)
    }

    /// All folders, with what is written in them. What has no name of ours is nobody's business.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn look(&self) -> Result<Vec<Found>, VolumeError> {
        Ok(self.folders()?.into_iter().map(|folder| self.inspect(folder)).collect())
    }

    /// All folders, by name.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn folders(&self) -> Result<Vec<Folder>, VolumeError> {
        let entries = std::fs::read_dir(&self.dir).map_err(io_error("list", &self.dir))?;
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
        let folders = names.filter(|name| plain(name).is_ok()).map(|name| self.folder(name));
        let mut folders: Vec<_> = folders.filter(|folder| folder.path.is_dir()).collect();
        folders.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(folders)
    }

    /// What is written in a folder.
    #[must_use]
    pub fn inspect(&self, folder: Folder) -> Found {
        let owner = small_file::read::<Owner>(&folder.path.join(OWNER), owner::VERSION);
        let owner = owner.map_err(|error| Chain(&error).to_string());
        let kept = match small_file::read::<Kept>(&folder.path.join(KEPT), owner::VERSION) {
            Ok(kept) => kept,
            // Marked all the same.
            Err(error) => Some(Kept::new(Chain(&error).to_string())),
        };
        Found { folder, owner, kept }
    }

    /// Marks a folder as nobody's, on the disk and here: no pod is given it, and no sweep removes it.
    ///
    /// # Errors
    /// When it is marked here only.
    pub fn keep(&self, folder: &Folder, kept: Kept) -> Result<(), VolumeError> {
        self.kept().insert(folder.name.clone(), kept.clone());
        let path = folder.path.join(KEPT);
        if path.exists() { Ok(()) } else { Ok(small_file::write(&path, &kept)?) }
    }

    /// Takes the mark of [`Volumes::keep`] away: its owner is on record again.
    ///
    /// # Errors
    /// When it is taken away here only.
    pub fn give_back(&self, folder: &Folder) -> Result<(), VolumeError> {
        self.kept().remove(&folder.name);
        remove_file(&folder.path.join(KEPT))
    }

    /// Folders that are kept, with the reason.
    #[must_use]
    pub fn kept_folders(&self) -> Vec<(Folder, Kept)> {
        self.kept().iter().map(|(name, kept)| (self.folder(name.clone()), kept.clone())).collect()
    }

    /// Removes the disks in a folder, and leaves the note of whose they were. Fine if there are none.
    ///
    /// # Errors
    /// When something of them stays.
    pub async fn empty(&self, folder: &Folder) -> Result<(), VolumeError> {
        let path = folder.path.clone();
        // Freeing gigabytes takes a file system its time.
        off_reactor(move || remove_dir(&path, |name| name != OWNER && name != KEPT)).await
    }

    /// Removes a folder that was emptied. Fine if there is none.
    ///
    /// # Errors
    /// When it stays.
    pub async fn remove(&self, folder: &Folder) -> Result<(), VolumeError> {
        let path = folder.path.clone();
        off_reactor(move || remove_dir(&path, |_| true)).await?;
        self.kept().remove(&folder.name);
        Ok(())
    }

    /// Where the folders are.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn candidates(&self, pod_uid: &str) -> Result<impl Iterator<Item = Folder>, VolumeError> {
        plain(pod_uid)?;
        let name = move |n: usize| if n == 0 { pod_uid.to_owned() } else { format!("{pod_uid}.{n}") };
        Ok((0..MAX_FOLDERS).map(move |n| self.folder(name(n))))
    }

    fn folder(&self, name: String) -> Folder {
        Folder { path: self.dir.join(&name), name }
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Folder ===

impl Folder {
    /// Its name, which no other folder has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a file is in it.
    #[must_use]
    pub fn has(&self, file: &Path) -> bool {
        file.starts_with(&self.path)
    }

    /// What it takes of the disk, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        disk_usage(&self.path).bytes
    }
}

/// Whether a text can name a folder.
fn plain(text: &str) -> Result<(), VolumeError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_plain || text.len() > 128 || !text.chars().all(plain) {
        return Err(VolumeError::Uid(text.chars().filter(|c| !c.is_control()).take(64).collect()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
