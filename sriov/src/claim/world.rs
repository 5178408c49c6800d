//! What a claim needs of the node: ports for devices, netdevs and settings.
//!
//! Called by [`super::take`], [`super::give`] and [`super::repair`]. [`Devices`] is implemented here ([`super::node`]), the
//! rest by `tapmanager`. Each call is one step that may be repeated: fine if it is so already.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::address::PciAddr;
use crate::device::Seen;
use crate::group::Group;
use crate::mac::Mac;
use crate::reset::Reset;
use crate::settings::PfControl;

/// Why a port did not do it.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A VF's netdev.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Netdev {
    /// Its name.
    pub name: String,
    /// Its index in its namespace. It gets another one when its driver is bound again.
    pub index: u32,
    /// Its address.
    pub mac: Mac,
    /// Its MTU.
    pub mtu: u32,
    /// Whether it is up.
    pub up: bool,
    /// What else goes with it and is to be put back, such as IP addresses and routes, in the caller's words. The same
    /// state has the same words.
    pub extra: Option<String>,
}

/// Where a netdev is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// In the host's namespace, where a driver makes it.
    Host,
    /// In a pod's, in the words of the request.
    Netns(&'a str),
}

/// Devices and their drivers.
pub trait Devices {
    /// The device as it is now; `None` if there is none.
    ///
    /// # Errors
    /// If that cannot be told.
    fn look(&mut self, vf: PciAddr) -> Result<Option<Seen>, Cause>;

    /// Its IOMMU group.
    ///
    /// # Errors
    /// If there is none, or it cannot be told.
    fn group(&mut self, vf: PciAddr) -> Result<Group, Cause>;

    /// Succeeds if the kernel has this driver.
    ///
    /// # Errors
    /// If not.
    fn expect_driver(&mut self, driver: &str) -> Result<(), Cause>;

    /// Says which driver alone may take the device. The driver that is bound stays.
    ///
    /// # Errors
    /// If it does not hold.
    fn set_driver_override(&mut self, vf: PciAddr, driver: Option<&str>) -> Result<(), Cause>;

    /// Takes the device from its driver. May take seconds.
    ///
    /// # Errors
    /// If it still has it.
    fn unbind(&mut self, vf: PciAddr) -> Result<(), Cause>;

    /// Has `driver` take the device, whose override it is.
    ///
    /// # Errors
    /// If it has not taken it.
    fn probe(&mut self, vf: PciAddr, driver: &str) -> Result<(), Cause>;

    /// Whether a process has the device open, as far as the kernel tells: a machine, of a device that vfio-pci has.
    ///
    /// # Errors
    /// If that cannot be told.
    fn in_use(&mut self, vf: PciAddr) -> Result<bool, Cause>;

    /// Resets the device.
    ///
    /// # Errors
    /// If every way failed.
    fn reset(&mut self, vf: PciAddr) -> Result<Reset, Cause>;
}

/// VFs' netdevs.
pub trait Links {
    /// Whether the namespace is there.
    ///
    /// # Errors
    /// If that cannot be told.
    fn netns_exists(&mut self, netns: &str) -> Result<bool, Cause>;

    /// The VF's netdev at this place; `None` if it has none there.
    ///
    /// # Errors
    /// If that cannot be told.
    fn find(&mut self, vf: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause>;

    /// The VF's netdev in the host's namespace, as soon as there is one; `None` if there was none within `limit`.
    /// To be awaited by netlink's notifications.
    ///
    /// # Errors
    /// If that cannot be told.
    fn await_netdev(&mut self, vf: PciAddr, limit: Duration) -> Result<Option<Netdev>, Cause>;

    /// Gives a netdev its address and its MTU; takes it down if its driver demands it.
    ///
    /// # Errors
    /// If it has them not.
    fn shape(&mut self, place: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause>;

    /// Moves a netdev from the host's namespace into a pod's and names it, in one request: its name may be taken in the
    /// host's.
    ///
    /// # Errors
    /// If it is not there.
    fn move_into(&mut self, index: u32, netns: &str, name: &str) -> Result<(), Cause>;

    /// Gives a netdev in a pod's namespace the rest of what `saved` says: name, up or down, `extra`.
    ///
    /// # Errors
    /// If it has it not.
    fn dress(&mut self, netns: &str, index: u32, saved: &Netdev) -> Result<(), Cause>;
}

/// The node.
pub trait World: Devices + Links + PfControl {}

impl<W: Devices + Links + PfControl> World for W {}
