//! A node as a claim needs it: devices by sysfs, the rest by the caller's netlink.
//!
//! Called by `tapmanager`, which makes one with its own [`Links`] and [`PfControl`].

use std::time::Duration;

use super::world::{Cause, Devices, Links, Netdev, Place};
use crate::address::PciAddr;
use crate::device::Seen;
use crate::group::Group;
use crate::mac::Mac;
use crate::reset::Reset;
use crate::settings::{Attribute, ControlError, PfControl, VfSettings};
use crate::sysfs::Sysfs;

/// Devices by sysfs, netdevs and settings by `net`.
#[derive(Debug)]
pub struct Node<N> {
    /// Where the devices are.
    pub sysfs: Sysfs,
    /// Who knows the netdevs and PFs.
    pub net: N,
}

impl Devices for Sysfs {
    fn look(&mut self, vf: PciAddr) -> Result<Option<Seen>, Cause> {
        Ok(Self::look(self, vf)?)
    }

    fn group(&mut self, vf: PciAddr) -> Result<Group, Cause> {
        Ok(Self::group(self, vf)?)
    }

    fn expect_driver(&mut self, driver: &str) -> Result<(), Cause> {
        Ok(Self::expect_driver(self, driver)?)
    }

    fn set_driver_override(&mut self, vf: PciAddr, driver: Option<&str>) -> Result<(), Cause> {
        Ok(Self::set_driver_override(self, vf, driver)?)
    }

    fn unbind(&mut self, vf: PciAddr) -> Result<(), Cause> {
        Ok(Self::unbind(self, vf)?)
    }

    fn probe(&mut self, vf: PciAddr, driver: &str) -> Result<(), Cause> {
        Ok(Self::probe(self, vf, driver)?)
    }

    fn in_use(&mut self, vf: PciAddr) -> Result<bool, Cause> {
        Ok(Self::in_use(self, vf)?)
    }

    fn reset(&mut self, vf: PciAddr) -> Result<Reset, Cause> {
        Ok(Self::reset(self, vf)?)
    }
}

impl<N> Devices for Node<N> {
    fn look(&mut self, vf: PciAddr) -> Result<Option<Seen>, Cause> {
        Devices::look(&mut self.sysfs, vf)
    }

    fn group(&mut self, vf: PciAddr) -> Result<Group, Cause> {
        Devices::group(&mut self.sysfs, vf)
    }

    fn expect_driver(&mut self, driver: &str) -> Result<(), Cause> {
        Devices::expect_driver(&mut self.sysfs, driver)
    }

    fn set_driver_override(&mut self, vf: PciAddr, driver: Option<&str>) -> Result<(), Cause> {
        Devices::set_driver_override(&mut self.sysfs, vf, driver)
    }

    fn unbind(&mut self, vf: PciAddr) -> Result<(), Cause> {
        Devices::unbind(&mut self.sysfs, vf)
    }

    fn probe(&mut self, vf: PciAddr, driver: &str) -> Result<(), Cause> {
        Devices::probe(&mut self.sysfs, vf, driver)
    }

    fn in_use(&mut self, vf: PciAddr) -> Result<bool, Cause> {
        Devices::in_use(&mut self.sysfs, vf)
    }

    fn reset(&mut self, vf: PciAddr) -> Result<Reset, Cause> {
        Devices::reset(&mut self.sysfs, vf)
    }
}

impl<N: Links> Links for Node<N> {
    fn netns_exists(&mut self, netns: &str) -> Result<bool, Cause> {
        self.net.netns_exists(netns)
    }

    fn find(&mut self, vf: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        self.net.find(vf, place)
    }

    fn await_netdev(&mut self, vf: PciAddr, limit: Duration) -> Result<Option<Netdev>, Cause> {
        self.net.await_netdev(vf, limit)
    }

    fn shape(&mut self, place: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause> {
        self.net.shape(place, index, mac, mtu)
    }

    fn move_into(&mut self, index: u32, netns: &str, name: &str) -> Result<(), Cause> {
        self.net.move_into(index, netns, name)
    }

    fn dress(&mut self, netns: &str, index: u32, saved: &Netdev) -> Result<(), Cause> {
        self.net.dress(netns, index, saved)
    }
}

impl<N: PfControl> PfControl for Node<N> {
    fn read(&mut self, pf: PciAddr, number: u32) -> Result<VfSettings, ControlError> {
        self.net.read(pf, number)
    }

    fn write(&mut self, pf: PciAddr, number: u32, attribute: Attribute) -> Result<(), ControlError> {
        self.net.write(pf, number, attribute)
    }
}
