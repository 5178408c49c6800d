//! Which disks a machine has beside its root disk, and what its guest knows them by. Pure: what a path of the node is, the node
//! sees.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use proto::agent::SHARE_DIR;
use proto::vm::DEVICE_DIR;

use super::{persistent, share};
use crate::error::{Error, Kind, Result};
use crate::plan::{Chipset, DiskBus, Hardware, MAX_DISKS, Serial};
use crate::{ContainerConfig, Device};

/// Virtio disks that fit beside the others on a chipset without PCI Express.
const MAX_ON_PCI: usize = 48;
/// What root disk and seed are known by.
pub(super) const TAKEN: [&str; 2] = ["root", "seed"];
/// Where no link to a disk can be.
const NOT_BELOW: [&str; 3] = ["/proc", "/sys", SHARE_DIR];

/// A disk whose source has not been looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// What the machine's description calls it; empty if that says nothing of it.
    pub name: String,
    pub serial: Serial,
    /// On the node.
    pub host_path: String,
    /// In the guest.
    pub path: String,
    pub read_only: bool,
}

/// The disks of a container's machine.
///
/// # Errors
/// When they are too many for it, or a guest could not tell them apart.
pub(super) fn of(container: &ContainerConfig, hardware: &Hardware) -> Result<Vec<Wanted>> {
    let devices: Vec<_> = container.devices.iter().filter(|device| !persistent::is_root(device)).collect();
    let most = most(hardware);
    if devices.len() > most {
        let (count, machine, bus) = (devices.len(), &hardware.machine, hardware.disk_bus.name());
        let what =
            format!("the container has {count} block volumes, and a VM has at most {most} ({bus} on `{machine}`)");
        return Err(invalid(what));
    }
    let mut seen = BTreeMap::new();
    let mut disks = Vec::new();
    for Device { host_path, container_path: path, read_only } in devices {
        check(path, container)?;
        let name = hardware.described_name(path.strip_prefix(DEVICE_DIR));
        let read_only = *read_only || hardware.is_read_only(name);
        if read_only && !hardware.may_be_read_only(name) {
            return Err(invalid(format!(
                "device at `{path}` is read-only, which no disk on the bus `sata` can be; choose `virtio` or `scsi`"
            )));
        }
        let serial = hardware.said_serial(name).unwrap_or_else(|| Serial::of_path(path));
        if TAKEN.contains(&serial.as_str()) {
            return Err(invalid(format!(
                "device at `{path}` would have the serial `{serial}`, which is that of a disk that every VM has; choose another \
                 `devicePath`"
            )));
        }
        if let Some(other) = seen.insert(serial.clone(), path) {
            return Err(invalid(format!(
                "devices at `{other}` and `{path}` would have the same serial, `{serial}`; choose another `devicePath`"
            )));
        }
        disks.push(Wanted {
            name: name.to_owned(),
            serial,
            host_path: host_path.clone(),
            path: path.clone(),
            read_only,
        });
    }
    Ok(disks)
}

/// Whether a machine may have so many disks beside root disk and seed.
///
/// # Errors
/// Why not.
pub(super) fn check_count(count: usize, hardware: &Hardware) -> Result<(), String> {
    let most = most(hardware);
    if count > most {
        return Err(format!("the VM would have {count} disks beside its root disk, and has at most {most}"));
    }
    Ok(())
}

/// Most disks of a machine beside root disk and seed.
fn most(hardware: &Hardware) -> usize {
    match hardware.machine.chipset() {
        Chipset::I440fx if hardware.has_bus(DiskBus::Virtio) => MAX_ON_PCI,
        _ => MAX_DISKS,
    }
}

