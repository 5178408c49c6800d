//! Which volumes of a pod are images, and what its guest knows them by. Pure: the images are looked up in the
//! node's store.

use std::path::Path;

use proto::vm::IMAGE_DIR;

use super::disks::{self, TAKEN};
use super::share::BIDIRECTIONAL;
use crate::error::{Error, Kind, Result, image_volume};
use crate::plan::{Disk, DiskImage, DiskSource, Hardware, Serial};
use crate::seed::is_for_us;
use crate::{ContainerConfig, Mount, MountOptions};

/// A disk whose image was not looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What the machine's description calls it; empty if that says nothing of it.
    pub(super) name: String,
    pub(super) serial: Serial,
    /// In the guest.
    pub path: String,
    /// As named in the request.
    pub image: String,
    pub(super) options: MountOptions,
}

impl Wanted {
    /// The disk, with this image. What a guest is told of it is the same with each.
    pub fn disk(&self, image: DiskImage) -> Disk {
        let (name, serial, path) = (self.name.clone(), self.serial.clone(), self.path.clone());
        Disk { name, serial, source: DiskSource::Image(image), path, read_only: true, options: self.options }
    }
}

/// The images that are volumes of this container beside its other disks, and the container without the mounts that they are in place of.
///
/// # Errors
/// When one cannot be a disk where the pod wants it.
pub(super) fn of(
    container: &ContainerConfig,
    others: &[&Serial],
    hardware: &Hardware,
) -> Result<(Vec<Wanted>, ContainerConfig)> {
    let mut disks: Vec<Wanted> = Vec::new();
    for mount in &container.mounts {
        let Some(image) = &mount.image else { continue };
        let at = &mount.container_path;
        let name = hardware.described_name(at.strip_prefix(IMAGE_DIR));
        check(mount, container, hardware.may_be_read_only(name)).map_err(|why| refused(at, &why))?;
        // kubelet tells no name of such a volume. cloud-init takes what is behind the last dot of a device's name for a partition.
        let of_path = || Serial::of_path(&at.replace('.', "_"));
        let serial = hardware.said_serial(name).unwrap_or_else(of_path);
        let is_taken = TAKEN.contains(&serial.as_str())
            || others.contains(&&serial)
            || disks.iter().any(|other| other.serial == serial);
        if is_taken {
            let why = format!("it would have the serial `{serial}` of another disk; choose another `mountPath`");
            return Err(refused(at, &why));
        }
        disks.push(Wanted {
            name: name.to_owned(),
            serial,
            path: at.clone(),
            image: image.image.clone(),
            options: mount.options,
        });
    }
    if let Some(last) = disks.last() {
        disks::check_count(others.len() + disks.len(), hardware).map_err(|why| refused(&last.path, &why))?;
    }
    let mut rest = container.clone();
    rest.mounts.retain(|mount| mount.image.is_none());
    Ok((disks, rest))
}

fn check(mount: &Mount, container: &ContainerConfig, may_be_read_only: bool) -> Result<(), String> {
    let path = Path::new(&mount.container_path);
    if !disks::is_place(path) || is_for_us(mount) {
        return Err("it cannot be there; choose another `mountPath`".into());
    }
    if container.mounts.iter().filter(|other| Path::new(&other.container_path) == path).count() > 1 {
        return Err("another volume is mounted there; unset one".into());
    }
    if mount.propagation == BIDIRECTIONAL {
        return Err("it is `Bidirectional`, and what a guest mounts cannot reach the node; unset that".into());
    }
    if !may_be_read_only {
        return Err("no disk on the bus `sata` can be read-only; choose `virtio` or `scsi`".into());
    }
    Ok(())
}

fn refused(at: &str, why: &str) -> Error {
    Error::new(Kind::Invalid, format!("{}: {why}", image_volume(at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MountImage;
    use crate::plan::DiskBus;

    fn mount(path: &str) -> Mount {
        let image = Some(MountImage { image: "images.example.com/models".into(), ..MountImage::default() });
        Mount { container_path: path.into(), readonly: true, image, ..Mount::default() }
    }

    fn planned(mounts: &[Mount], disk_bus: DiskBus) -> Result<(Vec<Wanted>, ContainerConfig)> {
        let container = ContainerConfig { mounts: mounts.to_owned(), ..ContainerConfig::default() };
        of(&container, &[&Serial::of_path("/dev/block")], &Hardware { disk_bus, ..Hardware::default() })
    }

    #[test]
    fn an_image_is_a_disk_in_place_of_its_mount() {
        let directory = Mount { container_path: "/srv".into(), host_path: "/srv".into(), ..Mount::default() };
        let (disks, rest) =
            planned(&[mount("/srv/models"), directory.clone(), mount("/b")], DiskBus::Scsi).expect("planned");
        let shown: Vec<_> = disks.iter().map(|disk| (disk.serial.as_str(), disk.path.as_str())).collect();
        assert_eq!(shown, [("srv_models", "/srv/models"), ("b", "/b")]);
        assert_eq!(rest.mounts, [directory]);
        let disk = disks[0].disk(DiskImage::default());
        assert!(disk.read_only && disk.file_system() == "auto", "{disk:?}");
    }

    #[test]
    fn what_has_no_place_or_no_name_is_refused() {
        let other = Mount { container_path: "/a/".into(), host_path: "/srv".into(), ..Mount::default() };
        let told = [
            (vec![mount("/")], DiskBus::Virtio),
            (vec![mount("/proc/a")], DiskBus::Virtio),
            (vec![mount("/run/virtlet/seed/a")], DiskBus::Virtio),
            (vec![mount("/a/../b")], DiskBus::Virtio),
            (vec![mount("/a"), mount("/a")], DiskBus::Virtio),
            (vec![mount("/a"), other], DiskBus::Virtio),
            (vec![mount("/a/b"), mount("/a_b")], DiskBus::Virtio),
            (vec![mount("/block")], DiskBus::Virtio),
            (vec![mount("/seed")], DiskBus::Virtio),
            (vec![Mount { propagation: BIDIRECTIONAL, ..mount("/a") }], DiskBus::Virtio),
            (vec![mount("/a")], DiskBus::Sata),
        ]
        .map(|(mounts, bus)| planned(&mounts, bus).expect_err("refused").to_string());
        insta::assert_snapshot!(told.join("\n"));
    }

    #[test]
    fn there_are_as_many_as_have_a_place() {
        let mounts: Vec<_> = (0..60).map(|n| mount(&format!("/v{n}"))).collect();
        // Beside one that is there.
        assert_eq!(planned(&mounts[..59], DiskBus::Virtio).expect("fit").0.len(), 59);
        let why = planned(&mounts, DiskBus::Virtio).expect_err("too many").to_string();
        assert!(why.contains("61 disks") && why.contains("at most 60"), "{why}");
    }
}
