//! SR-IOV virtual functions (VFs) of a node: which there are, and their way to a guest and back.
//!
//! Called by `tapmanager`: its network plan must know a VF when a CNI plugin put one into a pod, its pods' actors claim it
//! and give it back, and its tools tell about all of that. `controld` asks it what the files are that a device plugin names.
//!
//! A leaf: it knows neither netlink nor pods, has no threads and no clock. It reads and writes sysfs below a root that
//! the caller gives (`/sys`, or a fixture), and asks for the rest through ports: [`settings::PfControl`] for what a PF
//! lays down for its VFs, [`claim::Links`] for netdevs, [`claim::Notes`] for the journal.
//!
//! | module | what it knows |
//! |---|---|
//! | [`device`] | PFs and VFs, and what sysfs says of them |
//! | [`group`] | IOMMU groups, and whether one may go to a guest |
//! | [`bind`] | which driver has a device, and how it gets another |
//! | [`reset`], [`vfio`] | resets; the files by which a process gets a device |
//! | [`settings`] | address, VLAN, rates and rights of a VF at its PF |
//! | [`policy`] | what may be handed out, and what its guest may do |
//! | [`claim`] | the machine: each step noted, repeatable, and undone |

mod address;
pub mod bind;
pub mod claim;
pub mod device;
pub mod group;
mod mac;
pub mod policy;
pub mod reset;
pub mod settings;
mod sysfs;
pub mod vfio;

#[cfg(test)]
mod fixture;

pub use address::{PciAddr, PciAddrError};
pub use device::{DiscoverError, VirtualFunction, virtual_function};
pub use mac::{Mac, MacError};
pub use sysfs::{ReadError, Sysfs};
