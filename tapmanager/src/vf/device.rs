//! The descriptors by which QEMU gets virtual functions: of `/dev/iommu`, and of each device's own file.
//!
//! Called at a hand-off. A kernel without such files (before Linux 6.6, or built without), or a QEMU that does not take
//! descriptors, leaves it to libvirt to give the devices to QEMU, by the files of their groups.

use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use sriov::vfio::VfioFiles;

use super::problem::VfError;

/// How a pod's virtual functions get to QEMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Grant {
    /// By descriptors of these files, the devices in the order of the NICs.
    Descriptors {
        /// Of all.
        iommufd: PathBuf,
        /// Of each.
        devices: Vec<PathBuf>,
    },
    /// By libvirt.
    Hostdevs,
}

/// Descriptors for one machine.
#[derive(Debug)]
pub(crate) struct Devices {
    /// Of `/dev/iommu`: what the devices of one machine share.
    pub(crate) iommufd: OwnedFd,
    /// In the order of the NICs.
    pub(crate) devices: Vec<OwnedFd>,
}

impl Grant {
    /// All by descriptor or none: a machine has one set of mappings of its memory.
    pub(super) fn of(files: &[VfioFiles], qemu_takes_descriptors: bool) -> Self {
        let iommufd = files.first().and_then(|files| files.iommufd.clone());
        let devices: Option<Vec<PathBuf>> = files.iter().map(|files| files.device.clone()).collect();
        match (iommufd, devices) {
            (Some(iommufd), Some(devices)) if qemu_takes_descriptors => Self::Descriptors { iommufd, devices },
            _ => Self::Hostdevs,
        }
    }

    /// Opens what goes by descriptor.
    pub(crate) fn open(&self) -> Result<Option<Devices>, VfError> {
        let Self::Descriptors { iommufd, devices } = self else { return Ok(None) };
        let devices = devices.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
        Ok(Some(Devices { iommufd: open(iommufd)?, devices }))
    }
}

/// The kernel refuses a device that another process has.
fn open(path: &Path) -> Result<OwnedFd, VfError> {
    let file: Result<File, _> = OpenOptions::new().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(|cause| VfError::Open { path: path.to_owned(), cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(device: Option<&str>, iommufd: bool) -> VfioFiles {
        let group = Some(PathBuf::from("/dev/vfio/7"));
        VfioFiles { group, device: device.map(PathBuf::from), iommufd: iommufd.then(|| "/dev/iommu".into()) }
    }

    #[test]
    fn all_go_by_descriptor_or_none() {
        let (first, second) =
            (files(Some("/dev/vfio/devices/vfio0"), true), files(Some("/dev/vfio/devices/vfio1"), true));
        let Grant::Descriptors { iommufd, devices } = Grant::of(&[first.clone(), second], true) else {
            panic!("kernel and QEMU can");
        };
        assert_eq!((iommufd.to_str(), devices.len()), (Some("/dev/iommu"), 2));
        for (others, qemu) in [(files(None, true), true), (files(Some("/dev/vfio/devices/vfio1"), true), false)] {
            assert_eq!(Grant::of(&[first.clone(), others], qemu), Grant::Hostdevs);
        }
        assert_eq!(Grant::of(&[files(Some("/dev/vfio/devices/vfio0"), false)], true), Grant::Hostdevs);
    }

    #[test]
    fn a_file_that_does_not_open_is_named() {
        let grant = Grant::Descriptors { iommufd: "/nowhere/iommu".into(), devices: vec!["/dev/null".into()] };
        let error = grant.open().expect_err("no such file");
        assert!(error.to_string().contains("`/nowhere/iommu`"), "{error}");
        assert!(Grant::Hostdevs.open().expect("nothing to open").is_none());
    }
}
