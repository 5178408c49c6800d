//! Which emptyDirs of a pod are disks of its machine. Pure; the files are made by the node.

use super::{as_disk, disks};
use crate::annotations::EmptyDirDisk;
use crate::error::{Error, Kind, Result};
use crate::plan::{Disk, DiskFile, DiskSource, Hardware};
use crate::{ContainerConfig, Mount, SandboxConfig, pod_dir};

/// Directory of kubelet's for volumes of this kind, in a pod's.
const KIND: &str = "kubernetes.io~empty-dir";

/// The disks of these emptyDirs, and the container without the mounts that they are in place of.
///
/// # Errors
/// When one is no emptyDir of the container, or cannot be a disk where the pod wants it.
pub(super) fn of(
    wanted: &[EmptyDirDisk],
    sandbox: &SandboxConfig,
    container: &ContainerConfig,
    others: &[disks::Wanted],
    hardware: &Hardware,
) -> Result<(Vec<Disk>, ContainerConfig)> {
    let mut rest = container.clone();
    let mut disks: Vec<Disk> = Vec::new();
    for EmptyDirDisk { volume, size, file_system } in wanted {
        let is_it = |mount: &Mount| pod_dir::is_volume(&mount.host_path, &sandbox.uid, KIND, volume);
        let mounts: Vec<_> = container.mounts.iter().filter(|mount| is_it(mount)).collect();
        let [mount] = mounts[..] else {
            let what = if mounts.is_empty() {
                format!("volume \"{volume}\" is not an emptyDir of this container, mounted without `subPath`")
            } else {
                format!("volume \"{volume}\" is mounted {} times, and a disk is at one path", mounts.len())
            };
            return Err(refused(&what));
        };
        rest.mounts.retain(|mount| !is_it(mount));
        let path = mount.container_path.clone();
        let taken = |serial: &_| {
            others.iter().any(|other| other.serial == *serial) || disks.iter().any(|other| other.serial == *serial)
        };
        let serial = as_disk::serial(volume, mount, hardware, taken).map_err(|what| refused(&what))?;
        let file = DiskFile { dir: mount.host_path.clone().into(), size: *size, file_system: *file_system };
        disks.push(Disk {
            name: hardware.described_name(Some(volume)).to_owned(),
            serial,
            source: DiskSource::File(file),
            path,
            read_only: mount.readonly || hardware.is_read_only(volume),
            options: mount.options,
        });
    }
    if !disks.is_empty() {
        disks::check_count(others.len() + disks.len(), hardware).map_err(|what| refused(&what))?;
    }
    Ok((disks, rest))
}

