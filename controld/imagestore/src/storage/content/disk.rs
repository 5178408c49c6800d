//! The store's directories, and the few operations on them.
//!
//! Every operation goes by the descriptor of a directory that was opened once and a name of one component, and follows
//! no link, so a link or a directory that somebody else put there leads nowhere.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nix::dir::Dir as Listing;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, UnlinkatFlags, fchown, fsync, geteuid, symlinkat, unlinkat};
use vmimage::error::{ErrorKind, of_errno};

use super::key::Handler;

/// Start of names that are only there until they are renamed.
pub(crate) const TMP: &str = ".tmp-";
/// Largest record.
const MAX_RECORD: u64 = 64 * 1024;

/// What a directory's permissions are when it is opened: the first, unless it has the second already.
type Modes = (u32, u32);

/// Everybody may pass, only we may list and change: QEMU is another user, and images are below.
const SEARCHABLE: Modes = (0o711, 0o711);
const PRIVATE: Modes = (0o700, 0o700);
/// Ours alone until [`Dir::serve_to`] says whose else, which outlives the process.
const SERVED: Modes = (0o700, SERVED_MODE);
const SERVED_MODE: u32 = 0o710;

/// Something on the disk failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A call failed.
    #[error("failed to {action} `{}`", path.display())]
    Os {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        #[source]
        cause: Errno,
    },
    /// Not ours, or others may write to it.
    #[error(
        "`{}` must be a directory of the daemon's user that nobody else can write to; correct its owner and mode",
        path.display()
    )]
    Untrusted { path: PathBuf },
    /// Another daemon has the store.
    #[error("the image store `{}` is in use by another process; stop it first", path.display())]
    Busy { path: PathBuf },
    /// Something else stands where an image is to be.
    #[error("`{}` is in the way and not ours; remove it", path.display())]
    Obstructed {
        /// The thing.
        path: PathBuf,
    },
}

impl DiskError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Os { cause, .. } => of_errno(*cause),
            Self::Obstructed { .. } => ErrorKind::Corrupt,
            Self::Untrusted { .. } | Self::Busy { .. } => ErrorKind::Internal,
        }
    }
}

/// One directory.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    path: PathBuf,
}

/// The names of one handler.
#[derive(Debug)]
pub(crate) struct Bindings {
    pub(crate) links: Dir,
    pub(crate) refs: Dir,
    /// What is before the hex characters in a link's target.
    pub(crate) to_data: &'static str,
}

/// All directories, and the lock that says they are ours.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) root: Dir,
    pub(crate) data: Dir,
    pub(crate) meta: Dir,
    pub(crate) leases: Dir,
    pub(crate) partial: Dir,
    pub(crate) quarantine: Dir,
    handlers: Dir,
    refs: Dir,
    default: Arc<Bindings>,
    others: Mutex<BTreeMap<Handler, Arc<Bindings>>>,
    _lock: Flock<OwnedFd>,
}

impl Disk {
    /// Opens the store at `path`, making what is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, DiskError> {
        let root = open_root(path)?;
        let lock = root.open_file("lock", OFlag::O_RDWR | OFlag::O_CREAT)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
            Errno::EAGAIN => DiskError::Busy { path: path.to_owned() },
            cause => root.failed("lock", "lock", cause),
        })?;
        let data = root.ensure_dir("data", SERVED)?;
        let meta = root.ensure_dir("meta", PRIVATE)?;
        let leases = root.ensure_dir("leases", PRIVATE)?;
        let partial = root.ensure_dir("partial", PRIVATE)?;
        let quarantine = root.ensure_dir("quarantine", PRIVATE)?;
        let handlers = root.ensure_dir("handlers", PRIVATE)?;
        let refs = root.ensure_dir("refs", PRIVATE)?;
        let default = Arc::new(Bindings {
            links: root.ensure_dir("links", PRIVATE)?,
            refs: refs.ensure_dir(Handler::default().refs_dir(), PRIVATE)?,
            to_data: "../data/",
        });
        let others = Mutex::default();
        Ok(Self { root, data, meta, leases, partial, quarantine, handlers, refs, default, others, _lock: lock })
    }

    /// Where the names of a handler are. Its directories are made when it has its first.
    pub(crate) fn bindings(&self, handler: &Handler) -> Result<Arc<Bindings>, DiskError> {
        if handler.is_default() {
            return Ok(self.default.clone());
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = others.get(handler) {
            return Ok(known.clone());
        }
        let own = self.handlers.ensure_dir(handler.name(), PRIVATE)?;
        let bindings = Arc::new(Bindings {
            links: own.ensure_dir("links", PRIVATE)?,
            refs: self.refs.ensure_dir(handler.refs_dir(), PRIVATE)?,
            to_data: "../../../data/",
        });
        others.insert(handler.clone(), bindings.clone());
        Ok(bindings)
    }

    /// Handlers that have directories, the default one first, and names of what is none.
    pub(crate) fn handlers(&self) -> Result<(Vec<Handler>, Vec<String>), DiskError> {
        let mut handlers = vec![Handler::default()];
        let mut strange = Vec::new();
        for name in self.handlers.names()? {
            match Handler::named(&name).filter(|_| matches!(self.handlers.stat(&name), Ok(Some(stat)) if is_dir(&stat)))
            {
                Some(handler) => handlers.push(handler),
                None => strange.push(name),
            }
        }
        Ok((handlers, strange))
    }

    pub(crate) fn handlers_dir(&self) -> &Dir {
        &self.handlers
    }

    /// A stored file for reading: what stands there under this very name, and nothing that it may lead to.
    pub(crate) fn open_data(&self, hex: &str) -> Result<File, DiskError> {
        let how =
            OpenHow::new().flags(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC).resolve(
                ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS,
            );
        let fd = openat2(&self.data.fd, hex, how).map_err(|cause| self.data.failed("open", hex, cause))?;
        let opened = fstat(fd.as_fd()).map_err(|cause| self.data.failed("examine", hex, cause))?;
        if is_sound(&opened) {
            Ok(File::from(fd))
        } else {
            Err(DiskError::Obstructed { path: self.data.path.join(hex) })
        }
    }
}

