//! Which flexvolumes of a pod are disks of its machine. Pure; what they are, the node says.

use std::path::{Path, PathBuf};

use super::{as_disk, disks};
use crate::error::{Error, Kind, Result};
use crate::flexvolume::{FlexVolume, name_of};
use crate::plan::{BlockDevice, Disk, DiskFile, DiskSource, Hardware, MountedDevice, RbdImage, Serial};
use crate::{ContainerConfig, SandboxConfig};

/// A flexvolume that has been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The pod's name of it.
    name: String,
    source: DiskSource,
}

impl Wanted {
    /// Volume `name`, whose description is in `dir`; `device` finds the block device that it names, if it names one.
    ///
    /// # Errors
    /// Those of `device`.
    pub fn of(
        name: &str,
        dir: &Path,
        volume: FlexVolume,
        device: impl FnOnce(&Path) -> Result<BlockDevice>,
    ) -> Result<Self> {
        let source = match volume {
            // The pod's folder has its directory, and is not made yet.
            FlexVolume::Qcow2 { size, file_system } => {
                DiskSource::File(DiskFile { dir: PathBuf::from(name), size, file_system })
            }
            FlexVolume::Raw { path, on: Some(on) } => DiskSource::Mounted(MountedDevice { device: device(&path)?, on }),
            FlexVolume::Raw { path, on: None } => DiskSource::Block(device(&path)?),
            FlexVolume::Ceph { monitors, pool, image, login, on } => {
                let user = login.map(|login| login.user);
                DiskSource::Rbd(RbdImage { monitors, pool, image, user, dir: dir.to_owned(), on })
            }
        };
        Ok(Self { name: name.to_owned(), source })
    }
}

/// The disks of these flexvolumes, and the container without the mounts that they are in place of.
///
/// # Errors
/// When one cannot be a disk where the pod wants it.
pub(super) fn of(
    wanted: &[Wanted],
    sandbox: &SandboxConfig,
    mut container: ContainerConfig,
    others: &[&Serial],
    hardware: &Hardware,
) -> Result<(Vec<Disk>, ContainerConfig)> {
    let mut flex: Vec<Disk> = Vec::new();
    for Wanted { name, source } in wanted {
        let mounts: Vec<_> =
            container.mounts.iter().filter(|mount| name_of(mount, &sandbox.uid) == Some(name)).collect();
        let [mount] = mounts[..] else {
            let what = format!("volume \"{name}\" is mounted {} times, and a disk is at one path", mounts.len());
            return Err(refused(&what));
        };
        let taken = |serial: &_| others.contains(&serial) || flex.iter().any(|other| other.serial == *serial);
        let serial = as_disk::serial(name, mount, hardware, taken).map_err(|what| refused(&what))?;
        let (path, options) = (mount.container_path.clone(), mount.options);
        let read_only = mount.readonly || hardware.is_read_only(name);
        let name = hardware.described_name(Some(name)).to_owned();
        flex.push(Disk { name, serial, source: source.clone(), path, read_only, options });
    }
    container.mounts.retain(|mount| name_of(mount, &sandbox.uid).is_none());
    if !flex.is_empty() {
        disks::check_count(others.len() + flex.len(), hardware).map_err(|what| refused(&what))?;
    }
    Ok((flex, container))
}

/// These disks, of which the files are below `dir`.
pub(super) fn placed(disks: Vec<Disk>, dir: &Path) -> Vec<Disk> {
    let place = |mut disk: Disk| {
        if let DiskSource::File(file) = &mut disk.source {
            file.dir = dir.join(&file.dir);
        }
        disk
    };
    disks.into_iter().map(place).collect()
}

