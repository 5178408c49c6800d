//! The directory of a checkpoint that a pod is made of. Who writes to it decides what QEMU reads, so it has to be root's alone, and nobody
//! else's to put in its place; it is opened once, and all is read through that. A name in it is followed nowhere, and what its manifest
//! says of a file is compared with the copy.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use common::bounded;
use rustix::fs::{CWD, Mode, OFlags, openat};
use tokio_util::sync::CancellationToken;
use vmspec::error::{Error, Kind, Result};

use super::manifest::{self, Manifest, PartMade};
use super::place::{WHOLE, is_root, named, open_dir, shown};
use super::plan::Of;
use super::{copy, failed, fit};
use crate::hypervisor::{HEAD, QEMUS, SavedHead, Unrestorable};

/// A checkpoint that is read.
#[derive(Debug)]
pub(super) struct Source {
    /// Where it is, for people.
    dir: PathBuf,
    whole: File,
    pub(super) manifest: Manifest,
}

/// Where a path leads. Blocks.
///
/// # Errors
/// When it is no path of a checkpoint, or leads nowhere.
pub(super) fn way(text: &str) -> Result<PathBuf> {
    let path = named(text).ok_or_else(|| {
        let why = "it has to be an absolute path of no more than 3072 bytes, without control characters";
        refused(Kind::Invalid, Path::new(text), why)
    })?;
    match path.canonicalize() {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => Err(refused(Kind::State, path, "it is not there")),
        real => real.map_err(|cause| failed("the checkpoint's directory not looked at", cause)),
    }
}

/// The manifest in a file, as far as that was opened. Blocks.
///
/// # Errors
/// When it was not, or cannot be read, or no release wrote it, or a newer one.
pub(super) fn manifest_of(file: io::Result<File>) -> Result<Manifest> {
    let bytes = file.and_then(|file| bounded::first(file, fit::MAX_LEN as u64 + 1));
    fit::parse(&bytes.map_err(|cause| failed("the checkpoint's manifest not read", cause))?)
}

impl Source {
    /// Opens the checkpoint in a directory, by its path without links, and looks at all that can be judged without reading all of it. Blocks.
    ///
    /// # Errors
    /// When the directory is not root's alone, has no whole checkpoint, or what is there is damaged.
    pub(super) fn open(dir: &Path) -> Result<Self> {
        if let Some(above) = dir.ancestors().skip(1).find(|above| !fs::metadata(above).is_ok_and(|at| is_held(&at))) {
            let why = format!("others than root may move what is in `{}`", shown(&above.to_string_lossy()));
            return Err(refused(Kind::State, dir, &why));
        }
        let not_opened = |cause: io::Error| failed("the checkpoint's directory not opened", cause);
        let top = open_dir(CWD, dir).map_err(not_opened)?;
        let whole = match open_dir(&top, WHOLE) {
            Err(absent) if absent.kind() == io::ErrorKind::NotFound => {
                return Err(refused(Kind::State, dir, "it has no `checkpoint`, so none that is whole"));
            }
            opened => opened.map_err(not_opened)?,
        };
        for opened in [&top, &whole] {
            if !is_roots(&opened.metadata().map_err(not_opened)?) {
                let why = "others than root may write to it; `chmod 0700` and `chown root` mend that, if nobody has";
                return Err(refused(Kind::State, dir, why));
            }
        }
        let manifest = manifest_of(file(&whole, manifest::NAME))?;
        let source = Self { dir: dir.to_owned(), manifest, whole };
        source.judge_memory()?;
        Ok(source)
    }

    /// The file of this, and what the manifest says of it, with as many bytes.
    fn part(&self, of: &Of) -> Result<(File, &PartMade)> {
        let part = self.manifest.files.iter().find(|part| part.of == *of);
        let part = part.ok_or_else(|| self.damaged("its manifest lacks a file".to_owned()))?;
        // A name that is one of ours: `fit` looks at them before anything is copied, and this is before that.
        if Path::new(&part.name).file_name().is_none_or(|name| name.to_str() != Some(&part.name)) {
            return Err(self.damaged(format!("`{}` is no name of a file", shown(&part.name))));
        }
        let opened = file(&self.whole, &part.name).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (len, file) = opened.map_err(|cause| failed("a file of the checkpoint not opened", cause))?;
        if len != part.bytes {
            return Err(self.damaged(format!("`{}` has {len} bytes, and had {}", shown(&part.name), part.bytes)));
        }
        Ok((file, part))
    }

