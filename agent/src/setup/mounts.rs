//! The pod's volumes where the pod has them: entries of the share, bound to paths of the guest.
//!
//! All of it may be done again: an agent that is restarted in the same boot finds what is mounted, and leaves it unless a later mount
//! hides it. A mount that cannot be made read-only, or be given the options that it is to have, is taken away.

mod plan;

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use proto::agent::{Mount, SHARE_TAG};

use self::plan::plan;
use super::flags;
use super::mountinfo::{self, Mounted};

/// No source, type or options of a mount.
const NOTHING: Option<&str> = None;
/// Nothing of the node's makes a root or a device in the guest.
const HARMLESS: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);
/// Of the share's directory and the one above: who is not root goes by the paths of the pod alone.
const HIDDEN: u32 = 0o700;
const DIRECTORY: u32 = 0o755;
const FILE: u32 = 0o644;

/// The share's place in the guest.
#[derive(Debug)]
pub(super) struct Share {
    dir: PathBuf,
}

impl Share {
    pub(super) fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    /// Mounts the share, if there is anything in it; what of it can be bound, and what cannot and why, a line each.
    pub(super) fn ready<'a>(&self, wanted: &'a [Mount]) -> (Vec<&'a Mount>, Vec<String>) {
        if wanted.is_empty() {
            return (Vec::new(), Vec::new());
        }
        match self.mount() {
            Ok(()) => plan(wanted),
            Err(why) => {
                let why = format!(
                    "share `{SHARE_TAG}` was not mounted at `{}` in the guest, nor any volume of it: {why}",
                    self.dir.display()
                );
                (Vec::new(), vec![why])
            }
        }
    }

    /// What is mounted at its place is the share.
    fn mount(&self) -> Result<(), String> {
        let all = mountinfo::read().map_err(|error| error.to_string())?;
        if all.iter().any(|one| one.point == self.dir) {
            return Ok(());
        }
        let place = || -> io::Result<()> {
            let above = self.dir.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
            DirBuilder::new().recursive(true).mode(DIRECTORY).create(above)?;
            DirBuilder::new().recursive(true).mode(HIDDEN).create(&self.dir)
        };
        place().map_err(|error| format!("failed to make the directory: {error}"))?;
        mount(Some(SHARE_TAG), &self.dir, Some("virtiofs"), HARMLESS, NOTHING).map_err(no_share)
    }

    /// Has it seen at its path.
    pub(super) fn bind(&self, wanted: &Mount) -> Result<(), String> {
        let entry = self.dir.join(wanted.entry.to_string());
        let is_dir = fs::metadata(&entry).map_err(|error| no_entry(&entry, &error))?.is_dir();
        let target = target(Path::new(&wanted.path), is_dir)?;
        let all = mountinfo::read().map_err(|error| error.to_string())?;
        let done = self.of_entry(&entry, &all).and_then(|(device, root)| {
            mountinfo::seen(&all, |one| one.point == target && one.device == device && one.root == root)
        });
        if done.is_none() {
            mount(Some(&entry), &target, NOTHING, MsFlags::MS_BIND, NOTHING)
                .map_err(|errno| format!("failed to bind `{}` to it: {}", entry.display(), io::Error::from(errno)))?;
        }
        let has = done.map_or(MsFlags::empty(), |one| one.flags);
        let flags = flags::of(wanted.read_only, wanted.options);
        if has.contains(flags) { Ok(()) } else { flags::hold(&target, HARMLESS | has | flags, flags) }
    }

    /// Which file system an entry is of, and what of it: the share's own, or one of the node's that the share has below it.
    fn of_entry(&self, entry: &Path, all: &[Mounted]) -> Option<(String, PathBuf)> {
        let at = |point: &Path| all.iter().rfind(|one| one.point == point);
        let own = at(entry).map(|one| (one.device.clone(), one.root.clone()));
        let name = entry.file_name()?;
        own.or_else(|| at(&self.dir).map(|share| (share.device.clone(), share.root.join(name))))
    }
}

/// Makes what is missing of a path; what it resolves to.
fn target(path: &Path, is_dir: bool) -> Result<PathBuf, String> {
    let found = match fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path, is_dir)?;
            fs::metadata(path).map_err(|error| format!("not found although it was made: {error}"))?
        }
        Err(error) => return Err(format!("failed to look at it: {error}")),
    };
    alike(&found, is_dir)?;
    let target = path.canonicalize().map_err(|error| format!("failed to resolve it: {error}"))?;
    plan::check(&target).map_err(|why| format!("it leads to `{}`, which {why}", target.display()))?;
    Ok(target)
}

fn alike(found: &Metadata, is_dir: bool) -> Result<(), String> {
    let [theirs, ours] = [found.is_dir(), is_dir].map(|is_dir| if is_dir { "a directory" } else { "a file" });
    let what = || format!("it is {theirs} in the guest, and the volume {ours}; take another path");
    (found.is_dir() == is_dir).then_some(()).ok_or_else(what)
}

fn make(path: &Path, is_dir: bool) -> Result<(), String> {
    // What the link leads to may be somebody's plan for later.
    if path.is_symlink() {
        return Err(
            "it is a symlink that leads nowhere in the guest; make what it leads to, or take another path".into()
        );
    }
    let directory = |dir: &Path| DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir);
    let made = match path.parent() {
        _ if is_dir => directory(path),
        above => above.map_or(Ok(()), directory).and_then(|()| {
            // New, so through no link.
            File::options().write(true).create_new(true).mode(FILE).open(path).map(drop)
        }),
    };
    made.map_err(|error| {
        let help = if error.kind() == io::ErrorKind::ReadOnlyFilesystem { "; have it in the image" } else { "" };
        format!("failed to make it: {error}{help}")
    })
}

fn no_entry(entry: &Path, error: &io::Error) -> String {
    format!("`{}` of the share not found: {error}", entry.display())
}

fn no_share(errno: Errno) -> String {
    match errno {
        Errno::ENODEV => "the guest's kernel has no virtiofs; take an image whose kernel has CONFIG_VIRTIO_FS".into(),
        Errno::EINVAL => "the guest's kernel has found no virtiofs device of this tag; \
                          the driver virtio_pci must be in it, and the machine must have the device"
            .into(),
        Errno::EPERM => "Operation not permitted; the agent must run as root".into(),
        other => io::Error::from(other).to_string(),
    }
}

#[cfg(test)]
mod tests;
