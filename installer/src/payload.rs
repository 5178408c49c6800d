//! What the image has for the host: a directory that is opened before the host's root is this process's, and read after that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

/// Why it cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PayloadError {
    #[error("failed to read `{}`", path.display())]
    Read {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` is neither a file nor a link below `usr`", .0.display())]
    Kind(PathBuf),
}

/// One thing that is to be on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    /// With its permissions.
    File { mode: u32 },
    /// And where it leads.
    Link { target: PathBuf },
}

/// The open directory, and what is in it by its path on the host, without the first `/`.
#[derive(Debug)]
pub(crate) struct Payload {
    dir: File,
    pub(crate) entries: BTreeMap<PathBuf, Entry>,
}

impl Payload {
    pub(crate) fn open(at: &Path) -> Result<Self, PayloadError> {
        let dir = File::open(at).map_err(|cause| PayloadError::Read { path: at.to_owned(), cause })?;
        let mut entries = BTreeMap::new();
        collect(at, Path::new(""), &mut entries)?;
        Ok(Self { dir, entries })
    }

    /// The bytes of a file.
    pub(crate) fn read(&self, name: &Path) -> Result<File, PayloadError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let opened = openat(&self.dir, name, flags, Mode::empty());
        opened.map(File::from).map_err(|cause| PayloadError::Read { path: name.to_owned(), cause: cause.into() })
    }
}

/// Whether the name is a path below `usr`, and nowhere else.
pub(crate) fn is_ours(name: &Path) -> bool {
    let mut parts = name.components();
    parts.next() == Some(Component::Normal("usr".as_ref()))
        && parts.clone().next().is_some()
        && parts.all(|part| matches!(part, Component::Normal(_)))
}

fn collect(at: &Path, name: &Path, entries: &mut BTreeMap<PathBuf, Entry>) -> Result<(), PayloadError> {
    let failed = |cause| PayloadError::Read { path: at.to_owned(), cause };
    for entry in fs::read_dir(at).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, name) = (entry.path(), name.join(entry.file_name()));
        let about = entry.metadata().map_err(failed)?;
        let kind = if about.is_dir() {
            collect(&path, &name, entries)?;
            continue;
        } else if about.is_symlink() {
            Entry::Link { target: fs::read_link(&path).map_err(failed)? }
        } else {
            Entry::File { mode: about.permissions().mode() & 0o777 }
        };
        if !is_ours(&name) || !(about.is_file() || about.is_symlink()) {
            return Err(PayloadError::Kind(name));
        }
        entries.insert(name, kind);
    }
    Ok(())
}
