//! File systems that are mounted nowhere: a descriptor of their root is all there is of them.
//!
//! Used by [`super::macvtap`]. What is in one is seen by who holds the descriptor and goes with it, so nothing has to be
//! cleaned up after a crash. A sysfs made this way shows the network namespace of the thread that made it. Needs
//! `CAP_SYS_ADMIN`, as entering a namespace does, and Linux 5.2.

#![expect(unsafe_code, reason = "fsopen, fsconfig and fsmount, which neither nix nor libc wraps")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;

// `linux/mount.h`
const FSOPEN_CLOEXEC: libc::c_long = 1;
const FSCONFIG_CMD_CREATE: libc::c_long = 6;
const FSMOUNT_CLOEXEC: libc::c_long = 1;

/// Which file system.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// An empty one in memory.
    Tmpfs,
    /// The kernel's devices, with the links of this thread's network namespace.
    Sysfs,
}

/// A new mount, attached to no directory.
pub(crate) fn mount(kind: Kind) -> io::Result<OwnedFd> {
    let name: &CStr = match kind {
        Kind::Tmpfs => c"tmpfs",
        Kind::Sysfs => c"sysfs",
    };
    // SAFETY: points to a terminated string that outlives the call.
    let context = own(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC) })?;
    let none = ptr::null::<libc::c_char>();
    // SAFETY: this command takes neither key nor value, on an open descriptor.
    Errno::result(unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0_i64)
    })?;
    let attributes: libc::c_long = 0;
    // SAFETY: takes numbers, on an open descriptor.
    own(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, attributes) })
}

fn own(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = Errno::result(result)?;
    let fd = i32::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
