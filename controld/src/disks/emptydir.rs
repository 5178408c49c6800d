//! Disks of machines that are files in emptyDirs: made once, for the first container of a pod, and removed by kubelet with the directory.
//!
//! A file gets its name when there is a file system on it, so that what has the name is whole, and what has none goes with its maker. Others
//! may write to the directory: nothing in it is followed, removed or written to by a name. The file stays root's: QEMU's user does not come
//! to kubelet's directories, so each start opens the file here and hands the descriptor to libvirt.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::off_reactor;
use nix::libc::{O_DIRECT, O_NOFOLLOW, O_NONBLOCK};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstatfs, linkat, openat};
use rustix::io::Errno;
use tokio::process::Command;
use tokio::time::{Instant, timeout_at};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{DescribedDisk, Disk, DiskFile, FileSystem, Hardware};

use crate::files::{io_failed, look};
use crate::model::domain::{AsyncIo, DiskNow, group_of};

/// Of all of a machine's; 1 TiB takes a twentieth of a second where the disk is idle.
const MKFS_DEADLINE: Duration = Duration::from_secs(60);
/// What statfs(2) says of a file system in memory (`linux/magic.h`).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Makes those files that are not there.
///
/// # Errors
/// When one cannot be made, or what is there is no file.
pub(crate) async fn make(disks: &[Disk]) -> Result<()> {
    let deadline = Instant::now() + MKFS_DEADLINE;
    for disk in disks {
        let Some(file) = disk.source.file() else { continue };
        let (looked_at, serial) = (file.clone(), disk.serial.clone());
        let failed = move |cause| {
            let what = format!("disk of volume `{serial}` not made");
            let kind = if crate::store::is_disk_full(&cause) { Kind::Exhausted } else { Kind::State };
            Error::because(kind, what, cause)
        };
        let half = look(move || Ok(begin(&looked_at))).await?.map_err(&failed)?;
        let Some(half) = half else { continue };
        if let Some(kind) = file.file_system {
            mkfs(kind, &half.file, deadline).await?;
        }
        off_reactor(move || half.finish()).await.map_err(failed)?;
    }
    Ok(())
}

/// A file that has no name yet.
#[derive(Debug)]
pub(crate) struct Half {
    file: File,
    /// Where it belongs.
    dir: File,
}

/// A file of holes, as large as the disk, unless the disk is there. Blocks.
///
/// # Errors
/// When it cannot be made, or what is there is no file.
pub(crate) fn begin(file: &DiskFile) -> io::Result<Option<Half>> {
    match open(&file.path(), 0, true) {
        Ok(_) => return Ok(None),
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => {}
        Err(cause) => return Err(cause),
    }
    let dir = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = File::from(openat(CWD, &file.dir, dir | OFlags::RDONLY, Mode::empty())?);
    if file.file_system == Some(FileSystem::Xfs) && fstatfs(&dir)?.f_type == TMPFS_MAGIC {
        // Its log is written in full, to memory that is this daemon's.
        return Err(io::Error::other("xfs is not made in memory; choose ext4"));
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let made = match openat(&dir, ".", flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            return Err(io::Error::other(
                "the file system of the node's emptyDirs makes no files without a name (O_TMPFILE)",
            ));
        }
        made => File::from(made?),
    };
    // A file that is written at random is in pieces soon where each write is to a new place. Only btrfs takes that back, and only
    // of an empty file.
    without_copies(&made);
    made.set_len(file.size)?;
    Ok(Some(Half { file: made, dir }))
}

/// A new file that is written at random is to stay in one piece, if its file system can.
pub(super) fn without_copies(file: &File) {
    if let Ok(flags) = rustix::fs::ioctl_getflags(file) {
        // What this file system does not know, it does without.
        let _ = rustix::fs::ioctl_setflags(file, flags | rustix::fs::IFlags::NOCOW);
    }
}

impl Half {
    /// The file, to be written to.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Flushes it and gives it its name. Blocks.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        let made = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match linkat(CWD, made, &self.dir, DiskFile::NAME, AtFlags::SYMLINK_FOLLOW) {
            // Another call for this pod was first, and one is as good as the other.
            Err(Errno::EXIST) => {}
            linked => linked?,
        }
        self.dir.sync_all()
    }
}

