//! Takes the disk, a file in `/disk` of an image, out of a layer while the layer streams by.
//!
//! An image for a VM has exactly one regular file in `/disk`, in any one of its layers. [`Scan`] reads what a layer
//! does to that directory; [`DiskLayer`] is given what the layers above and below do, and finds the one file in the
//! layer that is downloaded. Links, devices and nested directories in `/disk` are refused, as tools disagree on which
//! file they mean.

use std::collections::BTreeSet;
use std::io::{self, Read};

use common::Reason;
use vmimage::error::printable;
use vmimage::tar::{Data, Entry, Kind, Tar};

use crate::sources::provider::Unpack;

#[cfg(test)]
mod tests;

pub use vmimage::tar::TarError;

const DIR: &str = "disk";
/// Begins the name of a file that removes another from the layers below (OCI image specification, layer.md).
const WHITEOUT: &str = ".wh.";
/// Removes all from the layers below.
const OPAQUE: &str = ".wh..wh..opq";

/// Longest name of a file in `/disk`, in bytes, as on the file systems that layers are unpacked to.
const MAX_NAME: usize = 255;
/// Most files in `/disk` of a layer, with those that it removes: there should be one.
const MAX_FILES: usize = 1000;

pub(super) fn no_disk() -> Reason {
    Reason::new("no file in `/disk`; an image for a VM has its disk there")
}

/// `names` are some of them.
pub(super) fn several(names: &[String]) -> Reason {
    Reason::new(format!("more than one file in `/disk` ({})", names.join(", ")))
}

/// Not the file that was found when the layers were looked through.
fn changed(name: &str) -> Reason {
    Reason::new(format!("the layer has changed: no `/disk/{}` in it", printable(name)))
}

/// The same as the error of a reader.
fn refused(cause: Reason) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

/// What a layer does to `/disk`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scan {
    /// Regular files.
    pub(super) files: BTreeSet<String>,
    /// Files that are removed from the layers below.
    pub(super) removed: BTreeSet<String>,
    /// Whether all are.
    pub(super) opaque: bool,
}

impl Scan {
    /// Reads a whole layer.
    pub(super) fn of(archive: impl Read) -> io::Result<Self> {
        let mut tar = Tar::new(archive);
        let mut scan = Self::default();
        while let Some(entry) = tar.next_entry()? {
            scan.note(&entry)?;
        }
        Ok(scan)
    }

    /// Puts another layer on top.
    pub(super) fn cover(&mut self, upper: &Self) {
        self.files = upper.leaves(&self.files);
        self.files.extend(upper.files.iter().cloned());
        self.removed.extend(upper.removed.iter().cloned());
        self.opaque |= upper.opaque;
    }

    /// What is left of the files below.
    fn leaves(&self, below: &BTreeSet<String>) -> BTreeSet<String> {
        if self.opaque { BTreeSet::new() } else { below.difference(&self.removed).cloned().collect() }
    }

