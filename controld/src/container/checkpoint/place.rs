//! The directory of a checkpoint: which ones are none, its files as they are made, and what of one that broke off is removed.
//!
//! The memory of a guest is in it, so nobody but root may write to it, and what is in it is root's alone. `checkpoint.partial` is there from
//! before the first other file until after the manifest, and says whose the rest is: what has no such mark is left as it is.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use common::small_file::{self, SmallFileError};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nix::unistd::{getegid, geteuid};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::ContainerId;
use vmspec::error::{Error, Kind, Result};

use super::copy;
use super::failed;
use super::manifest::{self, PartMade};
use super::plan::{Of, Part};
use crate::files::remove;

/// Memory and devices.
pub(super) const MEMORY: &str = "memory";
const MARK: &str = "checkpoint.partial";
/// What [`small_file`] has of a file that it writes.
const HALF: &str = "checkpoint.new";
/// Longest path, with room for the names of files.
const MAX_PATH: usize = 3072;
const VERSION: u32 = 1;

/// Whose a checkpoint is that has no manifest yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    version: u32,
    /// The controld.
    instance: Uuid,
    container: ContainerId,
}

/// Files of a checkpoint that is being made.
#[derive(Debug)]
pub(super) struct Files {
    memory: File,
    /// Each with its source and its copy.
    parts: Vec<(Part, File, File)>,
}

// === impl Mark ===

impl Mark {
    pub(super) fn new(instance: Uuid, container: ContainerId) -> Self {
        Self { version: VERSION, instance, container }
    }
}

/// The directory that a path names, if a checkpoint may be written to it: one that is there, empty, root's alone to write to, and not in `ours`.
///
/// # Errors
/// When it is not such a one.
pub(super) fn judge(text: &str, ours: &[PathBuf]) -> Result<PathBuf> {
    let path = Path::new(text);
    let none =
        |kind, why: &str| Err(Error::new(kind, format!("a checkpoint is not written to `{}`: {why}", shown(text))));
    let invalid = |why| none(Kind::Invalid, why);
    let state = |why: &str| none(Kind::State, why);
    if !path.is_absolute() || text.len() > MAX_PATH || text.chars().any(char::is_control) {
        return invalid("it has to be an absolute path of no more than 3072 bytes, without control characters");
    }
    let found = match fs::symlink_metadata(path) {
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return state("it is not there; make a directory"),
        found => found.map_err(|cause| failed("the checkpoint's directory not looked at", cause))?,
    };
    if !found.is_dir() {
        return state("it is no directory");
    }
    if !is_root(&found) || found.permissions().mode() & 0o022 != 0 {
        return state("others than root may write to it; `chmod 0700` and `chown root` mend that");
    }
    let real = path.canonicalize().map_err(|cause| failed("the checkpoint's directory not looked at", cause))?;
    let is_ours =
        |ours: &PathBuf| real.starts_with(ours) || ours.canonicalize().is_ok_and(|ours| real.starts_with(ours));
    if ours.iter().any(is_ours) {
        return invalid("controld keeps its own files there");
    }
    // Who may rename one above it may put another in its place.
    let is_roots = |dir: &Path| {
        let is_roots = |found: fs::Metadata| {
            let is_sticky = found.permissions().mode() & 0o1000 != 0;
            is_root(&found) && (is_sticky || found.permissions().mode() & 0o022 == 0)
        };
        fs::metadata(dir).is_ok_and(is_roots)
    };
    if let Some(above) = real.ancestors().skip(1).find(|above| !is_roots(above)) {
        return state(&format!("others than root may move what is in `{}`", above.display()));
    }
    let mut entries = fs::read_dir(&real).map_err(|cause| failed("the checkpoint's directory not listed", cause))?;
    if entries.next().is_some() {
        return state("it is not empty");
    }
    Ok(real)
}

