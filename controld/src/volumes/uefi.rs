//! What the UEFI of a pod's VMs remembers: `uefi.fd` in the pod's folder, and `uefi.json` beside it, which says of what it is.
//!
//! ```json
//! {"version":1,"firmware":{"secure_boot":true,"loaders":["/usr/share/OVMF/OVMF_CODE_4M.ms.fd"]},"root":{"inode":12,"made":1700000000000000000}}
//! ```
//!
//! libvirt makes the file from the firmware's own when a VM starts that finds none. The entries of a guest that has installed itself name its
//! root disk, and keys that it has taken in are for what is on that, so the variables last as long as the disk.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use common::off_reactor;
use common::small_file::{self, SmallFileError};
use serde::{Deserialize, Serialize};

use super::files::{io_error, remove_file};
use super::{Folder, VolumeError, Volumes};

/// Version of the note.
const VERSION: u32 = 1;
const NOTE: &str = "uefi.json";
const VARIABLES: &str = "uefi.fd";

/// A firmware, as far as its variables depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UefiFirmware {
    /// Whether it starts what is signed, and begins with the keys for that.
    pub secure_boot: bool,
    /// Files among which libvirt chooses on this node.
    pub loaders: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    firmware: UefiFirmware,
    /// The overlay; none if a volume is the root disk.
    root: Option<RootId>,
}

/// A file that was not made anew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RootId {
    inode: u64,
    /// Nanoseconds since 1970, where the file system knows when a file was made.
    made: Option<u64>,
}

impl Volumes {
    /// Makes sure that a pod's next VM finds no variables of another firmware, nor of another root disk, which is in its place by now. A note
    /// of a later release stays as it is, and so do the variables.
    ///
    /// # Errors
    /// When they stay, or the note cannot be written.
    pub async fn ready_uefi(&self, folder: &Folder, firmware: UefiFirmware) -> Result<(), VolumeError> {
        let folder = folder.clone();
        off_reactor(move || {
            let note = folder.path.join(NOTE);
            let wanted = Note { version: VERSION, firmware, root: RootId::of(&folder.overlay())? };
            let is_same = match small_file::read::<Note>(&note, VERSION) {
                Ok(there) => there.as_ref() == Some(&wanted),
                Err(error @ SmallFileError::Io { .. }) => return Err(error.into()),
                Err(SmallFileError::Damaged { .. }) => false,
                Err(SmallFileError::Newer { .. }) => return Ok(()),
            };
            if is_same {
                return Ok(());
            }
            remove_file(&uefi_variables(&folder.overlay()))?;
            Ok(small_file::write(&note, &wanted)?)
        })
        .await
    }
}

impl RootId {
    fn of(overlay: &Path) -> Result<Option<Self>, VolumeError> {
        let found = match fs::symlink_metadata(overlay) {
            Ok(found) => found,
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(io_error("look at", overlay)(cause)),
        };
        let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok());
        Ok(Some(Self { inode: found.ino(), made }))
    }
}

/// Where a pod's UEFI variables are, once a VM of it was started that has any: beside its root overlay, or where that would be.
#[must_use]
pub fn uefi_variables(overlay: &Path) -> PathBuf {
    overlay.with_file_name(VARIABLES)
}

/// Forgets them, for a volume that becomes another root disk. Blocks.
///
/// # Errors
/// When they stay.
pub fn forget_uefi_variables(overlay: &Path) -> Result<(), VolumeError> {
    remove_file(&uefi_variables(overlay))
}
