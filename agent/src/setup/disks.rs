//! The pod's disks where the pod has them: links to their nodes, or what is on them mounted. A disk is found by its serial, which the
//! kernel tells without anybody's help.
//!
//! All of it may be done again, as of volumes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use nix::mount::mount;
use proto::agent::{ANY_FILE_SYSTEM, Disk, SHARE_DIR};

use super::file_system::{self, Found};
use super::flags;
use super::look::{FOUND, Look};
use super::mountinfo::{self, Mounted};

const DIRECTORY: u32 = 0o755;
/// Of SCSI's page of the serial, before the serial (SPC, "Unit Serial Number VPD page").
const PAGE_HEADER: usize = 4;
/// Where nobody makes files.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// Where the guest shows its disks.
#[derive(Debug)]
pub(super) struct Disks {
    root: PathBuf,
}

impl Disks {
    pub(super) fn of(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Has it seen at its path if the kernel has found it, and the partition that is meant.
    pub(super) fn see(&self, disk: &Disk) -> Result<Look, String> {
        let failed = |error: io::Error| format!("the kernel does not show its disks: {error}");
        let Some(mut name) = self.find(&disk.serial).map_err(failed)? else {
            let seconds = FOUND.as_secs();
            return Ok(Look::NotYet(format!(
                "the kernel has not found it within {seconds} s; the driver of its bus must be in it"
            )));
        };
        // The kernel shows a disk before it has read what is on it.
        if disk.partition != 0 {
            let found = file_system::partition(&self.root.join("sys/block").join(&name), disk.partition);
            let Some(partition) = found.map_err(failed)? else {
                return Ok(Look::NotYet(format!("it has no partition {}", disk.partition)));
            };
            name = partition;
        }
        self.show(disk, &name).map(|()| Look::Seen)
    }

    /// The kernel's name of the disk with this serial.
    fn find(&self, serial: &str) -> io::Result<Option<String>> {
        for entry in fs::read_dir(self.root.join("sys/block"))? {
            let entry = entry?;
            if serial_of(&entry.path()).is_some_and(|found| found == serial.as_bytes()) {
                return Ok(Some(entry.file_name().to_string_lossy().into_owned()));
            }
        }
        Ok(None)
    }

    fn show(&self, disk: &Disk, name: &str) -> Result<(), String> {
        check(Path::new(&disk.path))?;
        let node = Path::new("/dev").join(name);
        let path = self.root.join(disk.path.trim_start_matches('/'));
        match disk.file_system.as_str() {
            "" => link(&node, &path),
            ANY_FILE_SYSTEM => {
                let Found { device, kind } = file_system::find(&self.root, name)?;
                mount_at(disk, kind, &Path::new("/dev").join(device), &path)
            }
            kind => mount_at(disk, kind, &node, &path),
        }
    }
}

/// What a disk says of its serial: virtio's own file, or the page of SCSI, which disks on SATA have as well.
fn serial_of(disk: &Path) -> Option<Vec<u8>> {
    let of_virtio = fs::read(disk.join("serial")).ok();
    let text = of_virtio.or_else(|| Some(fs::read(disk.join("device/vpd_pg80")).ok()?.get(PAGE_HEADER..)?.to_vec()))?;
    Some(text.trim_ascii().to_vec())
}

fn check(path: &Path) -> Result<(), String> {
    let is_plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !is_plain || path.components().nth(1).is_none() {
        return Err("the path is not absolute, has a `..` in it, or is the whole root file system".into());
    }
    if KERNELS.iter().any(|dir| path.starts_with(dir)) || path == Path::new("/dev") {
        return Err("the path is the guest's kernel's".into());
    }
    let share = Path::new(SHARE_DIR);
    if share.starts_with(path) || path.starts_with(share) {
        return Err("the path would hide where volumes come from".into());
    }
    Ok(())
}

/// Another link is replaced: it is of an earlier boot, in which the disk had another name.
fn link(node: &Path, path: &Path) -> Result<(), String> {
    // The pod's name of the disk may be the kernel's own.
    if path == node {
        return Ok(());
    }
    let text = |what: &str, error: io::Error| format!("{what}: {error}");
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            if fs::read_link(path).is_ok_and(|leads| leads == node) {
                return Ok(());
            }
            fs::remove_file(path).map_err(|error| text("failed to remove the link that is there", error))?;
        }
        Ok(_) => return Err("something else is there; take another path".into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(text("failed to look at it", error)),
    }
    make_dir(path.parent().unwrap_or(Path::new("/")))?;
    symlink(node, path).map_err(|error| text("failed to make the link", error))
}

