//! The virtio-serial port. `poll` tells how it is, and goes on telling that the host is gone; that it is back, the kernel says by
//! `SIGIO`, if it is asked to.
#![expect(unsafe_code, reason = "nix has no F_SETOWN and no F_SETFL of other flags than it knows")]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::getpid;
use proto::agent::PORT;

use crate::arrivals::Arrivals;

const PORTS: &str = "/sys/class/virtio-ports";
/// How late our port may come: the gate is early in a boot, in which udev may not have loaded virtio_console yet. A machine without the
/// port boots on after this.
const LATE: Duration = Duration::from_secs(5);

/// The port, opened.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) file: File,
}

impl Port {
    /// Opens our port. udev's names are not everywhere, so the kernel's are looked through.
    pub(crate) fn find() -> io::Result<Self> {
        Self::of(open(PORT)?)
    }

    /// As [`Port::find`], of a kernel that may not have found it yet.
    pub(crate) fn wait() -> io::Result<Self> {
        let deadline = Instant::now() + LATE;
        // Before the first look, so that none is missed. The kernel tells of a port's name, too, which it has after the port.
        let arrivals = Arrivals::listen()?;
        loop {
            let found = Self::find();
            if found.is_ok() || !arrivals.wait(deadline)? {
                return found;
            }
        }
    }

    /// Takes what is open already.
    pub(crate) fn of(file: File) -> io::Result<Self> {
        // SAFETY: only sets who is told of this descriptor.
        let owner = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETOWN, getpid().as_raw()) };
        if owner < 0 {
            return Err(io::Error::last_os_error());
        }
        let port = Self { file };
        port.signal(false)?;
        Ok(port)
    }

    /// Has the kernel send `SIGIO` when the host comes, or not: it would also send one for each piece of data.
    pub(crate) fn signal(&self, on: bool) -> io::Result<()> {
        let flags = libc::O_NONBLOCK | if on { libc::O_ASYNC } else { 0 };
        // SAFETY: only sets flags of this descriptor; `SIGIO` is blocked and read from a descriptor.
        let set = unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, flags) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Whether the host is gone.
    pub(crate) fn is_alone(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.as_fd(), PollFlags::empty())];
        poll(&mut fds, PollTimeout::ZERO)?;
        let [port] = fds;
        Ok(port.revents().is_some_and(|seen| seen.contains(PollFlags::POLLHUP)))
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the port of this name.
pub(crate) fn open(name: &str) -> io::Result<File> {
    let path = Path::new("/dev").join(find(Path::new(PORTS), name)?);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("`{}` not opened: {error}", path.display()));
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(&path).map_err(named)
}

fn find(ports: &Path, wanted: &str) -> io::Result<String> {
    for entry in fs::read_dir(ports).into_iter().flatten().flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim_end() == wanted {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let what = format!(
        "no virtio-serial port `{wanted}` in `{}`; is this a VM of virtlet, and virtio_console loaded?",
        ports.display()
    );
    Err(io::Error::new(io::ErrorKind::NotFound, what))
}
