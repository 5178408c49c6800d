//! Network namespaces of pods: files under `/run/netns` that a namespace is mounted on, as `ip netns` has them.
//!
//! Called by the pod's actor (create, open, remove), by [`crate::net`] and by [`crate::vf`] (enter). The only file that
//! switches namespace: always on a thread that ends afterwards, so there is no way back to get wrong, and never by `fork`,
//! which a process with threads must not. That is the thread of a pod's operation ([`crate::blocking`]), if there is one,
//! or a fresh one; a fresh one for [`Netns::inside`], unless the thread that asks is there already.
//!
//! All functions but [`Netns::visit`] block, and are called off the reactor: creating waits for a lock that the
//! kernel's clean-up of dead namespaces holds (milliseconds when pods come and go).

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{FileStat, fstat, stat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};
use tokio::sync::oneshot;

use super::link;
use super::netlink::{Netlink, NetlinkError};
use crate::blocking;

/// The namespace of the thread that asks.
const OWN_NETNS: &str = "/proc/thread-self/ns/net";
/// The namespace of the process's first thread.
const PROCESS_NETNS: &str = "/proc/self/ns/net";
/// Whether the namespace's stack asks for others with an IPv6 address before it uses it (DAD; kernel, ip-sysctl): on all links, and on those
/// that come. Shown to each task for its own namespace.
const ACCEPT_DAD: [&str; 2] = ["/proc/sys/net/ipv6/conf/all/accept_dad", "/proc/sys/net/ipv6/conf/default/accept_dad"];

/// A pod's network namespace: held open, so it stays the same whatever becomes of the file.
#[derive(Debug)]
pub(crate) struct Netns {
    path: PathBuf,
    fd: OwnedFd,
}

/// A namespace that is mounted nowhere yet. It goes with this.
#[derive(Debug)]
pub(crate) struct UnmountedNetns {
    fd: OwnedFd,
}

/// Why a namespace could not be made, entered or removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetnsError {
    /// It is there already.
    #[error("namespace file `{}` exists already; detach the pod that it belongs to, or remove it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file that is no namespace is in its place.
    #[error("`{}` is not a mounted network namespace", path.display())]
    NotNetns {
        /// The file.
        path: PathBuf,
    },
    /// A step on the way failed.
    #[error("failed to {action} `{}`", path.display())]
    Step {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// Its IPv6 addresses would be usable late.
    #[error("failed to turn off duplicate address detection in a new namespace by `{path}`")]
    Dad {
        /// The setting.
        path: &'static str,
        /// The kernel's word.
        #[source]
        cause: io::Error,
    },
    /// Its loopback link stayed down.
    #[error("failed to bring up the loopback link of a new namespace")]
    Loopback {
        /// Why.
        #[source]
        cause: NetlinkError,
    },
    /// The work inside panicked.
    #[error("work inside namespace `{}` did not finish; this is a bug, see the log", path.display())]
    Panicked {
        /// The file.
        path: PathBuf,
    },
}

// === impl Netns ===

impl Netns {
    /// Makes a new namespace with its loopback link up, and mounts it on `path`, which must not exist. Its directory
    /// is [`share`]d already, or is made and shared now if it is gone.
    pub(crate) fn create(path: &Path) -> Result<Self, NetnsError> {
        Self::take_place(path)?;
        let made = if blocking::is_operation() {
            UnmountedNetns::make_here()
        } else {
            let made = thread::scope(|scope| scope.spawn(UnmountedNetns::make_here).join());
            made.unwrap_or_else(|_| Err(NetnsError::Panicked { path: path.to_owned() }))
        };
        made.and_then(|nameless| nameless.mount_on(path)).inspect_err(|_| Self::leave_place(path))
    }

    /// As [`Self::create`] with a namespace that is there.
    pub(crate) fn place(path: &Path, nameless: UnmountedNetns) -> Result<Self, NetnsError> {
        Self::take_place(path)?;
        nameless.mount_on(path).inspect_err(|_| Self::leave_place(path))
    }

