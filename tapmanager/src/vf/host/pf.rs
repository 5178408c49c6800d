//! Settings of VFs at their PFs.
//!
//! Called by the claims of VFs, by the port [`PfControl`]. A PF is found by its PCI address. Several netdevs may be ports of
//! it (representors of its VFs): the one that tells of VFs is meant.

use common::Reason;
use nix::errno::Errno;
use sriov::PciAddr;
use sriov::settings::{Attribute, ControlError, PfControl, VfSettings};

use super::HostNet;
use crate::sys::link;
use crate::sys::netlink::NetlinkError;
use crate::sys::vf::{self, VfList};

impl PfControl for HostNet {
    fn read(&mut self, pf: PciAddr, number: u32) -> Result<VfSettings, ControlError> {
        let list = self.list(pf).map_err(failed)?;
        list.vfs.get(&number).cloned().ok_or_else(|| failed(untold(pf, number, &list)))
    }

    fn write(&mut self, pf: PciAddr, number: u32, attribute: Attribute) -> Result<(), ControlError> {
        let index = match self.pfs.get(&pf) {
            Some(index) => *index,
            None => self.look_for(pf).map_err(failed)?.0,
        };
        match vf::set(&mut self.netlink, index, number, attribute) {
            Err(error) if error.errno() == Some(Errno::EOPNOTSUPP) => Err(ControlError::Unsupported),
            Err(error) => {
                // It may have got another netdev meanwhile.
                self.pfs.remove(&pf);
                Err(ControlError::Failed(error.into()))
            }
            Ok(()) => Ok(()),
        }
    }
}

impl HostNet {
    /// What the PF tells of its VFs.
    fn list(&mut self, pf: PciAddr) -> Result<VfList, Reason> {
        if let Some(index) = self.pfs.get(&pf).copied() {
            match vf::list(&mut self.netlink, index) {
                Ok(list) if pci_of(&list) == Some(pf) => return Ok(list),
                Err(error) if !error.is_absent() => return Err(unlisted(pf, error)),
                // Another netdev, or none.
                _ => drop(self.pfs.remove(&pf)),
            }
        }
        Ok(self.look_for(pf)?.1)
    }

    /// The PF's netdev, and what it tells.
    fn look_for(&mut self, pf: PciAddr) -> Result<(u32, VfList), Reason> {
        if let Some(list) = self.look_by_name(pf) {
            self.pfs.insert(pf, list.index);
            return Ok((list.index, list));
        }
        let unknown = |cause| Reason::new(format!("failed to look for the netdev of PF `{pf}`")).with(cause);
        let links = link::links(&mut self.netlink).map_err(unknown)?;
        let mut first = None;
        for link in links.iter().filter(|link| (self.whose)(link) == Some(pf)) {
            let list = match vf::list(&mut self.netlink, link.index) {
                Err(error) if error.is_absent() => continue,
                list => list.map_err(|error| unlisted(pf, error))?,
            };
            let tells = !list.vfs.is_empty();
            let found = first.get_or_insert_with(|| (link.index, list.clone()));
            if tells {
                *found = (link.index, list);
                break;
            }
        }
        let found = first.ok_or_else(|| self.no_netdev(pf))?;
        self.pfs.insert(pf, found.0);
        Ok(found)
    }

    /// What the netdev tells whose name sysfs has for the PF: on a node with many pods a listing of all links is long. `None`
    /// unless that netdev is the PF's and tells of VFs: sysfs may show another namespace's, or a representor.
    fn look_by_name(&mut self, pf: PciAddr) -> Option<VfList> {
        let names = self.sysfs.netdevs(pf).unwrap_or_default();
        let mut told = names.iter().filter_map(|name| vf::list_of(&mut self.netlink, name).ok());
        told.find(|list| pci_of(list) == Some(pf) && !list.vfs.is_empty())
    }

    fn no_netdev(&self, pf: PciAddr) -> Reason {
        let device = match self.sysfs.physical_function(pf) {
            Err(cause) => return Reason::new(format!("PF `{pf}` has no netdev that can be found")).with(cause),
            Ok(device) => device,
        };
        let Some(device) = device else { return Reason::new(format!("`{pf}` is not a PF: it can have no VFs")) };
        Reason::new(match device.driver {
            None => format!("PF `{pf}` has no driver, and so no netdev; bind its own driver"),
            Some(driver) => format!(
                "PF `{pf}` has the driver `{driver}` and no netdev in the host's network namespace; if it was moved into \
                 another one, move it back, or else see the kernel's log"
            ),
        })
    }
}

fn pci_of(list: &VfList) -> Option<PciAddr> {
    list.pci.as_deref()?.parse().ok()
}

fn failed(reason: Reason) -> ControlError {
    ControlError::Failed(reason.into())
}

fn unlisted(pf: PciAddr, error: NetlinkError) -> Reason {
    let text = match error.errno() {
        // Newer kernels see that the list of VFs is too long for its length, and give none.
        Some(Errno::EMSGSIZE) => {
            format!("the kernel cannot list as many VFs as PF `{pf}` has; let it have fewer (`sriov_numvfs`)")
        }
        _ => format!("failed to list the VFs of PF `{pf}`"),
    };
    Reason::new(text).with(error)
}

fn untold(pf: PciAddr, number: u32, list: &VfList) -> Reason {
    let VfList { name, enabled, vfs, .. } = list;
    let told = vfs.len();
    Reason::new(if *enabled <= number {
        format!("PF `{pf}` (`{name}`) has {enabled} VFs and no VF {number}; see its `sriov_numvfs`")
    } else if told == 0 {
        format!(
            "the driver of PF `{pf}` (`{name}`) tells nothing of its {enabled} VFs, VF {number} among them; see `ip link show {name}`"
        )
    } else {
        format!(
            "PF `{pf}` (`{name}`) tells of {told} of its {enabled} VFs, and not of VF {number}; let it have fewer \
             (`sriov_numvfs`), or use a newer kernel"
        )
    })
}

#[cfg(test)]
mod tests;
