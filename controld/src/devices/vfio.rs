//! Which devices a node of VFIO stands for, as the kernel's sysfs tells.
//!
//! A process has a group alone, so what else is in a device's group must be nothing that somebody else uses: as for virtual functions, see
//! [`sriov::group`].

use sriov::group::{Group, GroupError, SharedGroup};
use sriov::{PciAddr, ReadError, Sysfs};
use uuid::Uuid;
use vmspec::plan::PassedDevice;

/// Why a node of VFIO is nothing for a machine.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoVfio {
    #[error("the kernel has no such file; the device plugin names one that is gone")]
    Gone,
    #[error(
        "nothing of its IOMMU group {0} has a driver `vfio-pci` or is a mediated device; bind the device to vfio-pci"
    )]
    Unbound(u32),
    #[error("`{0}` has the driver {1}; bind it to vfio-pci")]
    Driver(PciAddr, String),
    #[error("it stands for `{0}`, which is neither a PCI device nor a mediated one")]
    Unknown(String),
    #[error(transparent)]
    Shared(#[from] SharedGroup),
    #[error(transparent)]
    Group(#[from] GroupError),
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Those of a group that a process gets with it: each that vfio-pci has, and mediated ones.
pub(super) fn of_group(sysfs: &Sysfs, number: u32) -> Result<Vec<PassedDevice>, NoVfio> {
    let group = sysfs.group_of_number(number)?.ok_or(NoVfio::Gone)?;
    let devices = taken(&group)?;
    if devices.is_empty() { Err(NoVfio::Unbound(number)) } else { Ok(devices) }
}

/// The one of a file in `/dev/vfio/devices`.
pub(super) fn of_file(sysfs: &Sysfs, name: &str) -> Result<PassedDevice, NoVfio> {
    let device = sysfs.device_of_file(name)?.ok_or(NoVfio::Gone)?;
    let device = parse(&device).ok_or(NoVfio::Unknown(device))?;
    if let PassedDevice::Pci(address) = device
        && let Ok(address) = address.to_string().parse()
    {
        // Whatever is said of it, it goes to a guest only with a group that may.
        let group = sysfs.group(address)?;
        if !taken(&group)?.contains(&device) {
            let driver = sysfs.driver(address)?.map_or("none".to_owned(), |driver| format!("`{driver}`"));
            return Err(NoVfio::Driver(address, driver));
        }
    }
    Ok(device)
}

/// What of a group is for a process. All of it, or the rest is in nobody's way.
fn taken(group: &Group) -> Result<Vec<PassedDevice>, SharedGroup> {
    let of_process = |name: &str| parse(name).filter(|device| matches!(device, PassedDevice::Mdev(_)));
    let devices: Vec<_> = (group.members.iter())
        .filter_map(|member| if member.is_on_vfio() { parse(&member.name) } else { of_process(&member.name) })
        .collect();
    let mut rest = group.clone();
    rest.members.retain(|member| parse(&member.name).is_none_or(|device| !devices.contains(&device)));
    rest.admit(&Default::default())?;
    Ok(devices)
}

fn parse(name: &str) -> Option<PassedDevice> {
    let pci = name.parse().ok().map(PassedDevice::Pci);
    pci.or_else(|| name.parse::<Uuid>().ok().map(PassedDevice::Mdev))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use common::Chain;

    use super::*;

    pub(in crate::devices) const CARD: &str = "0000:01:00.0";
    pub(in crate::devices) const SOUND: &str = "0000:01:00.1";
    const PART: &str = "b1a8b1a8-0000-4000-8000-000000000001";

    /// Name, class and driver.
    type Member = (&'static str, &'static str, &'static str);

    /// A node with such groups: number, and members.
    pub(in crate::devices) fn node(groups: &[(u32, &[Member])]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("tempdir");
        let root = dir.path();
        fs::create_dir_all(root.join("sys/bus/pci/devices")).expect("made");
        for (number, members) in groups {
            let group = root.join(format!("sys/kernel/iommu_groups/{number}"));
            fs::create_dir_all(group.join("devices")).expect("made");
            for (name, class, driver) in *members {
                let device = root.join("sys/devices").join(name);
                fs::create_dir_all(&device).expect("made");
                if !class.is_empty() {
                    fs::write(device.join("class"), format!("{class}\n")).expect("written");
                    symlink(&device, root.join("sys/bus/pci/devices").join(name)).expect("linked");
                }
                if !driver.is_empty() {
                    symlink(format!("../../bus/pci/drivers/{driver}"), device.join("driver")).expect("linked");
                }
                symlink(&group, device.join("iommu_group")).expect("linked");
                symlink(&device, group.join("devices").join(name)).expect("linked");
            }
        }
        dir
    }

    pub(in crate::devices) fn sysfs(root: &Path) -> Sysfs {
        Sysfs::new(&root.join("sys"), &root.join("dev"))
    }

    /// A file of one device.
    fn file(root: &Path, name: &str, device: &str) {
        let file = root.join("sys/class/vfio-dev").join(name);
        fs::create_dir_all(&file).expect("made");
        symlink(format!("../../../{device}"), file.join("device")).expect("linked");
    }

    fn shown(devices: &[PassedDevice]) -> Vec<String> {
        devices.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_group_is_what_of_it_a_process_gets() {
        let dir = node(&[
            (
                1,
                &[
                    ("0000:00:01.0", "0x060400", "pcieport"),
                    (CARD, "0x030000", "vfio-pci"),
                    (SOUND, "0x040300", "mlx5_vfio_pci"),
                ],
            ),
            (2, &[("0000:02:00.0", "0x020000", "vfio-pci"), ("0000:02:00.1", "0x020000", "")]),
            (3, &[(PART, "", "nvidia-vgpu-vfio")]),
        ]);
        let sysfs = sysfs(dir.path());
        assert_eq!(shown(&of_group(&sysfs, 1).expect("a card")), [CARD, SOUND]);
        assert_eq!(shown(&of_group(&sysfs, 2).expect("one of two")), ["0000:02:00.0"]);
        assert_eq!(shown(&of_group(&sysfs, 3).expect("a part")), [PART]);
    }

    #[test]
    fn a_group_that_others_use_or_nobody_has_bound_is_refused() {
        let dir = node(&[
            (1, &[(CARD, "0x030000", "vfio-pci"), (SOUND, "0x040300", "snd_soc_avs")]),
            (2, &[("0000:02:00.0", "0x020000", ""), ("0000:02:00.1", "0x020000", "pci-stub")]),
        ]);
        let sysfs = sysfs(dir.path());
        let refused = |number| Chain(&of_group(&sysfs, number).expect_err("refused")).to_string();
        insta::assert_snapshot!([1, 2, 9].map(refused).join("\n"), @"
        IOMMU group 1 has `0000:01:00.1` (driver `snd_soc_avs`), which would share the guest's isolation; unbind each from its driver, or put the VF's card into a slot whose ports have ACS
        nothing of its IOMMU group 2 has a driver `vfio-pci` or is a mediated device; bind the device to vfio-pci
        the kernel has no such file; the device plugin names one that is gone
        ");
    }

    #[test]
    fn a_file_is_one_device_whose_group_may_go_with_it() {
        let dir = node(&[
            (1, &[(CARD, "0x030000", "vfio-pci"), (SOUND, "0x040300", "vfio-pci")]),
            (2, &[("0000:02:00.0", "0x020000", "vfio-pci"), ("0000:02:00.1", "0x020000", "e1000e")]),
            (3, &[("0000:03:00.0", "0x020000", "")]),
        ]);
        for (name, device) in [
            ("vfio0", SOUND),
            ("vfio1", PART),
            ("vfio2", "0000:02:00.0"),
            ("vfio3", "0000:03:00.0"),
            ("vfio4", "platform"),
        ] {
            file(dir.path(), name, device);
        }
        let sysfs = sysfs(dir.path());
        assert_eq!(
            shown(&[of_file(&sysfs, "vfio0").expect("a card"), of_file(&sysfs, "vfio1").expect("a part")]),
            [SOUND, PART]
        );
        let refused = |name| Chain(&of_file(&sysfs, name).expect_err("refused")).to_string();
        insta::assert_snapshot!(["vfio2", "vfio3", "vfio4", "vfio5"].map(refused).join("\n"), @"
        IOMMU group 2 has `0000:02:00.1` (driver `e1000e`), which would share the guest's isolation; unbind each from its driver, or put the VF's card into a slot whose ports have ACS
        `0000:03:00.0` has the driver none; bind it to vfio-pci
        it stands for `platform`, which is neither a PCI device nor a mediated one
        the kernel has no such file; the device plugin names one that is gone
        ");
    }
}