    fn take_place(path: &Path) -> Result<(), NetnsError> {
        // Exclusive: two pods of one name must not share a namespace.
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o444).open(path);
        let created = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                share(path.parent().unwrap_or(Path::new("/")))?;
                create()
            }
            created => created,
        };
        match created {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(NetnsError::Exists { path: path.to_owned() })
            }
            Err(error) => Err(step("create", path)(error)),
        }
    }

    fn leave_place(path: &Path) {
        // The error that matters is the first one; a file left behind is removed by the next detach.
        let _ = Self::remove(path);
    }

    /// Opens the namespace mounted on `path`; `None` if there is no such file.
    pub(crate) fn open(path: &Path) -> Result<Option<Self>, NetnsError> {
        let Some(fd) = open_file(path)? else { return Ok(None) };
        let kind = fstatfs(&fd).map_err(|errno| step("examine", path)(errno.into()))?.filesystem_type();
        if kind != NSFS_MAGIC {
            return Err(NetnsError::NotNetns { path: path.to_owned() });
        }
        Ok(Some(Self { path: path.to_owned(), fd }))
    }

    /// The namespace in which the process began. Its first thread never leaves it, whatever the calling thread has done.
    pub(crate) fn of_process() -> Result<Self, NetnsError> {
        let path = Path::new(PROCESS_NETNS);
        Self::open(path)?.ok_or_else(|| step("open", path)(io::ErrorKind::NotFound.into()))
    }

    /// Unmounts the namespace and removes its file; fine if it is gone. The namespace itself goes with its last user.
    pub(crate) fn remove(path: &Path) -> Result<(), NetnsError> {
        loop {
            match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                // Something may have been mounted over it.
                Ok(()) => {}
                Err(Errno::ENOENT) => return Ok(()),
                Err(Errno::EINVAL) => break,
                Err(errno) => return Err(step("unmount", path)(errno.into())),
            }
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(step("remove", path)(error)),
            _ => Ok(()),
        }
    }

    /// What tells it from others.
    #[cfg(test)]
    pub(crate) fn id(&self) -> io::Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        Ok(fs::File::from(self.fd.try_clone()?).metadata()?.ino())
    }

    /// The file that it is mounted on.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `work` in this namespace, on a fresh thread that then ends, and waits for it; on this one if it is there. For
    /// callers that may block, and whose own thread is to stay where it is. `work` starts no thread.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        if self.is_here() {
            return catch_unwind(AssertUnwindSafe(work)).map_err(|_| NetnsError::Panicked { path: self.path.clone() });
        }
        let done = thread::scope(|scope| {
            let worker = scope.spawn(|| {
                enter(&self.fd, &self.path)?;
                Ok(work())
            });
            worker.join()
        });
        done.unwrap_or_else(|_| Err(NetnsError::Panicked { path: self.path.clone() }))
    }

    /// Whether this thread is in the namespace. Not known is no.
    fn is_here(&self) -> bool {
        let same = |here: FileStat, there: FileStat| (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino);
        stat(OWN_NETNS).ok().zip(fstat(&self.fd).ok()).is_some_and(|(here, there)| same(here, there))
    }

    /// Puts this thread into the namespace mounted on `path` for the rest of its life, so call it on one that ends with its
    /// work. False if there is no such file. Blocks.
    pub(crate) fn stay(path: &Path) -> Result<bool, NetnsError> {
        let Some(fd) = open_file(path)? else { return Ok(false) };
        // The kernel itself looks whether it is one.
        enter(&fd, path).map(|()| true).map_err(|error| match error {
            NetnsError::Step { cause, .. } if cause.raw_os_error() == Some(libc::EINVAL) => {
                NetnsError::NotNetns { path: path.to_owned() }
            }
            error => error,
        })
    }

    /// Runs `work` in this namespace, on a thread that then ends; the runtime stays free however long the kernel takes.
    /// `work` runs to its end even if nobody waits any more, and in the context of the runtime, so it may register
    /// descriptors.
    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NetnsError> {
        if blocking::is_operation() {
            enter(&self.fd, &self.path)?;
            return catch_unwind(AssertUnwindSafe(work)).map_err(|_| NetnsError::Panicked { path: self.path.clone() });
        }
        let path = self.path.clone();
        let fd = self.fd.try_clone().map_err(step("duplicate the descriptor of", &path))?;
        let runtime = tokio::runtime::Handle::current();
        let (done, result) = oneshot::channel();
        let worker = thread::Builder::new().name("netns".to_owned()).spawn(move || {
            let outcome = enter(&fd, &path).map(|()| {
                let _context = runtime.enter();
                work()
            });
            // Nobody waits any more: what was opened is closed here.
            let _ = done.send(outcome);
        });
        worker.map_err(step("start a thread for", &self.path))?;
        result.await.unwrap_or_else(|_| Err(NetnsError::Panicked { path: self.path.clone() }))
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

// === impl UnmountedNetns ===

impl UnmountedNetns {
    /// Makes this thread's namespace a new one with its loopback link up. Only for a thread that ends.
    ///
    /// Its own stack does not look for duplicates of its IPv6 addresses: the guest, which gets them, does so itself (RFC 4862, section 5.4).
    /// Otherwise each plugin that configures one would wait a second or two for the namespace's.
    pub(crate) fn make_here() -> Result<Self, NetnsError> {
        let own = Path::new(OWN_NETNS);
        unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| step("replace", own)(errno.into()))?;
        let fd = fs::File::open(own).map_err(step("open", own))?.into();
        ACCEPT_DAD.into_iter().try_for_each(turn_off)?;
        let up = Netlink::open().and_then(|mut netlink| link::set_up(&mut netlink, link::LOOPBACK));
        up.map_err(|cause| NetnsError::Loopback { cause })?;
        Ok(Self { fd })
    }

    fn mount_on(self, path: &Path) -> Result<Netns, NetnsError> {
        let source = format!("/proc/thread-self/fd/{}", self.fd.as_raw_fd());
        mount(Some(source.as_str()), path, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            .map_err(|errno| step("mount a namespace on", path)(errno.into()))?;
        Ok(Netns { path: path.to_owned(), fd: self.fd })
    }
}

fn open_file(path: &Path) -> Result<Option<OwnedFd>, NetnsError> {
    match OpenOptions::new().read(true).custom_flags(OFlag::O_CLOEXEC.bits()).open(path) {
        Ok(file) => Ok(Some(file.into())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(step("open", path)(error)),
    }
}

fn turn_off(path: &'static str) -> Result<(), NetnsError> {
    match OpenOptions::new().write(true).open(path).and_then(|mut setting| setting.write_all(b"0")) {
        // A kernel without IPv6.
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(NetnsError::Dad { path, cause }),
        _ => Ok(()),
    }
}

fn enter(netns: &OwnedFd, path: &Path) -> Result<(), NetnsError> {
    #[expect(clippy::disallowed_methods, reason = "the one place that may switch namespace")]
    setns(netns.as_fd(), CloneFlags::CLONE_NEWNET).map_err(|errno| step("enter", path)(errno.into()))
}

/// Makes sure that `dir` is there and is a shared mount, as `ip netns` makes it: so namespaces that are mounted in it
/// are seen, and go, in every mount namespace of the node (CNI plugins', kubelet's, an administrator's).
///
/// Called once at the start: it walks over every namespace that is mounted there, with the lock of all mounts held.
pub(crate) fn share(dir: &Path) -> Result<(), NetnsError> {
    let share = || mount(None::<&str>, dir, None::<&str>, MsFlags::MS_SHARED | MsFlags::MS_REC, None::<&str>);
    match share() {
        Ok(()) => return Ok(()),
        Err(Errno::ENOENT) => {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(step("create", dir))?;
        }
        Err(Errno::EINVAL) => {} // not a mount point yet
        Err(errno) => return Err(step("share", dir)(errno.into())),
    }
    // Two that come first at once must not mount twice, `ip netns` included, which takes the same lock.
    let file = fs::File::open(dir).map_err(step("open", dir))?;
    let _lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| step("lock", dir)(errno.into()))?;
    if share().is_ok() {
        return Ok(());
    }
    mount(Some(dir), dir, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .and_then(|()| share())
        .map_err(|errno| step("make a shared mount of", dir)(errno.into()))
}

fn step(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> NetnsError {
    let path = path.to_owned();
    move |cause| NetnsError::Step { action, path, cause }
}

#[cfg(test)]
mod tests;