impl Dir {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    pub(crate) fn failed(&self, action: &'static str, name: &str, cause: Errno) -> DiskError {
        DiskError::Os { action, path: self.path.join(name), cause }
    }

    /// Lets a group pass, and no other user: who is in it opens what it knows the name of.
    pub(crate) fn serve_to(&self, gid: u32) -> Result<(), DiskError> {
        let stat = fstat(&self.fd).map_err(|cause| self.failed("examine", "", cause))?;
        if stat.st_gid != gid {
            let group = Some(Gid::from_raw(gid));
            fchown(&self.fd, None, group).map_err(|cause| self.failed("set the group of", "", cause))?;
        }
        if stat.st_mode & 0o777 != SERVED_MODE {
            let mode = Mode::from_bits_truncate(SERVED_MODE);
            fchmod(&self.fd, mode).map_err(|cause| self.failed("set the mode of", "", cause))?;
        }
        Ok(())
    }

    fn ensure_dir(&self, name: &str, modes: Modes) -> Result<Self, DiskError> {
        match mkdirat(&self.fd, name, Mode::from_bits_truncate(modes.0)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(cause) => return Err(self.failed("create directory", name, cause)),
        }
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::ENOTDIR | Errno::ELOOP) => return Err(DiskError::Untrusted { path: self.path.join(name) }),
            Err(cause) => return Err(self.failed("open directory", name, cause)),
        };
        trusted_dir(fd, self.path.join(name), modes)
    }

    /// Names in it, sorted. One that is not UTF-8 is none of ours and comes back marked as such.
    pub(crate) fn names(&self) -> Result<Vec<String>, DiskError> {
        let failed = |cause| self.failed("list", "", cause);
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut listing = Listing::openat(&self.fd, ".", flags, Mode::empty()).map_err(failed)?;
        let mut names = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(failed)?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_string_lossy().into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// What is there, itself and not what it may point to.
    pub(crate) fn stat(&self, name: &str) -> Result<Option<FileStat>, DiskError> {
        match fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::ENOENT) => Ok(None),
            Err(cause) => Err(self.failed("examine", name, cause)),
        }
    }

    pub(crate) fn open_file(&self, name: &str, flags: OFlag) -> Result<OwnedFd, DiskError> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        openat(&self.fd, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|cause| self.failed("open", name, cause))
    }

    /// The target of a link. `None` if it is no link.
    pub(crate) fn read_link(&self, name: &str) -> Result<Option<String>, DiskError> {
        match readlinkat(&self.fd, name) {
            Ok(target) => Ok(target.into_string().ok()),
            Err(Errno::EINVAL | Errno::ENOENT) => Ok(None),
            Err(cause) => Err(self.failed("read link", name, cause)),
        }
    }

    /// A record's text. `None` if it is none: no regular file, too large, no text.
    pub(crate) fn read_record(&self, name: &str) -> Result<Option<String>, DiskError> {
        if !self.stat(name)?.is_some_and(|stat| is_regular(&stat)) {
            return Ok(None);
        }
        let file = File::from(self.open_file(name, OFlag::O_RDONLY)?);
        let failed = |error: io::Error| self.failed("read", name, errno_of(&error));
        // What was opened may be another thing than what was looked at.
        if !file.metadata().map_err(failed)?.is_file() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.take(MAX_RECORD + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok(String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= MAX_RECORD))
    }

    /// Writes a record so that after a crash there is either the old or the new one.
    pub(crate) fn write_record(&self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        let tmp = unique(TMP);
        let fd = self.open_file(&tmp, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL)?;
        let mut file = File::from(fd);
        let failed = |error: io::Error| self.failed("write", name, errno_of(&error));
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(failed)
            .and_then(|()| self.rename(&tmp, name))
            .and_then(|()| self.sync());
        if written.is_err() {
            let _ = self.remove(&tmp);
        }
        written
    }

    /// Makes `name` a link to `target`, in place of the link that may be there.
    pub(crate) fn replace_link(&self, name: &str, target: &str) -> Result<(), DiskError> {
        let tmp = unique(TMP);
        symlinkat(target, &self.fd, tmp.as_str()).map_err(|cause| self.failed("create link", name, cause))?;
        self.rename(&tmp, name).inspect_err(|_| {
            let _ = self.remove(&tmp);
        })
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        renameat(&self.fd, from, &self.fd, to).map_err(|cause| self.failed("rename to", to, cause))
    }

    /// Renames into another directory of the store.
    pub(crate) fn rename_into(&self, from: &str, dir: &Self, to: &str) -> Result<(), DiskError> {
        renameat(&self.fd, from, &dir.fd, to).map_err(|cause| dir.failed("rename to", to, cause))
    }

    /// Removes a file or link. Fine if it is not there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), DiskError> {
        match unlinkat(&self.fd, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(cause) => Err(self.failed("remove", name, cause)),
        }
    }

    /// Makes what was renamed and removed last.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        fsync(&self.fd).map_err(|cause| self.failed("sync", "", cause))
    }
}

