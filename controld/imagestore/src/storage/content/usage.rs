//! How much of its file system the store uses.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use nix::errno::Errno;

use super::allocated;
use super::disk::{Dir, Disk, DiskError, errno_of, is_regular};

/// Space and files of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsUsage {
    /// Where the file system that holds the store is mounted.
    pub mountpoint: PathBuf,
    /// Bytes that image files take, those of running downloads included.
    pub used_bytes: u64,
    /// How many such files there are.
    pub inodes: u64,
}

pub(crate) fn usage(disk: &Disk) -> Result<FsUsage, DiskError> {
    let mut used_bytes = 0;
    // A file that has two names for a moment is one.
    let mut seen = BTreeSet::new();
    for dir in [&disk.data, &disk.partial] {
        for name in dir.names()? {
            // A download may end in between.
            let Some(stat) = dir.stat(&name)?.filter(is_regular) else { continue };
            if seen.insert((stat.st_dev, stat.st_ino)) {
                used_bytes += allocated(&stat);
            }
        }
    }
    Ok(FsUsage { mountpoint: mountpoint(&disk.root)?, used_bytes, inodes: seen.len() as u64 })
}

/// Bytes that may still be written. `None` if the file system does not count them.
pub(crate) fn free(disk: &Disk) -> Result<Option<u64>, DiskError> {
    let stat = nix::sys::statvfs::fstatvfs(disk.data.fd()).map_err(|cause| disk.data.failed("examine", "", cause))?;
    Ok((stat.blocks() > 0).then(|| stat.blocks_available() * stat.fragment_size()))
}

/// Bytes that are left free: so many, or a twentieth of a small file system.
pub(crate) fn reserve(disk: &Disk, most: u64) -> u64 {
    let whole = nix::sys::statvfs::fstatvfs(disk.data.fd()).map(|stat| stat.blocks() * stat.fragment_size());
    most.min(whole.unwrap_or(0) / 20)
}

/// The kernel tells the mount of an open descriptor, and lists the mounts with their ids.
fn mountpoint(root: &Dir) -> Result<PathBuf, DiskError> {
    let read = |path: &str| {
        std::fs::read_to_string(path).map_err(|error| DiskError::Os {
            action: "read",
            path: path.into(),
            cause: errno_of(&error),
        })
    };
    let info = read(&format!("/proc/self/fdinfo/{}", root.fd().as_raw_fd()))?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")).map(str::trim);
    let mounts = read("/proc/self/mountinfo")?;
    // Fields of a line: id, parent, device, root within the file system, mount point, ...
    let found = mounts.lines().map(|line| line.split(' ')).find_map(|mut fields| {
        let this = fields.next();
        (this.is_some() && this == id).then(|| fields.nth(3)).flatten().map(unescaped)
    });
    found.ok_or_else(|| root.failed("find the mount of", "", Errno::ENOENT))
}

/// mountinfo writes blanks, tabs, line ends and backslashes as three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 4).filter(|_| byte == b'\\');
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                at += 4;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_unescaped() {
        let cases = [
            ("/a/b", "/a/b"),
            ("/a\\040b\\134", "/a b\\"),
            ("/a\\04", "/a\\04"),
            ("/a\\", "/a\\"),
            ("/ä\\011", "/ä\t"),
        ];
        for (text, expected) in cases {
            assert_eq!(unescaped(text), PathBuf::from(expected));
        }
    }
}
