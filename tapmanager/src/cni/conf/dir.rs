//! The directory of network configurations, as a runtime reads it. Called by [`super::watch`]; a single file or network of
//! one is read for the toolkit.
//!
//! The rules are libcni's: *.conf, *.conflist and *.json in lexical order, the first good one is the node's default
//! network, and of two with one name the first is meant. A `.conflist` is completed by the `.conf` files of the directory
//! with its network's name beside it (`loadOnlyInlinedPlugins`, CNI specification 1.1.0, section 1). A file that is no
//! network is reported, and keeps no other from being used.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::Reason;
use serde_json::Value;

use super::{MAX_FILE, NetworkList, flag, name_of};

/// Most files that are read: a directory with more is not one of network configurations.
const MAX_FILES: usize = 256;

/// The networks of a node.
#[derive(Debug, Default)]
pub(crate) struct Networks {
    /// In the order of their files; the first is the default network.
    pub(crate) lists: Vec<NetworkList>,
    /// Files that are none, in order.
    pub(crate) broken: Vec<Arc<ConfError>>,
}

/// Why there is no network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfError {
    /// The directory cannot be listed.
    #[error("failed to list the CNI configuration directory `{}`", dir.display())]
    List {
        /// The directory.
        dir: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// Files without end.
    #[error("the CNI configuration directory `{}` has more than {MAX_FILES} configurations", dir.display())]
    TooMany {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no file.
    #[error("no network is configured: `{}` has no *.conflist, *.conf or *.json; install a CNI network", dir.display())]
    None {
        /// The directory.
        dir: PathBuf,
    },
    /// There is no network of this name.
    #[error("`{}` has no network `{name}`, but {}", dir.display(), either(known, broken))]
    Unknown {
        /// The directory.
        dir: PathBuf,
        /// The name that was asked for.
        name: String,
        /// Names of those that there are.
        known: Vec<String>,
        /// Files that are broken, one of which may be meant.
        broken: Vec<String>,
    },
    /// The file cannot be read.
    #[error("failed to read the network configuration `{}`", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// What the file holds is no network.
    #[error("network configuration `{}` is refused; correct it, or remove it if another one is meant", file.display())]
    Refused {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        #[source]
        cause: Reason,
    },
    /// One that was found earlier.
    #[error(transparent)]
    Found(Arc<ConfError>),
}

impl Networks {
    /// Reads all of `dir`, which need not exist.
    pub(in crate::cni) fn read(dir: &Path) -> Result<Self, ConfError> {
        let mut networks = Self::default();
        for file in files(dir, &["conflist", "conf", "json"])? {
            match read(&file) {
                Ok(list) => networks.lists.push(list),
                Err(error) => networks.broken.push(Arc::new(error)),
            }
        }
        Ok(networks)
    }

    /// The node's default network.
    pub(in crate::cni) fn default_network(&self, dir: &Path) -> Result<NetworkList, ConfError> {
        match (self.lists.first(), self.broken.first()) {
            (Some(list), _) => Ok(list.clone()),
            (None, Some(broken)) => Err(ConfError::Found(Arc::clone(broken))),
            (None, None) => Err(ConfError::None { dir: dir.to_owned() }),
        }
    }

    /// The network of this name.
    pub(in crate::cni) fn named(&self, name: &str, dir: &Path) -> Result<NetworkList, ConfError> {
        let found = self.lists.iter().find(|list| list.name() == name);
        found.cloned().ok_or_else(|| ConfError::Unknown {
            dir: dir.to_owned(),
            name: name.to_owned(),
            known: self.lists.iter().map(|list| list.name().to_owned()).collect(),
            broken: self.broken.iter().filter_map(|error| error.file_name()).collect(),
        })
    }
}

impl ConfError {
    fn file_name(&self) -> Option<String> {
        match self {
            Self::Read { file, .. } | Self::Refused { file, .. } => {
                file.file_name().map(|name| name.to_string_lossy().into_owned())
            }
            _ => None,
        }
    }
}

fn either(known: &[String], broken: &[String]) -> String {
    let named = |names: &[String]| format!("`{}`", names.join("`, `"));
    match (known, broken) {
        ([], []) => "none at all; install it".to_owned(),
        (known, []) => format!("{}; install it, or name one of these", named(known)),
        ([], broken) => format!("only broken files: {}", named(broken)),
        (known, broken) => format!("{}, and the broken files {}", named(known), named(broken)),
    }
}

/// Files of `dir` with one of the extensions in lexical order; none if there is no such directory.
fn files(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, ConfError> {
    let fail = |cause| ConfError::List { dir: dir.to_owned(), cause };
    let listing = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(fail)?,
    };
    let mut files = Vec::new();
    for entry in listing {
        let path = entry.map_err(fail)?.path();
        let extension = path.extension().and_then(OsStr::to_str);
        if extension.is_some_and(|extension| extensions.contains(&extension)) && !path.is_dir() {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            return Err(ConfError::TooMany { dir: dir.to_owned() });
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// Reads the network of this name among the files of `dir`.
pub(crate) fn read_named(name: &str, dir: &Path) -> Result<NetworkList, ConfError> {
    Networks::read(dir)?.named(name, dir)
}

/// Reads one file as what its extension says.
pub(crate) fn read(file: &Path) -> Result<NetworkList, ConfError> {
    let mut value = read_json(file)?;
    let list = if file.extension() == Some(OsStr::new("conflist")) {
        complete(&mut value, file)?;
        NetworkList::try_from(value)
    } else {
        NetworkList::of_single(value)
    };
    list.map_err(|cause| ConfError::Refused { file: file.to_owned(), cause })
}

/// Appends the plugins that stand in files of their own.
fn complete(list: &mut Value, file: &Path) -> Result<(), ConfError> {
    let refuse = |cause| ConfError::Refused { file: file.to_owned(), cause };
    let dir = match (name_of(list), file.parent()) {
        (Some(name), Some(dir)) if !flag(list, "loadOnlyInlinedPlugins").map_err(refuse)? => dir.join(name),
        _ => return Ok(()),
    };
    let more = files(&dir, &["conf"])?.iter().map(|file| read_json(file)).collect::<Result<Vec<_>, _>>()?;
    let Some(object) = list.as_object_mut().filter(|_| !more.is_empty()) else { return Ok(()) };
    match object.entry("plugins").or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(plugins) => plugins.extend(more),
        null @ Value::Null => *null = Value::Array(more),
        _ => {} // refused with the rest of the list
    }
    Ok(())
}

fn read_json(file: &Path) -> Result<Value, ConfError> {
    let refuse = |cause| ConfError::Refused { file: file.to_owned(), cause };
    let bytes = read_bounded(file, MAX_FILE)
        .map_err(|cause| ConfError::Read { file: file.to_owned(), cause })?
        .ok_or_else(|| refuse(Reason::new(format!("it is not a regular file of at most {MAX_FILE} bytes"))))?;
    serde_json::from_slice(&bytes).map_err(|error| refuse(Reason::new("it is not JSON").with(error)))
}

/// `None` for what is no regular file (a FIFO would block) or too long.
pub(in crate::cni) fn read_bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    Ok((u64::try_from(read).is_ok_and(|read| read <= limit)).then_some(bytes))
}

#[cfg(test)]
mod tests;
