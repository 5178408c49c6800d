//! Physical functions and which virtual ones they have.
//!
//! Called by [`super`] and by `tapmanager`'s tools and metrics.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-bus-pci`, the `sriov_*` files and the `virtfn<N>` links.

use super::{DiscoverError, pci_addr};
use crate::address::PciAddr;
use crate::sysfs::{self, ReadError, Sysfs};

/// What a PF has and no other device.
const TOTAL: &str = "sriov_totalvfs";

/// A physical function as it stands in sysfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalFunction {
    /// Its address.
    pub addr: PciAddr,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
    /// How many VFs it can have.
    pub total: u32,
    /// How many it has been told to have.
    pub enabled: u32,
    /// Whether the kernel looks for a driver for new VFs. Kernels before 4.12 do not say, and look.
    pub autoprobe: Option<bool>,
    /// The device id of its VFs. Kernels before 4.15 do not say.
    pub vf_device: Option<u32>,
    /// Its netdevs by name, those alone that are in the namespace of [`Sysfs::new`]'s mount.
    pub netdevs: Vec<String>,
    /// Its VFs by number, in their order. There are fewer than `enabled` while the kernel is making them.
    pub vfs: Vec<(u32, PciAddr)>,
}

/// Every physical function, as far as it can be read.
#[derive(Debug, Default)]
pub struct PhysicalFunctions {
    /// Those that were read, in the order of their addresses.
    pub found: Vec<PhysicalFunction>,
    /// Those that were not, and why.
    pub unreadable: Vec<(PciAddr, DiscoverError)>,
}

impl Sysfs {
    /// Every physical function of the node. One that cannot be read hides no other.
    ///
    /// # Errors
    /// If the folder of all PCI devices is there and cannot be read. A node without PCI has no PFs.
    pub fn physical_functions(&self) -> Result<PhysicalFunctions, ReadError> {
        let mut all = PhysicalFunctions::default();
        for addr in self.physical_addresses()? {
            match self.physical_function(addr) {
                Ok(found) => all.found.extend(found),
                // Gone since it was listed.
                Err(DiscoverError::NoDevice { .. }) => {}
                Err(error) => all.unreadable.push((addr, error)),
            }
        }
        Ok(all)
    }

    /// Addresses of the physical functions, in their order. Waits for none of them.
    ///
    /// # Errors
    /// As [`Self::physical_functions`].
    pub fn physical_addresses(&self) -> Result<Vec<PciAddr>, ReadError> {
        let names = sysfs::names(&self.bus().join("devices"))?.unwrap_or_default();
        // Anything else in this folder is none of ours.
        let addrs = names.iter().filter_map(|name| name.parse().ok());
        let mut addrs: Vec<PciAddr> = addrs.filter(|addr| self.device(*addr).join(TOTAL).exists()).collect();
        addrs.sort();
        Ok(addrs)
    }

    /// The physical function at `addr`; `None` if the device there can have no VFs.
    ///
    /// Waits in the kernel while `sriov_numvfs` is being written: that takes as long as a guest has one of the VFs that go.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    pub fn physical_function(&self, addr: PciAddr) -> Result<Option<PhysicalFunction>, DiscoverError> {
        const COUNT: &str = "a number of VFs";
        let device = self.existing(addr)?;
        let Some(total) = sysfs::number(&device.join(TOTAL), COUNT)? else { return Ok(None) };
        let enabled = sysfs::number(&device.join("sriov_numvfs"), COUNT)?.unwrap_or(0);
        let autoprobe = sysfs::number::<u8>(&device.join("sriov_drivers_autoprobe"), "0 or 1")?.map(|flag| flag != 0);
        let vf_device = self.vf_device(addr)?;
        let driver = self.driver(addr)?;
        let (netdevs, vfs) = (self.netdevs(addr)?, self.vfs_of(addr)?);
        Ok(Some(PhysicalFunction { addr, driver, total, enabled, autoprobe, vf_device, netdevs, vfs }))
    }

    /// The number by which the PF `pf` knows `addr`.
    pub(super) fn number_of(&self, pf: PciAddr, addr: PciAddr) -> Result<Option<u32>, DiscoverError> {
        let device = self.device(pf);
        // They are numbered from 0, so the folder, which has much else, need not be read.
        for number in 0.. {
            let path = device.join(format!("virtfn{number}"));
            match sysfs::link_name(&path)? {
                Some(target) if pci_addr(&path, &target)? == addr => return Ok(Some(number)),
                Some(_) => {}
                None => break,
            }
        }
        // It was none of those before the first gap, which the kernel leaves while it takes them away.
        Ok(self.vfs_of(pf)?.into_iter().find_map(|(number, vf)| (vf == addr).then_some(number)))
    }

    /// The VFs of a PF by number.
    fn vfs_of(&self, pf: PciAddr) -> Result<Vec<(u32, PciAddr)>, DiscoverError> {
        let device = self.device(pf);
        let mut vfs = Vec::new();
        for name in sysfs::names(&device)?.unwrap_or_default() {
            let Some(number) = name.strip_prefix("virtfn").and_then(|number| number.parse().ok()) else { continue };
            let path = device.join(&name);
            // The kernel may be taking it away meanwhile.
            let Some(target) = sysfs::link_name(&path)? else { continue };
            vfs.push((number, pci_addr(&path, &target)?));
        }
        vfs.sort_unstable();
        Ok(vfs)
    }

    /// The device id of the VFs of `pf`. Unlike other ids, it is printed without `0x`.
    ///
    /// # Errors
    /// If it is there and cannot be read.
    pub fn vf_device(&self, pf: PciAddr) -> Result<Option<u32>, ReadError> {
        let path = self.device(pf).join("sriov_vf_device");
        let Some(text) = sysfs::text(&path)? else { return Ok(None) };
        let Ok(id) = u32::from_str_radix(&text, 16) else {
            return Err(ReadError::Value { path, text, wanted: "a device id" });
        };
        Ok(Some(id))
    }
}
