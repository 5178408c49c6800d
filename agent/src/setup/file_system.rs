//! What is on a disk of which nobody says what it is: an image that is a volume. It has a file system or, where a partition table is on it,
//! one on its first partition.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where a file system says what it is, what it says, and the kernel's name of it.
const SIGNATURES: [(u64, &[u8], &str); 11] = [
    (0, b"XFSB", "xfs"),
    (65600, b"_BHRfS_M", "btrfs"),
    (0, b"hsqs", "squashfs"),
    (1024, b"\xe2\xe1\xf5\xe0", "erofs"),
    (1024, b"\x10\x20\xf5\xf2", "f2fs"),
    (32769, b"CD001", "iso9660"),
    (54, b"FAT1", "vfat"),
    (82, b"FAT32", "vfat"),
    (3, b"EXFAT   ", "exfat"),
    (3, b"NTFS    ", "ntfs3"),
    // Two bytes in the middle of what others have there: last.
    (1080, b"\x53\xef", "ext4"),
];

/// A file system on a disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The kernel's name of the device that it is on: the disk's, or its first partition's.
    pub(super) device: String,
    pub(super) kind: &'static str,
}

/// The file system of the disk that the kernel calls `name`, by `sys/block` and `dev` below `root`.
pub(super) fn find(root: &Path, name: &str) -> Result<Found, String> {
    let node = |name: &str| root.join("dev").join(name);
    let failed = |at: &Path, error: io::Error| format!("failed to read `{}`: {error}", at.display());
    // An open waits for the kernel, which looks for partitions while programs run already.
    let disk = File::open(node(name)).map_err(|error| failed(&node(name), error))?;
    let sys = root.join("sys/block").join(name);
    let first = partition(&sys, 1).map_err(|error| failed(&sys, error))?;
    let (device, file) = match first {
        Some(first) => {
            let file = File::open(node(&first)).map_err(|error| failed(&node(&first), error))?;
            (first, file)
        }
        None => (name.to_owned(), disk),
    };
    match signature(&file).map_err(|error| failed(&node(&device), error))? {
        Some(kind) => Ok(Found { device, kind }),
        None => Err(format!("there is no file system on `{device}` that is known here")),
    }
}

/// The kernel's name of a partition, by the number that it has on the disk with this directory in `/sys/block`.
pub(super) fn partition(disk: &Path, number: u16) -> io::Result<Option<String>> {
    let number = number.to_string();
    for entry in fs::read_dir(disk)? {
        let entry = entry?;
        if fs::read_to_string(entry.path().join("partition")).is_ok_and(|found| found.trim() == number) {
            return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}

fn signature(file: &File) -> io::Result<Option<&'static str>> {
    for (at, bytes, kind) in SIGNATURES {
        let mut found = vec![0; bytes.len()];
        match file.read_exact_at(&mut found, at) {
            Ok(()) if found == bytes => return Ok(Some(kind)),
            Ok(()) => {}
            // A disk that ends before.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, impl Fn(&str, u64, &[u8])) {
        let root = tempfile::tempdir().unwrap();
        for dir in ["sys/block/vdb/vdb1", "sys/block/vdb/vdb14", "sys/block/vdb/queue", "sys/block/vdc", "dev"] {
            fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        for (file, text) in [("vdb/vdb1/partition", "1\n"), ("vdb/vdb14/partition", "14\n")] {
            fs::write(root.path().join("sys/block").join(file), text).unwrap();
        }
        for node in ["vdb", "vdb1", "vdc"] {
            File::create(root.path().join("dev").join(node)).unwrap();
        }
        let dev = root.path().join("dev");
        let write = move |node: &str, at: u64, bytes: &[u8]| {
            File::options().write(true).open(dev.join(node)).unwrap().write_all_at(bytes, at).unwrap();
        };
        (root, write)
    }

    #[test]
    fn it_is_found_on_the_first_partition_or_else_on_the_disk() {
        let (root, write) = disk();
        // What is before the first partition is no file system.
        write("vdb", 0, b"XFSB");
        write("vdb1", 1080, b"\x53\xef");
        write("vdc", 65600, b"_BHRfS_M");
        assert_eq!(find(root.path(), "vdb"), Ok(Found { device: "vdb1".into(), kind: "ext4" }));
        assert_eq!(find(root.path(), "vdc"), Ok(Found { device: "vdc".into(), kind: "btrfs" }));
    }

    #[test]
    fn what_is_none_is_told() {
        let (root, write) = disk();
        write("vdc", 0, &[1; 70_000]);
        assert_eq!(find(root.path(), "vdc").unwrap_err(), "there is no file system on `vdc` that is known here");
        assert!(find(root.path(), "vdd").unwrap_err().contains("dev/vdd"));
    }
}
