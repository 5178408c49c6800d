//! File systems that are mounted nowhere: a descriptor of their root is all there is of them.
//!
//! Used by [`super::macvtap`]. What is in one is seen by who holds the descriptor and goes with it, so nothing has to be
//! cleaned up after a crash. A sysfs made this way shows the network namespace of the thread that made it. Needs
//! `CAP_SYS_ADMIN`, as entering a namespace does, and Linux 5.2.

use std::io;
use std::os::fd::OwnedFd;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

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
    let name = match kind {
        Kind::Tmpfs => "tmpfs",
        Kind::Sysfs => "sysfs",
    };
    let context = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}
