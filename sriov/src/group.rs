//! IOMMU groups: what a VF shares its isolation with, and whether the group may go to a guest.
//!
//! Called by `claim` before a VF is taken, by `tapmanager`'s tools, which explain a refusal, and by `controld` for devices that a
//! device plugin gave.
//!
//! The IOMMU keeps groups apart, not the devices in one. So a group is handed out whole or not at all: every member goes
//! to the same guest, or is one that cannot do DMA for somebody else.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-kernel-iommu_groups`. Which members the kernel itself lets pass is in
//! `vfio_dev_viable` and, since Linux 5.19, in `iommu_device_use_default_domain`: those without a driver, those whose
//! driver leaves DMA to its user (vfio drivers, `pci-stub`), and bridges, now those of `pcieport`. We are stricter in one
//! point: a member with a vfio driver that is not for this guest may be in another one.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use crate::address::PciAddr;
use crate::device::DiscoverError;
use crate::sysfs::{self, ReadError, Sysfs};

/// Class of a bridge from PCI to PCI, root ports included, without its last byte.
const PCI_BRIDGE: u32 = 0x0604;
/// A driver that holds a device and does nothing with it.
const PCI_STUB: &str = "pci-stub";
/// What names of drivers end with that leave a PCI device to a process.
const VFIO_PCI: &str = "vfio-pci";
/// What the kernel names groups that vfio makes up where there is no IOMMU.
const NO_IOMMU: &str = "vfio-noiommu";

/// The IOMMU group of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its number, by which `/dev/vfio` has it.
    pub number: u32,
    /// All that is in it, the device included, by name.
    pub members: Vec<Member>,
}

/// A device of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name, which is the address of a PCI device.
    pub name: String,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
    /// Whether it is a PCI bridge.
    pub bridge: bool,
}

/// A group that is not handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "IOMMU group {number} has {}, which would share the guest's isolation; \
     unbind each from its driver, or put the VF's card into a slot whose ports have ACS",
    Listed(foreign)
)]
pub struct SharedGroup {
    /// The group.
    pub number: u32,
    /// The members that are in the way.
    pub foreign: Vec<Member>,
}

/// Why the group of a device is not known.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// The node has no working IOMMU.
    #[error(
        "this node has no IOMMU that the kernel uses; turn on VT-d or AMD-Vi in the firmware's settings and, on an Intel \
         node, boot with `intel_iommu=on` (on an AMD node, without `amd_iommu=off`)"
    )]
    NoIommu,
    /// It has one, which does not know this device.
    #[error(
        "`{addr}` is in no IOMMU group although others are; the node's firmware does not put it behind the IOMMU, \
         use a VF of another card"
    )]
    NotBehindIommu {
        /// The device.
        addr: PciAddr,
    },
    /// The group is one that vfio made up.
    #[error(
        "`{addr}` is in a group without an IOMMU, so a guest could read all memory; boot without \
         `vfio.enable_unsafe_noiommu_mode` and with an IOMMU"
    )]
    Unsafe {
        /// The device.
        addr: PciAddr,
    },
    /// Nor is the device.
    #[error(transparent)]
    Device(#[from] DiscoverError),
    /// A part of sysfs cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

struct Listed<'a>(&'a [Member]);

impl Sysfs {
    /// The IOMMU group of the device at `addr`.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn group(&self, addr: PciAddr) -> Result<Group, GroupError> {
        let path = self.existing(addr)?.join("iommu_group");
        let groups = self.root().join("kernel/iommu_groups");
        let Some(name) = sysfs::link_name(&path)? else {
            let any = sysfs::names(&groups)?.is_some_and(|groups| !groups.is_empty());
            return Err(if any { GroupError::NotBehindIommu { addr } } else { GroupError::NoIommu });
        };
        let group = groups.join(&name);
        if sysfs::text(&group.join("name"))?.as_deref() == Some(NO_IOMMU) {
            return Err(GroupError::Unsafe { addr });
        }
        let wanted = "the number of an IOMMU group";
        let number = name.parse().map_err(|_| ReadError::Value { path, text: name, wanted })?;
        Ok(Group { number, members: members(&group)?.unwrap_or_default() })
    }

    /// The IOMMU group of this number; `None` if there is none.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn group_of_number(&self, number: u32) -> Result<Option<Group>, ReadError> {
        let group = self.root().join("kernel/iommu_groups").join(number.to_string());
        Ok(members(&group)?.map(|members| Group { number, members }))
    }
}

/// What is in a group; `None` if there is no such group.
fn members(group: &Path) -> Result<Option<Vec<Member>>, ReadError> {
    let devices = group.join("devices");
    let Some(names) = sysfs::names(&devices)? else { return Ok(None) };
    let member = |name: String| {
        let device = devices.join(&name);
        let class = sysfs::hex(&device.join("class"))?;
        let driver = sysfs::link_name(&device.join("driver"))?;
        Ok(Member { name, driver, bridge: class.is_some_and(|class| class >> 8 == PCI_BRIDGE) })
    };
    names.into_iter().map(member).collect::<Result<_, _>>().map(Some)
}

// === impl Group ===

impl Group {
    /// Whether a guest that gets the devices `ours` may have this group. Every other member has to be harmless.
    ///
    /// Whether somebody has the group open is known by the kernel alone: who opens it second is told `EBUSY`.
    ///
    /// # Errors
    /// [`SharedGroup`] has each device that is in the way.
    pub fn admit(&self, ours: &BTreeSet<PciAddr>) -> Result<(), SharedGroup> {
        let is_ours = |member: &&Member| member.name.parse().is_ok_and(|addr| ours.contains(&addr));
        let foreign = self.members.iter().filter(|member| !is_ours(member) && !member.is_harmless());
        let foreign: Vec<Member> = foreign.cloned().collect();
        if foreign.is_empty() { Ok(()) } else { Err(SharedGroup { number: self.number, foreign }) }
    }
}

impl Member {
    /// Whether it can do no DMA for somebody else.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        self.bridge || self.driver.as_deref().is_none_or(|driver| driver == PCI_STUB)
    }

    /// Whether a driver has it that leaves it to a process: `vfio-pci`, or one of a maker, as `mlx5_vfio_pci`.
    #[must_use]
    pub fn is_on_vfio(&self) -> bool {
        self.driver.as_deref().is_some_and(|driver| driver.replace('_', "-").ends_with(VFIO_PCI))
    }
}

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Member { name, driver, .. }) in self.0.iter().enumerate() {
            let lead = if place == 0 { "" } else { ", " };
            let driver = driver.as_deref().unwrap_or("none");
            write!(f, "{lead}`{name}` (driver `{driver}`)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
