//! Netdevs of VFs and settings at their PFs, by route netlink.
//!
//! Called by the claims of VFs, which get their devices by [`sriov::Sysfs`] and all else here: [`links`] implements
//! [`sriov::claim::Links`], [`pf`] implements [`sriov::settings::PfControl`].
//!
//! - All functions block: call them off the reactor. The calling thread may be anywhere: a pod's operation is in the
//!   pod's namespace at times. So the host's namespace is held open, and entered like a pod's, by a thread that ends.
//! - The host's namespace is that in which tapmanager began. Drivers make netdevs in the kernel's first one: if tapmanager is
//!   started elsewhere, it finds none.
//! - A netdev is told by the PCI device that it is a port of. Its name may change meanwhile (udev), so all is done by
//!   index.

mod links;
mod pf;

use std::collections::BTreeMap;
use std::path::Path;

use common::Reason;
use sriov::claim::Cause;
use sriov::{PciAddr, Sysfs};

use crate::sys::link::Link;
use crate::sys::netlink::Netlink;
use crate::sys::netns::Netns;

/// The PCI device that a link is a port of.
type Whose = fn(&Link) -> Option<PciAddr>;

/// The host's network, and the way into pods'.
#[derive(Debug)]
pub(crate) struct HostNet {
    host: Netns,
    /// Of the host's namespace.
    netlink: Netlink,
    /// Says why a PF has no netdev.
    sysfs: Sysfs,
    whose: Whose,
    /// Sockets in pods' namespaces, by these: the way into one takes a thread.
    pods: BTreeMap<String, Netlink>,
    /// Indices of PFs' netdevs as they were found.
    pfs: BTreeMap<PciAddr, u32>,
}

// === impl HostNet ===

impl HostNet {
    /// The network of this process's first thread.
    ///
    /// # Errors
    /// If the kernel does not let us into it.
    pub(crate) fn open(sysfs: Sysfs) -> Result<Self, Reason> {
        let failed = Reason::because("failed to open the host's network namespace");
        Self::of(Netns::of_process().map_err(failed)?, sysfs, pci)
    }

    /// The network of that namespace, as if this process were in it.
    #[cfg(test)]
    pub(crate) fn in_netns(host: Netns, sysfs: Sysfs) -> Result<Self, Reason> {
        Self::of(host, sysfs, pci)
    }

    /// The host's namespace.
    pub(crate) const fn host(&self) -> &Netns {
        &self.host
    }

    fn of(host: Netns, sysfs: Sysfs, whose: Whose) -> Result<Self, Reason> {
        let netlink = socket(&host)?;
        Ok(Self { host, netlink, sysfs, whose, pods: BTreeMap::new(), pfs: BTreeMap::new() })
    }
}

/// A netlink socket in a pod's namespace, opened once.
fn of_pod<'a>(pods: &'a mut BTreeMap<String, Netlink>, netns: &str) -> Result<&'a mut Netlink, Cause> {
    if !pods.contains_key(netns) {
        let opened = socket(&pod(netns)?)?;
        pods.insert(netns.to_owned(), opened);
    }
    let gone = || Reason::new(format!("namespace `{netns}` is gone"));
    Ok(pods.get_mut(netns).ok_or_else(gone)?)
}

/// A netlink socket in this namespace.
fn socket(netns: &Netns) -> Result<Netlink, Reason> {
    let place = || format!("failed to open a netlink socket in `{}`", netns.path().display());
    let opened = netns.inside(Netlink::open).map_err(|cause| Reason::new(place()).with(cause))?;
    opened.map_err(|cause| Reason::new(place()).with(cause))
}

/// A pod's namespace, which is there.
fn pod(netns: &str) -> Result<Netns, Cause> {
    let gone = || Reason::new(format!("namespace `{netns}` is gone"));
    Ok(Netns::open(Path::new(netns))?.ok_or_else(gone)?)
}

fn pci(link: &Link) -> Option<PciAddr> {
    link.pci.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests;
