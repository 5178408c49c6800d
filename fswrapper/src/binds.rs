//! What the guest sees, gathered in one directory: mounts in a namespace that only this process and virtiofsd are in.

use std::ffi::CString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use libc::{MOUNT_ATTR_RDONLY, mount_attr};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use proto::share::Bind;

const NOTHING: Option<&str> = None;
/// Of a directory such as `/tmp`.
const STICKY_FOR_ALL: u32 = libc::S_ISVTX | libc::S_IWOTH;
/// The bits of a mode that can be set.
const MODE: u32 = 0o7777;
/// Entries are all that is in it.
const SIZE: &str = "mode=0755,size=64k";

/// Why something cannot be shared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BindError {
    #[error("no mount namespace of its own; libvirt has to run as root")]
    Namespace(#[source] Errno),
    #[error("`{}` is not there", volume.display())]
    Source {
        volume: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` is neither a directory nor a file", volume.display())]
    Kind { volume: PathBuf },
    #[error("entry `{}` not made", entry.display())]
    Entry {
        entry: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` not made read-only with all that is mounted below it", volume.display())]
    ReadOnly {
        volume: PathBuf,
        #[source]
        cause: Errno,
    },
    #[error("sticky bit of `{}` not taken away, with which its files cannot be read in the guest", volume.display())]
    Sticky {
        volume: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` not mounted", volume.display())]
    Mount {
        volume: PathBuf,
        #[source]
        cause: Errno,
    },
}

/// Covers `dir` with an entry for each of `mounts`, in this process's own view of the node.
///
/// # Errors
/// When one of them is not there, or the kernel refuses.
pub(crate) fn gather(dir: &Path, mounts: &[Bind]) -> Result<(), BindError> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(BindError::Namespace)?;
    // What is mounted on the node later appears here, and nothing of here appears there.
    mount(NOTHING, "/", NOTHING, MsFlags::MS_REC | MsFlags::MS_SLAVE, NOTHING).map_err(BindError::Namespace)?;
    let not_mounted = |cause| BindError::Mount { volume: dir.to_owned(), cause };
    let careful = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("share"), dir, Some("tmpfs"), careful, Some(SIZE)).map_err(not_mounted)?;
    for (number, one) in mounts.iter().enumerate() {
        bind(one, &dir.join(number.to_string()))?;
    }
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(NOTHING, dir, NOTHING, read_only | careful, NOTHING).map_err(not_mounted)
}

fn bind(wanted: &Bind, entry: &Path) -> Result<(), BindError> {
    let volume = &wanted.source;
    let found = fs::metadata(volume).map_err(|cause| BindError::Source { volume: volume.clone(), cause })?;
    let made = match (found.is_dir(), found.is_file()) {
        (true, _) => fs::DirBuilder::new().mode(0o755).create(entry),
        (_, true) => File::create_new(entry).map(drop),
        _ => return Err(BindError::Kind { volume: volume.clone() }),
    };
    made.map_err(|cause| BindError::Entry { entry: entry.to_owned(), cause })?;
    if wanted.filled {
        let let_follow = let_links_be_followed(volume, found.permissions().mode());
        let_follow.map_err(|cause| BindError::Sticky { volume: volume.clone(), cause })?;
    }
    let not_mounted = |cause| BindError::Mount { volume: volume.clone(), cause };
    mount(Some(volume), entry, NOTHING, MsFlags::MS_BIND | MsFlags::MS_REC, NOTHING).map_err(not_mounted)?;
    if !wanted.follows {
        mount(NOTHING, entry, NOTHING, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NOTHING).map_err(not_mounted)?;
    }
    // A remount sets all flags, so those that the file system is mounted with are said again.
    let has = statvfs(entry).map_err(not_mounted)?.flags();
    let kept = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let mut flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    flags.extend(kept.into_iter().filter(|(one, _)| has.contains(*one)).map(|(_, flag)| flag));
    flags.set(MsFlags::MS_RDONLY, wanted.read_only || flags.contains(MsFlags::MS_RDONLY));
    mount(NOTHING, entry, NOTHING, flags, NOTHING).map_err(not_mounted)?;
    if wanted.recursive {
        let read_only = make_read_only(entry);
        read_only.map_err(|cause| BindError::ReadOnly { volume: volume.clone(), cause })?;
    }
    Ok(())
}

/// A volume that kubelet fills is a directory of links. Where it is in memory the directory is sticky and all may write to it, as `/tmp`,
/// and since Kubernetes 1.36 the links are the pod user's, if it has one. A kernel with `fs.protected_symlinks` set, as distributions
/// have it, then lets nobody but that user follow them. Whatever runs in a container is that user; a guest has root and others. The bit
/// says who may remove files of others, and nobody may in what is read-only. kubelet does not set it again.
fn let_links_be_followed(volume: &Path, mode: u32) -> io::Result<()> {
    if mode & STICKY_FOR_ALL != STICKY_FOR_ALL {
        return Ok(());
    }
    fs::set_permissions(volume, Permissions::from_mode(mode & MODE & !libc::S_ISVTX))
}

/// With all that is mounted below it: mount_setattr(2), of Linux 5.12.
fn make_read_only(entry: &Path) -> Result<(), Errno> {
    let path = CString::new(entry.as_os_str().as_bytes()).map_err(|_nul| Errno::EINVAL)?;
    let wanted = mount_attr { attr_set: MOUNT_ATTR_RDONLY, attr_clr: 0, propagation: 0, userns_fd: 0 };
    #[expect(unsafe_code, reason = "nix does not have the call")]
    // SAFETY: path and attributes live until the call returns, which keeps neither, and their size is said.
    let called = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW,
            &raw const wanted,
            size_of_val(&wanted),
        )
    };
    Errno::result(called).map(drop)
}