fn refused(what: &str) -> Error {
    Error::new(Kind::Invalid, format!("annotation virtlet.cloud/emptydir-disks: {what}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::{DiskBus, FileSystem, Serial};

    fn wanted(volume: &str) -> EmptyDirDisk {
        EmptyDirDisk { volume: volume.into(), size: 1 << 30, file_system: Some(FileSystem::Ext4) }
    }

    fn mount(kind: &str, volume: &str, path: &str) -> Mount {
        let host_path = format!("/var/lib/kubelet/pods/u/volumes/{kind}/{volume}");
        Mount { container_path: path.into(), host_path, ..Mount::default() }
    }

    fn planned(volumes: &[&str], mounts: &[Mount]) -> Result<(Vec<Disk>, ContainerConfig)> {
        planned_on(&Hardware::default(), volumes, mounts)
    }

    fn planned_on(hardware: &Hardware, volumes: &[&str], mounts: &[Mount]) -> Result<(Vec<Disk>, ContainerConfig)> {
        let wanted: Vec<_> = volumes.iter().map(|volume| wanted(volume)).collect();
        let sandbox = SandboxConfig { uid: "u".into(), ..SandboxConfig::default() };
        let container = ContainerConfig { mounts: mounts.to_owned(), ..ContainerConfig::default() };
        let device = disks::Wanted {
            name: String::new(),
            serial: Serial::of_path("/dev/block"),
            host_path: "/dev/x".into(),
            path: "/dev/block".into(),
            read_only: false,
        };
        of(&wanted, &sandbox, &container, &[device], hardware)
    }

    #[test]
    fn an_emptydir_is_a_disk_in_place_of_its_mount() {
        let mounts =
            [mount(KIND, "a", "/a"), mount(KIND, "scratch", "/scratch"), mount("kubernetes.io~secret", "s", "/s")];
        let (disks, rest) = planned(&["scratch"], &mounts).expect("planned");
        let [Disk { serial, source: DiskSource::File(file), path, read_only: false, .. }] = &disks[..] else {
            panic!("{disks:?}")
        };
        assert_eq!((serial.as_str(), path.as_str()), ("scratch", "/scratch"));
        assert_eq!(file.dir, Path::new("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/scratch"));
        assert_eq!(rest.mounts, [mounts[0].clone(), mounts[2].clone()]);
        assert_eq!(planned(&[], &mounts).expect("none").1.mounts, mounts);
    }

    #[test]
    fn what_is_no_emptydir_or_has_no_place_is_refused() {
        let told = [
            planned(&["absent"], &[mount(KIND, "a", "/a")]),
            planned(&["s"], &[mount("kubernetes.io~secret", "s", "/s")]),
            planned(&["a"], &[mount(KIND, "a", "/a"), mount(KIND, "a", "/b")]),
            planned(&["a"], &[mount(KIND, "a", "/proc/a")]),
            planned(&["a"], &[mount(KIND, "a", "/run")]),
            planned(&["root"], &[mount(KIND, "root", "/a")]),
            planned(&["block"], &[mount(KIND, "block", "/a")]),
        ]
        .map(|planned| planned.expect_err("refused").to_string());
        insta::assert_snapshot!(told.join("\n"), @r#"
        annotation virtlet.cloud/emptydir-disks: volume "absent" is not an emptyDir of this container, mounted without `subPath`
        annotation virtlet.cloud/emptydir-disks: volume "s" is not an emptyDir of this container, mounted without `subPath`
        annotation virtlet.cloud/emptydir-disks: volume "a" is mounted 2 times, and a disk is at one path
        annotation virtlet.cloud/emptydir-disks: volume "a" cannot be at `/proc/a`; choose another `mountPath`
        annotation virtlet.cloud/emptydir-disks: volume "a" cannot be at `/run`; choose another `mountPath`
        annotation virtlet.cloud/emptydir-disks: volume "root" would have the serial `root` of another disk; rename it
        annotation virtlet.cloud/emptydir-disks: volume "block" would have the serial `block` of another disk; rename it
        "#);
    }

    #[test]
    fn a_bus_has_as_many_as_it_has_places_and_may_have_none_that_are_read_only() {
        let hardware = |machine: &str, disk_bus| Hardware {
            machine: machine.parse().expect("type"),
            disk_bus,
            ..Hardware::default()
        };
        let names: Vec<_> = (0..60).map(|n| format!("v{n}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mounts: Vec<_> = names.iter().map(|name| mount(KIND, name, &format!("/{name}"))).collect();
        // Beside one that is there.
        for (machine, most) in [("q35", 59), ("pc", 47)] {
            let hardware = hardware(machine, DiskBus::Virtio);
            assert_eq!(planned_on(&hardware, &names[..most], &mounts).expect("fit").0.len(), most);
            let why = planned_on(&hardware, &names[..=most], &mounts).expect_err("too many").to_string();
            assert!(why.contains(&format!("at most {}", most + 1)), "{why}");
        }
        let read_only = [Mount { readonly: true, ..mount(KIND, "a", "/a") }];
        planned_on(&hardware("q35", DiskBus::Scsi), &["a"], &read_only).expect("read-only");
        planned_on(&hardware("q35", DiskBus::Sata), &["a"], &read_only).expect_err("no such disk");
    }
}
