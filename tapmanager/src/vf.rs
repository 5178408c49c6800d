//! VFs that go to guests and come back: who has which, and what the claims of [`sriov`] need of this node.
//!
//! Called by [`crate::pod`] when a pod is attached, armed, handed off, looked at and detached, and by [`crate::daemon`] at
//! the start. [`claims`] takes them and gives them back, [`device`] opens them for QEMU; [`host`] knows netdevs and PFs
//! by netlink, [`notes`] keeps claims on disk.

mod address;
mod claims;
mod device;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod host;
mod notes;
mod problem;

pub(crate) use address::{local, wire};
pub(crate) use claims::{Claims, Done, Wanted, survey};
pub(crate) use device::{Devices, Grant};
#[cfg(any(test, feature = "exercise"))]
pub use exercise::Took;
#[cfg(any(test, feature = "exercise"))]
pub(crate) use exercise::exercise;
pub(crate) use host::HostNet;
pub(crate) use notes::ClaimNotes;
pub(crate) use problem::VfError;