    /// That the file with the memory is one that libvirt restores.
    fn judge_memory(&self) -> Result<()> {
        let (file, part) = self.part(&Of::Memory)?;
        memory_at(&file).map(drop).map_err(|why| {
            let what = format!("`{}` of the checkpoint in `{}`", shown(&part.name), shown(&self.dir.to_string_lossy()));
            Error::because(Kind::DataLoss, format!("{what} is no memory that can be restored"), why)
        })
    }

    /// Copies a file to one that is empty, or has as many zeros, and makes sure that the copy is what the manifest says. Blocks.
    ///
    /// # Errors
    /// When it is another one than was written, the disk fails, or it is not wanted any more.
    pub(super) fn copy(&self, of: &Of, to: &File, unwanted: &CancellationToken) -> Result<()> {
        let (from, part) = self.part(of)?;
        let copied = copy::content_and_digest(&from, to, unwanted);
        let (len, sha256) = copied.map_err(|cause| failed("a file of the checkpoint not copied", cause))?;
        if len == part.bytes && sha256 == part.sha256 {
            return Ok(());
        }
        Err(self.damaged(format!("`{}` is not what was written: its SHA-256 is another", shown(&part.name))))
    }

    /// Whether a file is already what the manifest says of this.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn is_there(&self, of: &Of, file: &File, unwanted: &CancellationToken) -> Result<bool> {
        let (_, part) = self.part(of)?;
        let (len, sha256) =
            copy::digest(file, unwanted).map_err(|cause| failed("a copy of the checkpoint not read", cause))?;
        Ok(len == part.bytes && sha256 == part.sha256)
    }

    fn damaged(&self, why: String) -> Error {
        let dir = shown(&self.dir.to_string_lossy());
        Error::new(Kind::DataLoss, format!("the checkpoint in `{dir}` is damaged: {why}"))
    }
}

/// Where QEMU's part of a file with memory begins.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoMemory {
    #[error("failed to read its head")]
    Read(#[source] io::Error),
    #[error(transparent)]
    Unrestorable(#[from] Unrestorable),
}

/// The head of a file with memory.
pub(super) fn memory_at(file: &File) -> Result<SavedHead, NoMemory> {
    let (mut head, mut begins) = ([0; HEAD], [0; QEMUS.len()]);
    file.read_exact_at(&mut head, 0).map_err(NoMemory::Read)?;
    let saved = SavedHead::parse(&head)?;
    file.read_exact_at(&mut begins, saved.memory_at()).map_err(NoMemory::Read)?;
    if begins == QEMUS { Ok(saved) } else { Err(Unrestorable::NoMemory.into()) }
}

/// A file of root's that nobody else writes to, by a name that is not followed.
fn file(dir: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(dir, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other(format!("`{}` is no file", shown(name))));
    }
    if !is_roots(&found) {
        return Err(io::Error::other(format!("others than root may write to `{}`", shown(name))));
    }
    Ok(file)
}

/// Whether nobody but root writes to it.
fn is_roots(found: &fs::Metadata) -> bool {
    is_root(found) && found.permissions().mode() & 0o022 == 0
}

/// Whether nobody but root moves what is root's in it.
fn is_held(found: &fs::Metadata) -> bool {
    is_root(found) && (found.permissions().mode() & 0o1000 != 0 || found.permissions().mode() & 0o022 == 0)
}

fn refused(kind: Kind, dir: &Path, why: &str) -> Error {
    Error::new(kind, format!("no pod is made of a checkpoint in `{}`: {why}", shown(&dir.to_string_lossy())))
}

#[cfg(test)]
mod tests;
