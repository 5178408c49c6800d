//! What may be handed to a guest, and what a guest may do with it.
//!
//! Called by `claim` before anything is changed. Pure.
//!
//! A PF is never handed out: whoever has it has all of its VFs. Nor is a VF that something else uses, as far as that can
//! be seen: it has a driver that is neither vfio-pci nor one that gives it a netdev in the pod. Whether a process
//! has a VF of vfio-pci open is not to be seen: the kernel tells whoever opens it second (`EBUSY`).
//!
//! A guest cannot change its VLAN, which its PF tags, nor its address: the PF lays that down, checks the guest's frames and
//! does not trust it, unless the user asks otherwise.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::PciAddr;
use crate::bind::VFIO_PCI;
use crate::device::{Function, Seen};
use crate::settings::{VfSettings, Wanted};

/// How a VF comes to us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Arrival {
    /// As a netdev in a pod's namespace, where a CNI plugin put it.
    Netdev {
        /// The namespace, in the caller's words.
        netns: String,
        /// The netdev's name there.
        name: String,
    },
    /// Bound to vfio-pci, as a device plugin has it. It has no netdev, then or later.
    Vfio,
}

/// Why a device is not handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is a PF.
    #[error(
        "it is a physical function, and who has it has all of its VFs; make VFs (`sriov_numvfs`) and name one of them"
    )]
    Physical,
    /// It is neither PF nor VF.
    #[error("it is no SR-IOV virtual function; name one, as `/sys/bus/pci/devices/PF/virtfn0` leads to")]
    NotVirtual,
    /// A VF that should come as a netdev has no driver that could make one.
    #[error(
        "{}, and was said to be `{name}` in the pod; have the CNI plugin and the device plugin agree on it",
        Has(driver.as_deref())
    )]
    NoNetdev {
        /// Its driver.
        driver: Option<String>,
        /// Name of the netdev.
        name: String,
    },
    /// Its netdev is not where it was said to be.
    #[error(
        "it has the driver `{driver}` and no netdev in the pod, where it was said to be `{name}`; something else uses it, \
         or the CNI plugin left it elsewhere"
    )]
    Elsewhere {
        /// Its driver.
        driver: String,
        /// Name of the netdev.
        name: String,
    },
    /// The netdev has another name.
    #[error(
        "its netdev in the pod is `{found}` and was said to be `{name}`; two VFs are mixed up, look at the CNI result"
    )]
    OtherName {
        /// The name that it has.
        found: String,
        /// The name that was said.
        name: String,
    },
    /// A VF that should come on vfio-pci does not.
    #[error(
        "{} instead of `{VFIO_PCI}`; something else uses it, or nobody bound it (`driverctl set-override`)",
        Has(driver.as_deref())
    )]
    NotVfio {
        /// Its driver.
        driver: Option<String>,
    },
}

struct Has<'a>(Option<&'a str>);

/// The PF and the number of a VF that may be handed out, going by its driver.
///
/// # Errors
/// See [`Refusal`].
pub fn admit(seen: &Seen, arrival: &Arrival) -> Result<(PciAddr, u32), Refusal> {
    let whose = match seen.function {
        Function::Virtual { pf, number } => (pf, number),
        Function::Physical => return Err(Refusal::Physical),
        Function::Plain => return Err(Refusal::NotVirtual),
    };
    let vfio = seen.driver.as_deref() == Some(VFIO_PCI);
    let driver = seen.driver.clone();
    match arrival {
        Arrival::Vfio if vfio => Ok(whose),
        Arrival::Vfio => Err(Refusal::NotVfio { driver }),
        Arrival::Netdev { name, .. } if vfio || driver.is_none() => {
            Err(Refusal::NoNetdev { driver, name: name.clone() })
        }
        Arrival::Netdev { .. } => Ok(whose),
    }
}

/// Whether a VF that came as a netdev has it where it was said to be. `found` is the name of what it has in the pod.
///
/// # Errors
/// See [`Refusal`].
pub fn admit_netdev(driver: &str, name: &str, found: Option<&str>) -> Result<(), Refusal> {
    match found {
        Some(found) if found == name => Ok(()),
        Some(found) => Err(Refusal::OtherName { found: found.to_owned(), name: name.to_owned() }),
        None => Err(Refusal::Elsewhere { driver: driver.to_owned(), name: name.to_owned() }),
    }
}

/// What a guest's VF shall have when `asked` was asked for.
#[must_use]
pub fn guarded(asked: VfSettings) -> Wanted {
    let otherwise = VfSettings { spoofchk: Some(true), trust: Some(false), ..VfSettings::default() };
    Wanted { asked, otherwise }
}

impl fmt::Display for Has<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(driver) => write!(f, "it has the driver `{driver}`"),
            None => f.write_str("it has no driver"),
        }
    }
}

#[cfg(test)]
mod tests;
