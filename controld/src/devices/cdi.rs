//! Devices by name, as CDI describes them (Container Device Interface, `SPEC.md`): kubelet hands over `vendor/class=name`, and files in
//! `/etc/cdi` and `/run/cdi` say what the container of such a device has.
//!
//! The files are an admin's or a device plugin's. They are read with limits nevertheless, and one that is not understood costs nobody else
//! a device: it is named by the error of a device that is not found.

mod spec;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use common::Chain;
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};

pub(super) use self::spec::Edits;
use self::spec::{NoSpec, Spec};

/// Files in a directory, and devices of a container, that are looked at.
const MAX_FILES: usize = 256;
const MAX_DEVICES: usize = 64;
/// Bytes of a file, and of all.
const MAX_SIZE: u64 = 1 << 20;
const MAX_TOTAL: u64 = 8 << 20;
/// Bytes of a device's name.
const MAX_NAME: usize = 256;

/// Why devices cannot be had by their names.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCdi {
    #[error("the container has {0} CDI devices, and {MAX_DEVICES} are looked up")]
    Many(usize),
    #[error("`{}` is not the name of a CDI device, as `vendor.example/class=name`", _0.escape_debug())]
    Name(String),
    #[error("CDI device `{name}` is in no file of {}{}", Listed(dirs), NotRead(unread))]
    Absent { name: String, dirs: Vec<PathBuf>, unread: Vec<(PathBuf, Unread)> },
    #[error("CDI device `{name}` is in both `{}` and `{}`; remove it from one", files[0].display(), files[1].display())]
    Twice { name: String, files: [PathBuf; 2] },
    #[error("the CDI files in `{}` cannot be listed", dir.display())]
    List {
        dir: PathBuf,
        #[source]
        cause: io::Error,
    },
}

/// Why a file was not understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("failed to read it")]
    Io(#[from] io::Error),
    #[error("it is no regular file")]
    NoFile,
    #[error("it has more than {MAX_SIZE} bytes")]
    Large,
    #[error("all files before it and it have more than {MAX_TOTAL} bytes")]
    Total,
    #[error(transparent)]
    Spec(#[from] NoSpec),
}

struct Listed<'a>(&'a [PathBuf]);
struct NotRead<'a>(&'a [(PathBuf, Unread)]);

/// What these directories say.
struct Files {
    /// Those understood, with the place of their directory: a later one is before an earlier one.
    specs: Vec<(usize, PathBuf, Spec)>,
    unread: Vec<(PathBuf, Unread)>,
}

/// What the container of devices with these names has for them, by files in `dirs`, the last of which is before the others. Blocks.
///
/// # Errors
/// When a device is in no file, or in two of one directory.
pub(super) fn edits(dirs: &[PathBuf], names: &[String]) -> Result<Edits, NoCdi> {
    if names.is_empty() {
        return Ok(Edits::default());
    }
    if names.len() > MAX_DEVICES {
        return Err(NoCdi::Many(names.len()));
    }
    let mut files = Files::read(dirs)?;
    let mut all = Edits::default();
    // A device that is named twice is given once, and what all devices of a file have, too.
    let mut used = BTreeSet::new();
    for name in names.iter().collect::<BTreeSet<_>>() {
        let (nth, device) = match files.find(name)? {
            Some(found) => found,
            None => {
                let unread = std::mem::take(&mut files.unread);
                return Err(NoCdi::Absent { name: name.clone(), dirs: dirs.to_owned(), unread });
            }
        };
        if used.insert(nth)
            && let Some((.., spec)) = files.specs.get(nth)
        {
            all.add(spec.edits.clone());
        }
        all.add(device);
    }
    Ok(all)
}

impl Files {
    fn read(dirs: &[PathBuf]) -> Result<Self, NoCdi> {
        let mut files = Self { specs: Vec::new(), unread: Vec::new() };
        let mut left = MAX_TOTAL;
        for (place, dir) in dirs.iter().enumerate() {
            for path in list(dir).map_err(|cause| NoCdi::List { dir: dir.clone(), cause })? {
                match read(&path, &mut left) {
                    Ok(spec) => files.specs.push((place, path, spec)),
                    Err(why) => files.unread.push((path, why)),
                }
            }
        }
        Ok(files)
    }

    /// The file that has a device, and what it says of it.
    fn find(&self, name: &str) -> Result<Option<(usize, Edits)>, NoCdi> {
        let no_name = || NoCdi::Name(name.chars().take(MAX_NAME).collect());
        let (kind, device) = name.split_once('=').filter(|_| name.len() <= MAX_NAME).ok_or_else(no_name)?;
        if !kind.split_once('/').is_some_and(|(vendor, class)| !vendor.is_empty() && !class.is_empty())
            || device.is_empty()
        {
            return Err(no_name());
        }
        let mut found: BTreeMap<usize, (usize, &Path, &Edits)> = BTreeMap::new();
        for (nth, (place, path, spec)) in self.specs.iter().enumerate() {
            let Some(edits) = spec.devices.get(device).filter(|_| spec.kind == kind) else { continue };
            if let Some((_, other, _)) = found.insert(*place, (nth, path, edits)) {
                return Err(NoCdi::Twice { name: name.to_owned(), files: [other.to_owned(), path.clone()] });
            }
        }
        Ok(found.pop_last().map(|(_, (nth, _, edits))| (nth, edits.clone())))
    }
}

/// The files of a directory that may be of CDI, in order of their names; none if there is no directory.
fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(cause),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if !path.extension().is_some_and(|extension| extension == "json" || extension == "yaml") {
            continue;
        }
        if paths.len() == MAX_FILES {
            return Err(io::Error::other(format!("there are more than {MAX_FILES}")));
        }
        paths.push(path);
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path, left: &mut u64) -> Result<Spec, Unread> {
    // A link may lead to a device, and a pipe may have nobody at its other end.
    let file = File::options().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(Unread::NoFile);
    }
    let mut text = String::new();
    file.take(MAX_SIZE + 1).read_to_string(&mut text)?;
    let size = u64::try_from(text.len()).unwrap_or(u64::MAX);
    if size > MAX_SIZE {
        return Err(Unread::Large);
    }
    *left = left.checked_sub(size).ok_or(Unread::Total)?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    Ok(Spec::parse(&text, is_json)?)
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, dir) in self.0.iter().enumerate() {
            write!(f, "{}`{}`", if place == 0 { "" } else { ", " }, dir.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for NotRead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(path, why)| write!(f, "; `{}` was not understood: {}", path.display(), Chain(why)))
    }
}

#[cfg(test)]
mod tests;