/// Whether a path is absolute and has no `..`.
pub(super) fn is_plain(path: &Path) -> bool {
    path.is_absolute() && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// Whether what is on a disk can be mounted there in the guest.
pub(super) fn is_place(path: &Path) -> bool {
    let is_guests =
        Path::new(SHARE_DIR).starts_with(path) || share::NOT_BELOW.into_iter().any(|dir| path.starts_with(dir));
    is_plain(path) && path.parent().is_some() && !is_guests
}

fn check(at: &str, container: &ContainerConfig) -> Result<()> {
    let path = Path::new(at);
    if !is_plain(path) {
        return Err(invalid(format!("device at `{at}`: not an absolute path without `..`")));
    }
    if path == Path::new("/dev") || Path::new(SHARE_DIR).starts_with(path) {
        return Err(invalid(format!(
            "device at `{at}` would hide a directory of the guest; choose another `devicePath`"
        )));
    }
    if let Some(dir) = NOT_BELOW.into_iter().find(|dir| path.starts_with(dir)) {
        return Err(invalid(format!("device at `{at}`: `{dir}` is the guest's own; choose another `devicePath`")));
    }
    if container.mounts.iter().any(|mount| Path::new(&mount.container_path) == path) {
        return Err(invalid(format!("a device and a volume mount at `{at}`; unset one")));
    }
    Ok(())
}

fn invalid(what: String) -> Error {
    Error::new(Kind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mount;

    fn device(path: &str) -> Device {
        Device { host_path: "/var/lib/kubelet/x".into(), container_path: path.into(), read_only: false }
    }

    fn with(paths: &[&str]) -> ContainerConfig {
        ContainerConfig { devices: paths.iter().map(|path| device(path)).collect(), ..ContainerConfig::default() }
    }

    fn on(machine: &str, disk_bus: DiskBus) -> Hardware {
        Hardware { machine: machine.parse().expect("type"), disk_bus, ..Hardware::default() }
    }

    fn refused(container: &ContainerConfig, hardware: &Hardware) -> String {
        of(container, hardware).expect_err("refused").to_string()
    }

    #[test]
    fn a_device_is_a_disk_with_its_path_as_serial_in_the_pods_order() {
        let disks = of(&with(&["/dev/b", "/mnt/a"]), &Hardware::default()).expect("plans");
        let shown: Vec<_> = disks.iter().map(|disk| (disk.serial.as_str(), disk.path.as_str())).collect();
        assert_eq!(shown, [("b", "/dev/b"), ("mnt_a", "/mnt/a")]);
    }

    #[test]
    fn a_device_at_the_root_is_no_disk_beside_the_root_disk() {
        let disks = of(&with(&["/", "/dev/b"]), &Hardware::default()).expect("plans");
        assert_eq!(disks.len(), 1);
    }

    #[test]
    fn what_a_guest_could_not_tell_apart_or_have_is_refused() {
        let q35 = Hardware::default();
        let mounted = ContainerConfig {
            mounts: vec![Mount { container_path: "/dev/x".into(), ..Mount::default() }],
            ..with(&["/dev/x"])
        };
        let read_only = ContainerConfig {
            devices: vec![Device { read_only: true, ..device("/dev/x") }],
            ..ContainerConfig::default()
        };
        let shown = [
            refused(&with(&["/dev/a", "/a"]), &q35),
            refused(&with(&["/dev/root"]), &q35),
            refused(&with(&["/dev"]), &q35),
            refused(&with(&["/run/virtlet"]), &q35),
            refused(&with(&["dev/a"]), &q35),
            refused(&with(&["/dev/../a"]), &q35),
            refused(&with(&["/proc/a"]), &q35),
            refused(&mounted, &q35),
            refused(&read_only, &on("q35", DiskBus::Sata)),
        ];
        insta::assert_snapshot!(shown.join("\n"));
        assert!(of(&read_only, &on("q35", DiskBus::Scsi)).is_ok());
    }

    #[test]
    fn there_are_as_many_as_have_a_place() {
        let paths: Vec<_> = (0..=MAX_DISKS).map(|n| format!("/dev/disk{n}")).collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        for (hardware, most) in [
            (on("q35", DiskBus::Virtio), 60),
            (on("q35", DiskBus::Sata), 60),
            (on("pc", DiskBus::Scsi), 60),
            (on("pc", DiskBus::Virtio), 48),
        ] {
            assert_eq!(of(&with(&paths[..most]), &hardware).expect("fit").len(), most);
            let why = refused(&with(&paths[..=most]), &hardware);
            assert!(why.contains(&format!("at most {most}")), "{why}");
        }
    }
}