/// A name that nobody else uses now: the lock makes this process the only one.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{prefix}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn is_regular(stat: &FileStat) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits()
}

pub(crate) fn is_ours(stat: &FileStat) -> bool {
    stat.st_uid == geteuid().as_raw()
}

pub(crate) fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()
}

/// Whether a file is one that only we can have written.
pub(crate) fn is_sound(stat: &FileStat) -> bool {
    is_regular(stat) && is_ours(stat) && stat.st_mode & 0o022 == 0
}

pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

fn open_root(path: &Path) -> Result<Dir, DiskError> {
    let failed = |action, cause| DiskError::Os { action, path: path.to_owned(), cause };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(path)
        .map_err(|error| failed("create directory", errno_of(&error)))?;
    let real = path.parent().filter(|parent| !parent.as_os_str().is_empty()).map(std::fs::canonicalize).transpose();
    let real = real.map_err(|error| failed("examine", errno_of(&error)))?;
    for above in real.iter().flat_map(|real| real.ancestors()) {
        let facts = std::fs::metadata(above).map_err(|error| failed("examine", errno_of(&error)))?;
        // In a directory of the kind of /tmp nobody can take away what is not theirs.
        let sticky = facts.mode() & 0o1000 != 0;
        if facts.mode() & 0o022 != 0 && !sticky {
            return Err(DiskError::Untrusted { path: above.to_owned() });
        }
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let fd = match open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::ENOTDIR | Errno::ELOOP) => return Err(DiskError::Untrusted { path: path.to_owned() }),
        Err(cause) => return Err(failed("open directory", cause)),
    };
    trusted_dir(fd, path.to_owned(), SEARCHABLE)
}

/// Checks that nobody else can write to a directory, and gives it its mode whatever the umask was.
fn trusted_dir(fd: OwnedFd, path: PathBuf, (mode, kept): Modes) -> Result<Dir, DiskError> {
    let failed = |action, cause| DiskError::Os { action, path: path.clone(), cause };
    let stat = fstat(fd.as_fd()).map_err(|cause| failed("examine", cause))?;
    if !is_ours(&stat) || stat.st_mode & 0o022 != 0 {
        return Err(DiskError::Untrusted { path });
    }
    let found = stat.st_mode & 0o777;
    if found != mode && found != kept {
        fchmod(fd.as_fd(), Mode::from_bits_truncate(mode)).map_err(|cause| failed("set the mode of", cause))?;
    }
    Ok(Dir { fd, path })
}
