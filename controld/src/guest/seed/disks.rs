//! Disks with files of the pod's volumes, which are made at each start. They lie where seeds do, and as long: QEMU has them open once it
//! runs, so what is secret is in memory alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use common::Chain;
use proto::tap::QemuUser;
use vmspec::MachineId;
use vmspec::draft::files_disks::MAX_FILES_DISKS;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Disk, FilesDisk};
use vmspec::seed::MAX_SEED;

use super::{volume, write_private};
use crate::config::Config;
use crate::files::{io_failed, remove};

/// Where such disks of a machine may lie.
pub(super) fn paths(config: &Config, machine: MachineId) -> impl Iterator<Item = PathBuf> {
    let dir = config.run_dir.join("seed");
    suffixes().map(move |suffix| dir.join(format!("{machine}{suffix}")))
}

/// What their files' names have behind the machine's id.
pub(crate) fn suffixes() -> impl Iterator<Item = String> {
    (0..MAX_FILES_DISKS).map(|nth| format!(".files{nth}.iso"))
}

/// Makes the disks that are of files, for QEMU to read; where each is, by its name. Blocks.
///
/// # Errors
/// When a volume cannot be read, they have too much on them, or cannot be written. What was written then is the caller's to remove.
pub(crate) fn write(
    config: &Config,
    machine: MachineId,
    disks: &[Disk],
    qemu: QemuUser,
) -> Result<BTreeMap<String, PathBuf>> {
    let of_files = disks.iter().filter_map(|disk| Some((disk, disk.source.files()?)));
    let mut left = MAX_SEED;
    let mut written = BTreeMap::new();
    for ((Disk { name, .. }, FilesDisk { volume, label }), path) in of_files.zip(paths(config, machine)) {
        let files = volume::read(volume).map_err(|cause| refused(name, &Chain(&cause).to_string()))?;
        left = left.checked_sub(files.size()).ok_or_else(|| {
            let limit = MAX_SEED >> 20;
            refused(name, &format!("all disks with files together have more than {limit} MiB"))
        })?;
        let image = files.to_iso(label).map_err(|cause| refused(name, &Chain(&cause).to_string()))?;
        let failed = |cause| io_failed("disk with files of a volume not written", cause);
        remove(&path).map_err(failed)?;
        write_private(&path, &image, qemu).map_err(failed)?;
        written.insert(name.clone(), path);
    }
    Ok(written)
}

/// A path of the node is of no use to the pod's user.
fn refused(name: &str, why: &str) -> Error {
    Error::new(Kind::Invalid, format!("disk of the files of volume {name:?} not made: {why}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use vmspec::MountOptions;
    use vmspec::plan::{DiskSource, Serial};

    use super::*;

    #[test]
    fn a_disk_has_the_files_that_its_volume_has_now() {
        let dir = tempfile::tempdir().expect("tempdir");
        let volume = dir.path().join("volume");
        fs::create_dir_all(volume.join("..new")).expect("made");
        fs::create_dir_all(dir.path().join("seed")).expect("made");
        fs::write(volume.join("..new/unattend.xml"), "<hunter2/>").expect("written");
        symlink("..new", volume.join("..data")).expect("linked");
        symlink("..data/unattend.xml", volume.join("unattend.xml")).expect("linked");
        let config = Config { run_dir: dir.path().to_owned(), ..Config::default() };
        let of = |name: &str, volume: PathBuf| Disk {
            name: name.into(),
            serial: Serial::of_name(name),
            source: DiskSource::Files(FilesDisk { volume, label: "sysprep".into() }),
            path: String::new(),
            read_only: true,
            options: MountOptions::default(),
        };
        let (machine, user) = (MachineId::random(), nix::unistd::getuid().as_raw());
        let qemu = QemuUser { uid: user, gid: nix::unistd::getgid().as_raw() };
        for _ in 0..2 {
            let written = write(&config, machine, &[of("sysprep", volume.clone())], qemu);
            if user != 0 {
                // Files are root's.
                return;
            }
            let written = written.expect("written");
            let path = &written["sysprep"];
            assert_eq!(fs::metadata(path).expect("there").mode() & 0o777, 0o640);
            let bytes = fs::read(path).expect("read");
            let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
            assert!(has(b"<hunter2/>") && has(b"sysprep") && has(b"unattend.xml"), "all of it");
            assert!(super::super::paths(&config, machine).contains(path), "it is removed with the seed");
        }
        let gone = write(&config, machine, &[of("app", dir.path().join("none"))], qemu).expect_err("gone").to_string();
        assert!(gone.starts_with("disk of the files of volume \"app\" not made: failed to open it"), "{gone}");
        assert!(!gone.contains(&*dir.path().to_string_lossy()), "{gone}");
    }
}