/// Marks a directory, and makes all files of a checkpoint there, so that none is made once the guest is paused.
///
/// # Errors
/// When one is there, or a file of the machine's is not.
pub(super) fn begin(dir: &Path, mark: &Mark, parts: Vec<Part>) -> Result<Files> {
    small_file::write(&dir.join(MARK), mark).map_err(|cause| failed("the checkpoint's directory not marked", cause))?;
    let made = |name: &str| {
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(dir.join(name));
        file.map_err(|cause| failed("a file of the checkpoint not made", cause))
    };
    let memory = made(MEMORY)?;
    let with_files = parts.into_iter().map(|part| {
        let source = source(&part.path).map_err(|cause| {
            Error::because(Kind::State, format!("`{}` of the machine not opened", part.path.display()), cause)
        })?;
        let copy = made(&part.name)?;
        Ok((part, source, copy))
    });
    Ok(Files { memory, parts: with_files.collect::<Result<_>>()? })
}

/// A file, and nothing that is followed: others may write to the directory of an emptyDir.
fn source(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

/// Whether a directory has a checkpoint with its manifest.
///
/// # Errors
/// When it cannot be looked at.
pub(super) fn is_whole(dir: &Path) -> Result<bool> {
    fs::exists(dir.join(manifest::NAME)).map_err(|cause| failed("the checkpoint's directory not looked at", cause))
}

/// Removes the files of a checkpoint without a manifest, if they have this mark. Fine if there are none, or no directory.
///
/// # Errors
/// When one stays.
pub(super) fn clear(dir: &Path, mark: &Mark, names: &[String]) -> Result<()> {
    let stays = |cause: io::Error| failed("a file of a checkpoint that broke off stays", cause);
    match small_file::read::<Mark>(&dir.join(MARK), VERSION) {
        Ok(Some(found)) if found == *mark => {}
        Ok(None) => return Ok(()),
        Err(SmallFileError::Io(cause)) => {
            return Err(failed("the mark of a checkpoint not read", cause));
        }
        Ok(Some(_)) | Err(_) => {
            tracing::warn!(dir = %dir.display(), "a checkpoint broke off, and its directory is not marked as ours: it stays as it is");
            return Ok(());
        }
    }
    if !is_whole(dir)? {
        let files = names.iter().map(String::as_str).chain([MEMORY, HALF]);
        files.map(|name| remove(&dir.join(name))).collect::<io::Result<()>>().map_err(stays)?;
        tracing::info!(dir = %dir.display(), "what was there of a checkpoint that broke off is removed");
    }
    // Last: what has no mark is nobody's.
    remove(&dir.join(MARK)).map_err(stays)
}

/// Or whoever runs this, who is root but in tests.
fn is_root(found: &fs::Metadata) -> bool {
    [0, geteuid().as_raw()].contains(&found.uid())
}

fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(256).collect()
}

// === impl Files ===

impl Files {
    /// Copies what the guest does not write to now.
    pub(super) fn copy(&self, unwanted: &CancellationToken) -> io::Result<()> {
        self.parts.iter().try_for_each(|(_, source, copy)| copy::content(source, copy, unwanted))
    }

