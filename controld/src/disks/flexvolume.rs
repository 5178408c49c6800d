//! Flexvolumes of a pod: what their driver has written down of them in kubelet's directories, and the files of those that are new disks.
//!
//! A description is read by the mount that kubelet names, and never written: kubelet removes it with the pod. The guest does not see its
//! directory. It may have a key, which is read for a start and kept nowhere ([`keys`]).

mod keys;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use common::{Reason, off_reactor};
use rustix::fs::{CWD, Mode, OFlags, openat};
use vmspec::ContainerConfig;
use vmspec::draft::flexvolume::Wanted;
use vmspec::error::{Error, Kind, Result};
use vmspec::flexvolume::{self, FILE, FlexVolume, MAX_BYTES, check_enabled, name_of};
use vmspec::plan::Disk;

pub(crate) use self::keys::sweep;
pub(crate) use self::keys::{forget, with_keys};
use super::{emptydir, raw_device};
use crate::config::Config;
use crate::volumes::make_dir;

/// The flexvolumes that a container of the pod with this UID mounts. Blocks.
///
/// # Errors
/// When the node has none, one is not described, or is not to be had.
pub(crate) fn find(config: &Config, container: &ContainerConfig, uid: &str) -> Result<Vec<Wanted>> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for mount in &container.mounts {
        let Some(name) = name_of(mount, uid).filter(|name| seen.insert(*name)) else { continue };
        check_enabled(&config.flexvolumes, name)?;
        let dir = Path::new(&mount.host_path);
        let volume = read(dir).map_err(|cause| not_had(Kind::Invalid, name, cause))?;
        let device = |path: &Path| raw_device::named(&config.raw_devices, &format!("volume \"{name}\""), path);
        found.push(Wanted::of(name, dir, volume, device)?);
    }
    Ok(found)
}

/// What the driver has written down in a directory. Nothing there is followed or waited for.
fn read(dir: &Path) -> std::result::Result<FlexVolume, Reason> {
    let text = open(dir).and_then(|file| {
        let mut text = Vec::new();
        // One byte more shows that it is too long.
        file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
        Ok(text)
    });
    let text =
        text.map_err(|cause: io::Error| Reason::new(format!("its driver's `{FILE}` was not read")).with(cause))?;
    FlexVolume::of(&flexvolume::options(&text)?)
}

fn open(dir: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, dir, flags | OFlags::DIRECTORY, Mode::empty())?;
    let file = File::from(openat(&dir, FILE, flags | OFlags::NONBLOCK, Mode::empty())?);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file")) }
}

fn not_had(kind: Kind, name: &str, cause: Reason) -> Error {
    Error::because(kind, format!("flexvolume: volume \"{name}\" cannot be a disk of the VM"), cause)
}

/// Makes the files of those that are new disks, in the pod's own folder. What is there stays as it is.
///
/// # Errors
/// When one cannot be made.
pub(crate) async fn make(disks: &[Disk]) -> Result<()> {
    make_dirs(disks).await?;
    emptydir::make(disks).await
}

/// Makes the directories of those files alone.
///
/// # Errors
/// When one cannot be made.
pub(crate) async fn make_dirs(disks: &[Disk]) -> Result<()> {
    let dirs: Vec<_> = disks.iter().filter_map(|disk| Some(disk.source.file()?.dir.clone())).collect();
    // QEMU is handed the file, and does not come here.
    let made = off_reactor(move || dirs.iter().try_for_each(|dir| make_dir(dir, 0o700))).await;
    made.map_err(|cause| Error::because(Kind::Internal, "directory of a flexvolume's disk not made", cause))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use common::Chain;
    use vmspec::Mount;
    use vmspec::settings::FlexvolumesConfig;

    use super::*;

    fn volume(description: Option<&str>) -> (tempfile::TempDir, ContainerConfig) {
        let root = tempfile::tempdir().expect("tempdir");
        let dir = root.path().join("pods/u/volumes/virtlet~flexvolume_driver/data");
        fs::create_dir_all(&dir).expect("made");
        if let Some(description) = description {
            fs::write(dir.join(FILE), description).expect("written");
        }
        let host_path = dir.display().to_string();
        let mount = Mount { container_path: "/data".into(), host_path, ..Mount::default() };
        (root, ContainerConfig { mounts: vec![mount], ..ContainerConfig::default() })
    }

    fn enabled() -> Config {
        Config { flexvolumes: FlexvolumesConfig { enabled: true }, ..Config::default() }
    }

    fn refused(config: &Config, container: &ContainerConfig) -> (Kind, String) {
        let error = find(config, container, "u").expect_err("refused");
        (error.kind(), Chain(&error).to_string())
    }

    #[test]
    fn a_description_is_read_where_kubelet_has_it_if_the_node_has_flexvolumes() {
        let (_root, container) = volume(Some(r#"{"type": "qcow2", "capacity": "1G", "kubernetes.io/pod.name": "x"}"#));
        assert_eq!(find(&enabled(), &container, "u").expect("read").len(), 1);
        assert_eq!(find(&enabled(), &container, "other").expect("none").len(), 0);
        let (kind, said) = refused(&Config::default(), &container);
        assert!(kind == Kind::Denied && said.contains("\"data\"") && said.contains("`flexvolumes.enabled`"), "{said}");
    }

    #[test]
    fn what_does_not_describe_a_volume_is_refused_by_name() {
        let long = "x".repeat(MAX_BYTES + 1);
        for (description, why) in [
            (None, "`virtlet-flexvolume.json` was not read: No such file"),
            (Some("{"), "no JSON object of texts"),
            (Some(&*long), "longer than 64 KiB"),
            (Some(r#"{"type": "nfs"}"#), "option `type`: `nfs`"),
        ] {
            let (_root, container) = volume(description);
            let (kind, said) = refused(&enabled(), &container);
            assert!(kind == Kind::Invalid && said.contains("\"data\"") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn nothing_is_followed_or_waited_for() {
        let (root, container) = volume(None);
        let dir = Path::new(&container.mounts[0].host_path);
        let outside = root.path().join("outside");
        fs::write(&outside, r#"{"type": "qcow2"}"#).expect("written");
        symlink(&outside, dir.join(FILE)).expect("linked");
        assert!(refused(&enabled(), &container).1.contains("was not read"));
        fs::remove_file(dir.join(FILE)).expect("removed");
        nix::unistd::mkfifo(&dir.join(FILE), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        assert!(refused(&enabled(), &container).1.contains("it is no file"));
        fs::remove_file(dir.join(FILE)).expect("removed");
        fs::remove_dir(dir).expect("removed");
        symlink(root.path(), dir).expect("linked");
        assert!(refused(&enabled(), &container).1.contains("was not read"));
    }

    #[test]
    fn what_is_no_device_of_those_that_may_be_had_is_refused() {
        for (path, why) in [("/dev/null", "it is no block device"), ("/dev/absent-of-bed", "is not there on the node")]
        {
            let (_root, container) = volume(Some(&format!(r#"{{"type": "raw", "path": "{path}"}}"#)));
            assert!(refused(&enabled(), &container).1.contains(why));
        }
    }
}