fn mount_at(disk: &Disk, kind: &str, node: &Path, path: &Path) -> Result<(), String> {
    make_dir(path)?;
    let target = path.canonicalize().map_err(|error| format!("failed to resolve it: {error}"))?;
    check(&target).map_err(|why| format!("it leads to `{}`: {why}", target.display()))?;
    let all = mountinfo::read().map_err(|error| error.to_string())?;
    let number =
        fs::read_to_string(Path::new("/sys/class/block").join(node.file_name().unwrap_or_default()).join("dev"));
    let is_it = |one: &Mounted, number: &str| one.point == target && one.device == number.trim();
    let flags = flags::of(disk.read_only, disk.options);
    if let Some(done) = number.ok().and_then(|number| mountinfo::seen(&all, |one| is_it(one, &number))) {
        return if done.flags.contains(flags) { Ok(()) } else { flags::hold(&target, done.flags | flags, flags) };
    }
    let nothing: Option<&str> = None;
    mount(Some(node), &target, Some(kind), flags, nothing)
        .map_err(|errno| format!("failed to mount its file system, {kind}: {}", io::Error::from(errno)))
}

fn make_dir(dir: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir);
    made.map_err(|error| format!("failed to make `{}`: {error}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks() -> (tempfile::TempDir, Disks) {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join("sys/block").join(path);
        for dir in ["vda", "vdb/vdb2", "vdb/queue", "sdc/device", "loop0"] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("vda/serial"), "root").unwrap();
        fs::write(at("vdb/serial"), "data\n").unwrap();
        fs::write(at("vdb/vdb2/partition"), "2\n").unwrap();
        fs::write(at("sdc/device/vpd_pg80"), b"\0\x80\0\x05  big").unwrap();
        let disks = Disks::of(root.path());
        (root, disks)
    }

    fn wanted(serial: &str, path: &str) -> Disk {
        Disk { serial: serial.into(), path: path.into(), ..Disk::default() }
    }

    #[test]
    fn a_disk_is_found_by_its_serial_on_each_bus() {
        let (_root, disks) = disks();
        for (serial, name) in
            [("root", Some("vda")), ("data", Some("vdb")), ("big", Some("sdc")), ("da", None), ("", None)]
        {
            assert_eq!(disks.find(serial).unwrap().as_deref(), name, "{serial}");
        }
    }

    #[test]
    fn a_link_to_the_disk_is_made_and_made_anew() {
        let (root, disks) = disks();
        for _again in 0..2 {
            assert_eq!(disks.see(&wanted("data", "/dev/pvc/data")), Ok(Look::Seen));
            assert_eq!(fs::read_link(root.path().join("dev/pvc/data")).unwrap(), Path::new("/dev/vdb"));
        }
        assert_eq!(disks.see(&wanted("big", "/dev/pvc/data")), Ok(Look::Seen));
        assert_eq!(fs::read_link(root.path().join("dev/pvc/data")).unwrap(), Path::new("/dev/sdc"));
        fs::write(root.path().join("dev/file"), "").unwrap();
        let why = disks.see(&wanted("data", "/dev/file")).unwrap_err();
        assert_eq!(why, "something else is there; take another path");
    }

    #[test]
    fn paths_that_no_disk_may_have_are_refused() {
        for path in ["", "dev/x", "/", "/dev", "/dev/../x", "/proc/x", "/sys", "/run/virtlet", "/run/virtlet/share/1"] {
            assert!(check(Path::new(path)).is_err(), "{path}");
        }
        assert_eq!(check(Path::new("/dev/x")), Ok(()));
        assert_eq!(check(Path::new("/srv")), Ok(()));
    }

    #[test]
    fn a_disk_that_is_not_there_may_come_yet() {
        let (_root, disks) = disks();
        let why = "the kernel has not found it within 10 s; the driver of its bus must be in it";
        assert_eq!(disks.see(&wanted("none", "/dev/x")), Ok(Look::NotYet(why.into())));
    }

    #[test]
    fn a_partition_is_found_by_its_number() {
        let (root, disks) = disks();
        let of = |partition| disks.see(&Disk { partition, ..wanted("data", "/dev/x") });
        assert_eq!(of(2), Ok(Look::Seen));
        assert_eq!(fs::read_link(root.path().join("dev/x")).unwrap(), Path::new("/dev/vdb2"));
        assert_eq!(of(1), Ok(Look::NotYet("it has no partition 1".into())));
    }
}
