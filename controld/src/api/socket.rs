//! Makes the socket that kubelet connects to. Called at the daemon's start.
//!
//! The permissions of a socket's file are those of the open socket at bind(2), less the umask: set before, there is no
//! moment at which somebody else could connect. Only one daemon serves a path, which [`lock`] sees to: the socket is there before
//! the database, whose lock would notice too late.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::UnixListener;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

/// The socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("failed to {action} CRI socket `{}`", path.display())]
pub struct SocketError {
    action: &'static str,
    path: PathBuf,
    #[source]
    cause: io::Error,
}

/// Keeps other daemons off a socket as long as it lives.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "closed on drop, which ends the lock")] fs::File);

/// There is another daemon on the socket.
#[derive(Debug, thiserror::Error)]
#[error("another controld serves `{}`; stop it, or set another `run_dir` or `cri_socket`", path.display())]
pub struct Taken {
    path: PathBuf,
}

/// Makes sure that nobody serves the socket at `path`, by a lock on a file beside it. The lock ends with the process, however
/// that ends.
///
/// # Errors
/// [`Taken`], or when the file cannot be made.
pub fn lock(path: &Path) -> anyhow::Result<Lock> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let failed = |cause| SocketError { action: "lock", path: path.to_owned(), cause };
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(Taken { path: path.to_owned() }.into()),
        Err(TryLockError::Error(cause)) => Err(failed(cause).into()),
    }
}

/// Takes the socket at `path`, for root alone (mode 0600), and replaces what a dead daemon left there.
///
/// # Errors
/// When the path is taken by something that is no socket, or cannot be bound.
pub fn open(path: &Path) -> Result<UnixListener, SocketError> {
    let failed = |action| move |cause: io::Error| SocketError { action, path: path.to_owned(), cause };
    let os = |action| move |errno: Errno| failed(action)(errno.into());
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(failed("replace"))?,
        Ok(_) => return Err(failed("replace what is not a socket at")(io::ErrorKind::AlreadyExists.into())),
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(failed("look for")(cause)),
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(os("make"))?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(os("close to others"))?;
    let address = UnixAddr::new(path).map_err(os("name"))?;
    bind(socket.as_raw_fd(), &address).map_err(os("bind"))?;
    let backlog = Backlog::new(BACKLOG).map_err(os("listen on"))?;
    listen(&socket, backlog).map_err(os("listen on"))?;
    UnixListener::from_std(StdListener::from(socket)).map_err(failed("watch"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn it_is_roots_alone_from_its_first_moment() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("cri.sock");
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK).expect("inotify");
        let told = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_ATTRIB;
        inotify.add_watch(dir.path(), told).expect("watched");
        let _listener = open(&path).expect("made");
        let events: Vec<_> = inotify.read_events().expect("events").into_iter().map(|event| event.mask).collect();
        assert_eq!(events, [AddWatchFlags::IN_CREATE], "its mode is not changed once others may connect");
        assert_eq!(mode(&path), 0o600);
    }

    #[tokio::test]
    async fn a_second_daemon_does_not_take_the_socket_of_the_first() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("cri.sock");
        let held = lock(&path).expect("free");
        let error = lock(&path).expect_err("held");
        assert!(error.is::<Taken>(), "{error}");
        drop(held);
        lock(&path).expect("free again");
    }

    #[tokio::test]
    async fn what_a_dead_daemon_left_is_replaced_and_nothing_else() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("cri.sock");
        drop(StdListener::bind(&path).expect("left"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("opened");
        let _listener = open(&path).expect("made");
        assert_eq!(mode(&path), 0o600);
        std::os::unix::net::UnixStream::connect(&path).expect("it listens");

        let file = dir.path().join("file");
        fs::write(&file, "precious").expect("written");
        let error = open(&file).expect_err("no socket");
        assert!(error.to_string().starts_with("failed to replace what is not a socket at"), "{error}");
        assert_eq!(fs::read_to_string(&file).expect("read"), "precious");
    }
}
