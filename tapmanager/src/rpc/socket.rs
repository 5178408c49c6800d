//! Makes the listening sockets, without a moment at which the wrong peer could connect. Called at the daemon's start.
//!
//! The permissions of a socket's file are those of the open socket at bind(2), less the umask: set before, there is no
//! window. The file of an earlier run is replaced; only one daemon runs on a directory, which its lock sees to.

use std::fs;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, chown};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, socket};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::UnixListener;

/// Connections that wait to be accepted, several times what a node starts at once. The kernel's own limit is 4096
/// (`net.core.somaxconn`).
const BACKLOG: i32 = 1024;

/// A socket could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SocketError {
    #[error("failed to {action} socket `{}`", path.display())]
    Step {
        action: &'static str,
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error("`{}` is in the way and is no socket; remove it if nobody needs it", path.display())]
    NoSocket { path: PathBuf },
}

/// [`bind`], watched by the runtime.
pub(crate) fn listen(path: &Path) -> Result<UnixListener, SocketError> {
    UnixListener::from_std(bind(path)?).map_err(|cause| SocketError::Step {
        action: "watch",
        path: path.to_owned(),
        cause,
    })
}

/// Listens at `path`, for root alone (mode 0600). The socket does not block.
pub(crate) fn bind(path: &Path) -> Result<StdListener, SocketError> {
    let failed = |action| move |cause: io::Error| SocketError::Step { action, path: path.to_owned(), cause };
    let os = |action| move |errno: Errno| failed(action)(errno.into());
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(SocketError::NoSocket { path: path.to_owned() }),
        Ok(_) => fs::remove_file(path).map_err(failed("replace"))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed("look for")(error)),
    }
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).map_err(os("make"))?;
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(os("close to others"))?;
    let address = UnixAddr::new(path).map_err(os("name"))?;
    nix::sys::socket::bind(socket.as_raw_fd(), &address).map_err(os("bind"))?;
    let backlog = Backlog::new(BACKLOG).map_err(os("listen on"))?;
    nix::sys::socket::listen(&socket, backlog).map_err(os("listen on"))?;
    Ok(StdListener::from(socket))
}

/// Opens the socket at `path` to root and to the group `gid` (mode 0660).
pub(crate) fn open_to_group(path: &Path, gid: u32) -> Result<(), SocketError> {
    let failed = |action| move |cause: io::Error| SocketError::Step { action, path: path.to_owned(), cause };
    // The owner first: at no time is it open to the group that it had before.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed("close"))?;
    chown(path, Some(0), Some(gid)).map_err(failed("give to QEMU's group"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660)).map_err(failed("open to QEMU's group"))
}