    /// Notes an entry. Gives its name if it is a file in `/disk`.
    fn note(&mut self, entry: &Entry) -> io::Result<Option<String>> {
        let text = String::from_utf8_lossy(&entry.path);
        let parts: Vec<_> = text.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        if parts.contains(&"..") {
            return Err(refused(Reason::new(format!("the layer has a path with `..`: `{}`", printable(&text)))));
        }
        let of_kind = |kind| {
            let path = printable(&text);
            refused(Reason::new(format!("`{path}` is a {kind}, but only one regular file may be in `/disk`")))
        };
        match *parts {
            [OPAQUE] => self.opaque = true,
            [name] if name.strip_prefix(WHITEOUT) == Some(DIR) => self.opaque = true,
            [DIR] if entry.kind != Kind::Directory => return Err(of_kind(kind_name(entry.kind))),
            [DIR, name] => {
                if name.len() > MAX_NAME {
                    let name = printable(name);
                    return Err(refused(Reason::new(format!("a name of over {MAX_NAME} bytes in `/disk`: `{name}`"))));
                }
                if self.files.len() + self.removed.len() >= MAX_FILES {
                    return Err(refused(Reason::new(format!("over {MAX_FILES} files in `/disk` of one layer"))));
                }
                if entry.kind != Kind::Regular {
                    return Err(of_kind(kind_name(entry.kind)));
                }
                if name == OPAQUE {
                    self.opaque = true;
                } else if let Some(removed) = name.strip_prefix(WHITEOUT) {
                    self.removed.insert(removed.to_owned());
                } else if !self.files.insert(name.to_owned()) {
                    // Twice the same: unpacked, the last one wins; here, the first one is downloaded already.
                    return Err(refused(several(&[printable(name), printable(name)])));
                } else {
                    return Ok(Some(name.to_owned()));
                }
            }
            [DIR, _, ..] => return Err(of_kind("file in a directory of its own")),
            _ => {}
        }
        Ok(None)
    }
}

/// The layer with the disk, among others that were looked through.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct DiskLayer {
    /// Files of the layers below, which this layer or those above must remove.
    pub(super) below: BTreeSet<String>,
    /// What the layers above do.
    pub(super) above: Scan,
    /// The name of the file, if the author named it. Others do not count then.
    pub(super) named: Option<String>,
}

impl DiskLayer {
    /// Whether a file of this layer is seen from above, and meant.
    fn shows(&self, name: &str) -> bool {
        let seen = !self.above.opaque && !self.above.removed.contains(name) && !self.above.files.contains(name);
        seen && self.named.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Whether the file is the only one, once all of the layer is known.
    fn check(&self, this: &Scan, taken: &str) -> Result<(), Reason> {
        let mut all = this.leaves(&self.below);
        all.extend(this.files.iter().cloned());
        let mut all = self.above.leaves(&all);
        all.extend(self.above.files.iter().cloned());
        if self.named.is_none() && all.len() > 1 {
            return Err(several(&all.iter().take(3).map(|name| printable(name)).collect::<Vec<_>>()));
        }
        if all.contains(taken) { Ok(()) } else { Err(changed(taken)) }
    }
}

impl Unpack for DiskLayer {
    fn unpack<'a>(&self, archive: &'a mut (dyn Read + Send)) -> io::Result<Box<dyn Read + 'a>> {
        let mut tar = Tar::new(archive);
        let mut scan = Scan::default();
        while let Some(entry) = tar.next_entry()? {
            if let Some(name) = scan.note(&entry)?
                && self.shows(&name)
            {
                let state = Some((Data::of(entry), name));
                return Ok(Box::new(Disk { tar, scan, rules: self.clone(), state }));
            }
        }
        Err(refused(self.named.as_deref().map_or_else(no_disk, changed)))
    }
}

/// The disk's bytes. Once they are all read, the rest of the layer is, and its verdict is part of the last read.
struct Disk<R> {
    tar: Tar<R>,
    scan: Scan,
    rules: DiskLayer,
    /// The file that is read, until it ends.
    state: Option<(Data, String)>,
}

impl<R: Read> Read for Disk<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some((data, name)) = &mut self.state else { return Ok(0) };
        if room.is_empty() {
            return Ok(0);
        }
        match data.read(&mut self.tar, room)? {
            0 => {
                while let Some(entry) = self.tar.next_entry()? {
                    self.scan.note(&entry)?;
                }
                self.rules.check(&self.scan, name).map_err(refused)?;
                self.state = None;
                Ok(0)
            }
            count => Ok(count),
        }
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Regular => "regular file",
        Kind::Directory => "directory",
        Kind::Symlink => "symbolic link",
        Kind::Hardlink => "hard link",
        Kind::Device => "device",
        Kind::Fifo => "FIFO",
        Kind::Other => "thing of an unknown type",
    }
}
