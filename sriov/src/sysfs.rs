//! Where sysfs and `/dev` are, and how single files of sysfs are read and written.
//!
//! Called by this crate's modules that know what the files mean ([`crate::device`], [`crate::group`], [`crate::bind`],
//! [`crate::vfio`], [`crate::reset`]). The roots come from the caller, so that a fixture tree can stand for a node.
//!
//! Kernel ABI: one value for each file, at most a page, ended by a newline; one `write` is one store.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use crate::address::PciAddr;

/// What a file says instead of "none".
const NULL: &str = "(null)";
/// The kernel's word when the device went while its file was open (`ENODEV`).
const NO_DEVICE: i32 = 19;

/// A node's PCI devices, as its sysfs shows them.
#[derive(Debug, Clone)]
pub struct Sysfs {
    root: PathBuf,
    dev: PathBuf,
    store: Arc<dyn Store>,
}

/// Why a part of sysfs cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The kernel does not let us.
    #[error("failed to read `{}`", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// It holds something else than this release knows.
    #[error("`{}` holds `{}`, which is not {wanted}", path.display(), text.escape_debug())]
    Value {
        /// The file.
        path: PathBuf,
        /// What it holds.
        text: String,
        /// What it should hold.
        wanted: &'static str,
    },
}

/// How a value gets into a file. The kernel acts while it is written, which a fixture has to play.
pub(crate) trait Store: fmt::Debug + Send + Sync {
    /// Writes `text` at once.
    fn store(&self, path: &Path, text: &str) -> io::Result<()>;
}

/// Writes into the files of a real sysfs.
#[derive(Debug)]
struct Files;

// === impl Sysfs ===

impl Sysfs {
    /// The node whose sysfs is mounted at `root` (`/sys`) and whose devices are in `dev` (`/dev`).
    ///
    /// A sysfs shows the netdevs of that network namespace in which it was mounted, whoever reads it. The caller
    /// chooses whose netdevs `net` folders list by the mount that it names here; all else belongs to no namespace.
    #[must_use]
    pub fn new(root: &Path, dev: &Path) -> Self {
        Self { root: root.to_owned(), dev: dev.to_owned(), store: Arc::new(Files) }
    }

    /// The same with another way to write.
    #[cfg(test)]
    pub(crate) fn with_store(root: &Path, dev: &Path, store: Arc<dyn Store>) -> Self {
        Self { root: root.to_owned(), dev: dev.to_owned(), store }
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of the PCI bus.
    pub(crate) fn bus(&self) -> PathBuf {
        self.root.join("bus/pci")
    }

    /// Folder of a device.
    pub(crate) fn device(&self, addr: PciAddr) -> PathBuf {
        self.bus().join("devices").join(addr.to_string())
    }

    /// A file below `/dev`.
    pub(crate) fn node(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dev.join(name)
    }

    /// Writes a value as a whole into a file that is there.
    pub(crate) fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        self.store.store(path, text)
    }
}

impl Store for Files {
    fn store(&self, path: &Path, text: &str) -> io::Result<()> {
        // No `create` and no `truncate`: a file that is not there is not made. One `write`, as the kernel takes each
        // for a store of its own.
        let mut file = OpenOptions::new().write(true).open(path)?;
        match file.write(text.as_bytes())? {
            written if written == text.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

/// What a file says, without the newline; `None` if there is no such file.
pub(crate) fn text(path: &Path) -> Result<Option<String>, ReadError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
        Err(cause) if is_absence(&cause) => Ok(None),
        Err(cause) => Err(ReadError::Io { path: path.to_owned(), cause }),
    }
}

/// The same of a file that can say that it has no value.
pub(crate) fn text_or_null(path: &Path) -> Result<Option<String>, ReadError> {
    Ok(text(path)?.filter(|text| !text.is_empty() && text != NULL))
}

/// The number in a file; `None` if there is no such file.
pub(crate) fn number<T: FromStr>(path: &Path, wanted: &'static str) -> Result<Option<T>, ReadError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let number = text.parse().map_err(|_| ReadError::Value { path: path.to_owned(), text, wanted })?;
    Ok(Some(number))
}

/// The hexadecimal number in a file, as `0x8086`; `None` if there is no such file.
pub(crate) fn hex(path: &Path) -> Result<Option<u32>, ReadError> {
    let Some(text) = text(path)? else { return Ok(None) };
    let number = text.strip_prefix("0x").and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match number {
        Some(number) => Ok(Some(number)),
        None => Err(ReadError::Value { path: path.to_owned(), text, wanted: "a number such as 0x8086" }),
    }
}

/// The last part of where a symbolic link leads; `None` if there is no link.
pub(crate) fn link_name(path: &Path) -> Result<Option<String>, ReadError> {
    match fs::read_link(path) {
        Ok(target) => Ok(target.file_name().map(|name| name.to_string_lossy().into_owned())),
        Err(cause) if is_absence(&cause) => Ok(None),
        Err(cause) => Err(ReadError::Io { path: path.to_owned(), cause }),
    }
}

/// Names in a folder, sorted; `None` if there is no such folder.
pub(crate) fn names(path: &Path) -> Result<Option<Vec<String>>, ReadError> {
    let failed = |cause| ReadError::Io { path: path.to_owned(), cause };
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(cause) if is_absence(&cause) => return Ok(None),
        Err(cause) => return Err(failed(cause)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(Some(names))
}

/// Whether it is that the file or its device is not there.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(NO_DEVICE)
}
