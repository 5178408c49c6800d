//! File systems in memory, each with one file. One is whole before anybody sees it: kubelet takes what is mounted for done, whether or
//! not the driver came to its end.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use common::Reason;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
};
use vmspec::flexvolume::FILE;

use super::Mounts;

/// Bytes of a file system, and files: the directory, and one in it.
const SIZE: &str = "128k";
const INODES: &str = "2";
/// More than anybody has mounted over another.
const MOST: usize = 16;

/// The kernel's.
#[derive(Debug)]
pub(super) struct Tmpfs;

impl Mounts for Tmpfs {
    fn mount(&self, dir: &Path, description: &[u8]) -> Result<(), Reason> {
        // kubelet asks again for a volume only if nothing is mounted there.
        self.unmount(dir)?;
        make(dir, description).map_err(|cause| {
            Reason::new(format!("file system in memory not mounted at `{}`", dir.display())).with(cause)
        })
    }

    fn unmount(&self, dir: &Path) -> Result<(), Reason> {
        let failed = |cause: io::Error| Reason::new(format!("`{}` not unmounted", dir.display())).with(cause);
        for _ in 0..MOST {
            match umount2(dir, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {}
                // Nothing is mounted there, or nothing is there.
                Err(Errno::EINVAL | Errno::ENOENT) => break,
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        remove_below(dir).map_err(failed)
    }
}

fn make(dir: &Path, description: &[u8]) -> io::Result<()> {
    // A link in its place is not followed.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    std::fs::create_dir_all(dir)?;
    let at = openat(CWD, dir, flags, Mode::empty())?;
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in [("size", SIZE), ("nr_inodes", INODES), ("mode", "0700")] {
        fsconfig_set_string(&context, key, value)?;
    }
    // Kernels before 6.4 have no such word, and may swap it out.
    let _ = fsconfig_set_flag(&context, "noswap");
    fsconfig_create(&context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(&mounted, FILE, flags, Mode::RUSR)?);
    file.write_all(description)?;
    drop(file);
    // Neither kubelet nor anybody else makes directories for a `subPath`, or changes owners.
    fsconfig_set_flag(&context, "ro")?;
    fsconfig_reconfigure(&context)?;
    Ok(move_mount(
        &mounted,
        "",
        &at,
        "",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
    )?)
}

/// Virtlet's own driver wrote the file below its mount, too, for which kubelet cannot remove the directory.
fn remove_below(dir: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let removed = openat(CWD, dir, flags, Mode::empty()).and_then(|dir| unlinkat(dir, FILE, AtFlags::empty()));
    match removed {
        Err(rustix::io::Errno::NOENT) => Ok(()),
        removed => Ok(removed?),
    }
}