async fn mkfs(kind: FileSystem, file: &File, deadline: Instant) -> Result<()> {
    // Nothing is on it, so nothing is discarded, and what is not used is written when it is first used.
    let (program, words, package): (_, &[&str], _) = match kind {
        FileSystem::Ext4 => {
            ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=1,root_owner=0:0"], "e2fsprogs")
        }
        FileSystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"], "xfsprogs"),
    };
    let file = file.try_clone().map_err(|cause| io_failed("descriptor for mkfs not made", cause))?;
    let mut command = Command::new(program);
    command.args(words).arg("/proc/self/fd/0").stdin(Stdio::from(file));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let output = match timeout_at(deadline, command.output()).await {
        Err(_elapsed) => {
            let what = format!("{program} for all of the pod's disks did not end within {} s", MKFS_DEADLINE.as_secs());
            return Err(Error::new(Kind::Deadline, what));
        }
        Ok(Err(absent)) if absent.kind() == io::ErrorKind::NotFound => {
            let what =
                format!("this node has no {program} for disks of the pod's volumes; install package `{package}`");
            return Err(Error::because(Kind::State, what, absent));
        }
        Ok(ran) => ran.map_err(|cause| io_failed("mkfs not started", cause))?,
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().last().unwrap_or("no reason given");
    let kind = if said.contains("No space left on device") { Kind::Exhausted } else { Kind::Internal };
    Err(Error::new(kind, format!("{program} failed: {said}")))
}

/// How a disk is used in a start that is now. Blocks.
///
/// # Errors
/// When it is not there any more.
pub(crate) fn now(file: &DiskFile, io: AsyncIo) -> io::Result<DiskNow> {
    let (_, is_direct) = open_for_qemu(&file.path(), false, None)?;
    Ok(DiskNow { io: if is_direct { io } else { AsyncIo::Threads }, sectors: None })
}

/// Files of a machine's disks for libvirt, by the names that its description has for them. Blocks.
///
/// # Errors
/// When one is not there any more, or its pod wants it read past a cache that is all that its file system has.
pub(crate) fn opened(disks: &[Disk], hardware: &Hardware) -> Result<Vec<(String, File)>> {
    let open = |disk: &Disk| {
        let file = disk.source.file()?;
        let said = hardware.said_of(&disk.name).and_then(DescribedDisk::is_direct);
        let opened = open_for_qemu(&file.path(), disk.read_only, said);
        let opened = opened.map_err(|cause| match (said, cause.kind()) {
            (Some(true), io::ErrorKind::InvalidInput) => {
                let what = "has cache `none` or io `native`, which the file system of its volume cannot";
                Error::because(Kind::Invalid, format!("disk `{}` {what}", disk.name), cause)
            }
            _ => Error::because(Kind::State, gone(&disk.path), cause),
        });
        Some(opened.map(|(opened, _)| (group_of(disk), opened)))
    };
    disks.iter().filter_map(open).collect()
}

/// Past the node's cache, if its file system can: QEMU takes a descriptor only with the flags by which it would have opened the file. One
/// in memory has nothing that could be read past its cache.
pub(super) fn open_for_qemu(path: &Path, read_only: bool, said: Option<bool>) -> io::Result<(File, bool)> {
    if said == Some(false) {
        return Ok((open(path, 0, read_only)?, false));
    }
    match open(path, O_DIRECT, read_only) {
        Ok(opened) => Ok((opened, true)),
        Err(cause) if cause.kind() == io::ErrorKind::InvalidInput && said.is_none() => {
            Ok((open(path, 0, read_only)?, false))
        }
        Err(cause) => Err(cause),
    }
}

/// What is said of a disk whose file is not there.
pub(crate) fn gone(path: &str) -> String {
    format!("the disk of the volume at `{path}` cannot be opened")
}

/// Nothing but a file: what is in the directory is the pod's. Blocks.
///
/// # Errors
/// The kernel's, or when it is no file.
pub(crate) fn open(path: &Path, flags: i32, read_only: bool) -> io::Result<File> {
    let flags = O_NOFOLLOW | O_NONBLOCK | flags;
    let file = OpenOptions::new().read(true).write(!read_only).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("`{}` is no file", path.display())));
    }
    // That was for a pipe, at which an open waits. QEMU's requests are to wait.
    let flags = rustix::fs::fcntl_getfl(&file)?;
    rustix::fs::fcntl_setfl(&file, flags - rustix::fs::OFlags::NONBLOCK)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};

    use vmspec::MountOptions;
    use vmspec::plan::{DiskSource, Serial};

    use super::*;

    fn disk(dir: &Path, file_system: Option<FileSystem>) -> Disk {
        let file = DiskFile { dir: dir.to_owned(), size: 32 << 20, file_system };
        Disk {
            name: String::new(),
            serial: Serial::of_name("scratch"),
            source: DiskSource::File(file),
            path: "/scratch".into(),
            read_only: false,
            options: MountOptions::default(),
        }
    }

    #[tokio::test]
    async fn a_disk_is_made_once_and_whole() {
        let dir = tempfile::tempdir().expect("tempdir");
        make(&[disk(dir.path(), Some(FileSystem::Ext4))]).await.expect("made");
        let made = fs::metadata(dir.path().join("disk.img")).expect("there");
        assert_eq!((made.len(), made.permissions().mode() & 0o777), (32 << 20, 0o600));
        assert!(made.blocks() * 512 < 8 << 20, "{} blocks", made.blocks());
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        make(&[Disk { read_only: true, ..disk(dir.path(), None) }]).await.expect("there");
        assert_eq!(fs::metadata(dir.path().join("disk.img")).expect("there").ino(), made.ino());
        let DiskSource::File(file) = disk(dir.path(), None).source else { panic!("a file") };
        now(&file, AsyncIo::IoUring).expect("opened");
        let mut hardware = Hardware::default();
        let opened = opened(&[disk(dir.path(), None)], &hardware).expect("opened");
        let flags = rustix::fs::fcntl_getfl(&opened[0].1).expect("flags");
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{flags:?}");
        assert_eq!(opened[0].0, "disk-scratch");
        // QEMU compares the descriptor's flags with what the description says.
        let name = disk(dir.path(), None).name;
        let said = DescribedDisk { cache: Some(vmspec::plan::DiskCache::Writeback), ..DescribedDisk::default() };
        hardware.described.disks.insert(name, said);
        let cached = super::opened(&[disk(dir.path(), None)], &hardware).expect("opened");
        let flags = rustix::fs::fcntl_getfl(&cached[0].1).expect("flags");
        assert!(!flags.contains(rustix::fs::OFlags::DIRECT), "{flags:?}");
    }

    #[tokio::test]
    async fn file_systems_are_those_that_pods_name() {
        // Magic numbers and their places, as libblkid has them.
        for (kind, at, magic) in [(FileSystem::Ext4, 0x438, b"\x53\xef".as_slice()), (FileSystem::Xfs, 0, b"XFSB")] {
            let dir = tempfile::tempdir().expect("tempdir");
            let mut disk = disk(dir.path(), Some(kind));
            let DiskSource::File(file) = &mut disk.source else { panic!("a file") };
            file.size = 320 << 20;
            make(&[disk]).await.expect("its tools are installed (packages e2fsprogs and xfsprogs)");
            let mut found = vec![0; magic.len()];
            fs::File::open(dir.path().join("disk.img")).expect("made").read_exact_at(&mut found, at).expect("read");
            assert_eq!(found, magic, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn of_two_calls_at_once_one_makes_it() {
        let dir = tempfile::tempdir().expect("tempdir");
        let DiskSource::File(file) = disk(dir.path(), None).source else { panic!("a file") };
        let halves = [(); 2].map(|()| begin(&file).expect("begun").expect("not there"));
        for half in halves {
            half.finish().expect("there");
        }
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
    }

    #[tokio::test]
    async fn a_directory_that_is_a_link_is_not_followed() {
        let (dir, other) = (tempfile::tempdir().expect("tempdir"), tempfile::tempdir().expect("tempdir"));
        let link = dir.path().join("link");
        symlink(other.path(), &link).expect("linked");
        make(&[disk(&link, None)]).await.expect_err("a link");
        assert_eq!(fs::read_dir(other.path()).expect("listed").count(), 0);
    }

    #[tokio::test]
    async fn what_is_no_file_is_left_alone() {
        let dir = tempfile::tempdir().expect("tempdir");
        symlink("/dev/null", dir.path().join("disk.img")).expect("linked");
        make(&[disk(dir.path(), None)]).await.expect_err("a link");
        fs::remove_file(dir.path().join("disk.img")).expect("removed");
        fs::create_dir(dir.path().join("disk.img")).expect("made");
        make(&[disk(dir.path(), None)]).await.expect_err("a directory");
        let gone = make(&[disk(&dir.path().join("gone"), None)]).await.expect_err("no directory");
        assert_eq!(gone.kind(), Kind::State);
    }
}