    /// Flushes all to the disk, as root's alone; what they are.
    pub(super) fn finish(self, unwanted: &CancellationToken) -> io::Result<Vec<PartMade>> {
        let memory = (MEMORY.to_owned(), Of::Memory, self.memory);
        let parts = self.parts.into_iter().map(|(part, _, copy)| (part.name, part.of, copy));
        let finished = |(name, of, file): (String, Of, File)| {
            // libvirt gives the memory's file to QEMU's user.
            fchown(&file, Some(geteuid().as_raw()), Some(getegid().as_raw()))?;
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.sync_all()?;
            let (bytes, sha256) = copy::digest(&file, unwanted)?;
            Ok(PartMade { name, of, bytes, sha256 })
        };
        std::iter::once(memory).chain(parts).map(finished).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mark(container: ContainerId) -> Mark {
        Mark::new(Uuid::from_u128(1), container)
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).expect("listed");
        let mut names: Vec<_> =
            entries.map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn parts(dir: &Path) -> Vec<Part> {
        fs::write(dir.join("overlay"), b"layer").expect("written");
        vec![Part { name: "root.qcow2".into(), of: Of::Root, path: dir.join("overlay") }]
    }

    #[test]
    fn a_directory_is_empty_roots_alone_and_not_ours() {
        let dir = tempfile::tempdir().expect("tempdir");
        let real = dir.path().canonicalize().expect("there");
        let made = |name: &str| {
            let path = real.join(name);
            fs::create_dir(&path).expect("made");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("set");
            path
        };
        let (good, open, full, ours) = (made("good"), made("open"), made("full"), made("ours"));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o770)).expect("set");
        fs::write(full.join("x"), "").expect("written");
        fs::create_dir(ours.join("in")).expect("made");
        symlink(&good, real.join("link")).expect("linked");
        symlink(&ours, real.join("state")).expect("linked");
        let state = [real.join("state")];
        assert_eq!(judge(good.to_str().expect("text"), &state).expect("a place"), good);
        let text = |path: PathBuf| path.to_str().expect("text").to_owned();
        for (path, kind, why) in [
            (text(open), Kind::State, "others than root"),
            (text(full.clone()), Kind::State, "not empty"),
            (text(full.join("x")), Kind::State, "no directory"),
            (text(real.join("link")), Kind::State, "no directory"),
            (text(real.join("gone")), Kind::State, "not there"),
            (text(ours.join("in")), Kind::Invalid, "its own files"),
            (text(good.join("../ours/in")), Kind::Invalid, "its own files"),
            ("relative".into(), Kind::Invalid, "absolute"),
            (String::new(), Kind::Invalid, "absolute"),
            ("/a\nb".into(), Kind::Invalid, "control"),
            ("/a\0b".into(), Kind::Invalid, "control"),
            (format!("/{}", "a".repeat(MAX_PATH)), Kind::Invalid, "3072 bytes"),
        ] {
            let refused = judge(&path, &state).expect_err(&path);
            assert!(refused.kind() == kind && refused.to_string().contains(why), "{path}: {refused}");
        }
    }

    #[test]
    fn what_broke_off_goes_and_what_is_whole_stays() {
        let (dir, machine) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
        let (dir, id) = (dir.path(), ContainerId::random());
        let all = ["root.qcow2".to_owned()];
        let files = begin(dir, &mark(id), parts(machine.path())).expect("begun");
        files.copy(&CancellationToken::new()).expect("copied");
        assert_eq!(names(dir), [MARK, MEMORY, "root.qcow2"]);
        assert_eq!(fs::read(dir.join("root.qcow2")).expect("read"), b"layer");
        let mode = |name: &str| fs::metadata(dir.join(name)).expect("there").permissions().mode() & 0o777;
        assert_eq!([mode(MEMORY), mode("root.qcow2"), mode(MARK)], [0o600; 3]);
        fs::write(dir.join("theirs"), "").expect("written");

        clear(dir, &mark(ContainerId::random()), &all).expect("another's");
        assert_eq!(names(dir), [MARK, MEMORY, "root.qcow2", "theirs"]);
        clear(dir, &mark(id), &all).expect("cleared");
        assert_eq!(names(dir), ["theirs"]);
        clear(dir, &mark(id), &all).expect("again is fine");
        clear(&dir.join("gone"), &mark(id), &all).expect("so is a directory that is not there");

        begin(dir, &mark(id), parts(machine.path())).expect("begun");
        fs::write(dir.join(manifest::NAME), "{}").expect("written");
        clear(dir, &mark(id), &all).expect("cleared");
        assert_eq!(names(dir), [manifest::NAME, MEMORY, "root.qcow2", "theirs"], "it is whole");
    }

    #[test]
    fn a_file_that_is_a_link_is_not_followed() {
        let (dir, machine) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
        let parts = parts(machine.path());
        fs::rename(&parts[0].path, machine.path().join("other")).expect("moved");
        symlink(machine.path().join("other"), &parts[0].path).expect("linked");
        let refused = begin(dir.path(), &mark(ContainerId::random()), parts).expect_err("a link");
        assert_eq!(refused.kind(), Kind::State);
    }
}