fn refused(what: &str) -> Error {
    Error::new(Kind::Invalid, format!("flexvolume: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mount;
    use crate::plan::{DeviceNumber, DiskBus, FileSystem, OnDisk};

    const DIR: &str = "/var/lib/kubelet/pods/u/volumes/virtlet~flexvolume_driver";

    fn container(mounts: &[(&str, &str, bool)]) -> ContainerConfig {
        let mount = |(host_path, at, readonly): &(&str, &str, bool)| Mount {
            container_path: (*at).to_owned(),
            host_path: (*host_path).to_owned(),
            readonly: *readonly,
            ..Mount::default()
        };
        ContainerConfig { mounts: mounts.iter().map(mount).collect(), ..ContainerConfig::default() }
    }

    fn of(wanted: &[&str], container: &ContainerConfig, others: &[&Serial]) -> Result<(Vec<Disk>, ContainerConfig)> {
        on(wanted, container, others, DiskBus::Virtio)
    }

    fn on(
        wanted: &[&str],
        container: &ContainerConfig,
        others: &[&Serial],
        disk_bus: DiskBus,
    ) -> Result<(Vec<Disk>, ContainerConfig)> {
        let sandbox = SandboxConfig { uid: "u".into(), ..SandboxConfig::default() };
        let volume = FlexVolume::Qcow2 { size: 1 << 30, file_system: Some(FileSystem::Ext4) };
        let wanted: Vec<_> = wanted
            .iter()
            .map(|name| Wanted::of(name, Path::new(DIR), volume.clone(), |_| unreachable!("no device")))
            .collect::<Result<_>>()?;
        let hardware = Hardware { disk_bus, ..Hardware::default() };
        super::of(&wanted, &sandbox, container.clone(), others, &hardware)
    }

    #[test]
    fn a_flexvolume_is_a_disk_in_the_place_of_its_mount() {
        let of_flex = format!("{DIR}/data");
        let config = container(&[(&of_flex, "/srv/data", true), ("/srv/x", "/x", false)]);
        let (disks, rest) = of(&["data"], &config, &[]).expect("plans");
        let shown: Vec<_> = disks.iter().map(|disk| (disk.serial.as_str(), &*disk.path, disk.read_only)).collect();
        assert_eq!(shown, [("data", "/srv/data", true)]);
        assert_eq!(rest.mounts, config.mounts[1..]);
        let disks = placed(disks, Path::new("/folder"));
        assert_eq!(disks[0].source.file().map(|file| file.path()), Some("/folder/data/disk.img".into()));
    }

    #[test]
    fn each_type_is_another_disk() {
        let device = BlockDevice { node: "/dev/loop3".into(), number: DeviceNumber { major: 7, minor: 3 } };
        let of = |volume| Wanted::of("data", Path::new(DIR), volume, |_| Ok(device.clone())).expect("found").source;
        let on = OnDisk { partition: 1, file_system: FileSystem::Ext4 };
        let mounted = of(FlexVolume::Raw { path: "/dev/x".into(), on: Some(on) });
        assert_eq!((mounted.block(), mounted.mounted()), (Some(&device), Some(on)));
        let link = of(FlexVolume::Raw { path: "/dev/x".into(), on: None });
        assert_eq!((link.block(), link.mounted()), (Some(&device), None));
        let monitors = vec!["mon".parse().expect("monitor")];
        let image = of(FlexVolume::Ceph { monitors, pool: "p".into(), image: "i".into(), login: None, on: Some(on) });
        assert_eq!((image.rbd().map(RbdImage::name), image.mounted()), (Some("p/i".into()), Some(on)));
    }

    #[test]
    fn what_a_guest_could_not_have_is_refused() {
        let of_flex = format!("{DIR}/data");
        let of_root = format!("{DIR}/root");
        let other = Serial::of_name("data");
        let said = |found: Result<(Vec<Disk>, ContainerConfig)>| found.expect_err("refused").to_string();
        let twice = container(&[(&of_flex, "/a", false), (&of_flex, "/b", false)]);
        let names: Vec<_> = (0..61).map(|n| format!("{DIR}/v{n}")).collect();
        let paths: Vec<_> = (0..61).map(|n| format!("/v{n}")).collect();
        let many: Vec<_> = names.iter().zip(&paths).map(|(name, at)| (&**name, &**at, false)).collect();
        let of_many: Vec<_> = paths.iter().map(|path| path.trim_start_matches('/')).collect();
        let shown = [
            said(of(&["data"], &twice, &[])),
            said(of(&["data"], &container(&[(&of_flex, "/dev/x", false)]), &[])),
            said(of(&["root"], &container(&[(&of_root, "/a", false)]), &[])),
            said(of(&["data"], &container(&[(&of_flex, "/a", false)]), &[&other])),
            said(on(&["data"], &container(&[(&of_flex, "/a", true)]), &[], DiskBus::Sata)),
            said(of(&of_many, &container(&many), &[])),
        ];
        insta::assert_snapshot!(shown.join("\n"));
    }
}
