//! The node in memory as the ports of a claim.

use std::time::Duration;

use super::{BINDING, DRIVER, Model, State};
use crate::PciAddr;
use crate::claim::{Cause, Claim, Devices, Links, Netdev, Notes, Place, Step};
use crate::device::{Function, Seen};
use crate::group::{Group, Member};
use crate::mac::Mac;
use crate::reset::Reset;
use crate::settings::{Attribute, ControlError, PfControl, VfSettings};

impl Devices for Model {
    fn look(&mut self, _: PciAddr) -> Result<Option<Seen>, Cause> {
        self.call(|node| {
            let State { present, incarnation, driver, driver_override, .. } = node.state.clone();
            let function = Function::Virtual { pf: super::super::pf(), number: 3 };
            Ok(present.then_some(Seen { function, driver, driver_override, incarnation }))
        })
    }

    fn group(&mut self, vf: PciAddr) -> Result<Group, Cause> {
        self.call(|node| {
            node.there()?;
            let us = Member { name: vf.to_string(), driver: node.state.driver.clone(), bridge: false };
            let members = node.others.iter().cloned().chain([us]).collect();
            Ok(Group { number: 6, members })
        })
    }

    fn expect_driver(&mut self, driver: &str) -> Result<(), Cause> {
        self.call(|node| if node.loaded { Ok(()) } else { Err(format!("no driver {driver}").into()) })
    }

    fn set_driver_override(&mut self, _: PciAddr, driver: Option<&str>) -> Result<(), Cause> {
        self.change(BINDING, "override", |node| {
            node.state.driver_override = driver.map(str::to_owned);
            Ok(())
        })
    }

    fn unbind(&mut self, _: PciAddr) -> Result<(), Cause> {
        self.change(BINDING, "unbind", |node| {
            assert!(!node.guest, "a guest that runs lost its VF in {:?}", node.case);
            assert!(!node.state.dirty || !node.resettable, "not reset in {:?}", node.case);
            node.state.driver = None;
            node.state.netdev = None;
            node.coming = false;
            Ok(())
        })
    }

    fn probe(&mut self, _: PciAddr, driver: &str) -> Result<(), Cause> {
        self.change(BINDING, "probe", |node| {
            if node.state.driver.as_deref() == Some(driver) {
                return Ok(());
            }
            // As if `sriov_drivers_autoprobe` were 0.
            if node.state.driver.is_some() || node.state.driver_override.as_deref() != Some(driver) {
                return Err("not taken".into());
            }
            node.state.driver = Some(driver.to_owned());
            node.coming = driver == DRIVER;
            if driver == DRIVER {
                assert_eq!(node.state.settings, node.original, "the driver got a guest's address in {:?}", node.case);
                node.state.settings.trust = node.state.settings.trust.map(|trust| trust && !node.meddling);
            }
            Ok(())
        })
    }

    fn in_use(&mut self, _: PciAddr) -> Result<bool, Cause> {
        self.call(|node| Ok(node.guest))
    }

    fn reset(&mut self, _: PciAddr) -> Result<Reset, Cause> {
        self.change(&[Step::Rebinding], "reset", |node| {
            assert!(!node.guest, "a guest that runs was reset in {:?}", node.case);
            node.state.dirty &= !node.resettable;
            Ok(())
        })?;
        Ok(if self.0.borrow().resettable { Reset::Done } else { Reset::NoMethod })
    }
}

impl Links for Model {
    fn netns_exists(&mut self, _: &str) -> Result<bool, Cause> {
        self.call(|node| Ok(node.state.netns))
    }

    fn find(&mut self, _: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        self.call(|node| node.netdev_at(place))
    }

    fn await_netdev(&mut self, _: PciAddr, _: Duration) -> Result<Option<Netdev>, Cause> {
        self.call(|node| {
            if node.coming {
                let own = node.state.settings.mac.filter(|mac| mac.0 != [0; 6]).unwrap_or(Mac([0xaa; 6]));
                let index = node.next_index;
                node.next_index += 1;
                let netdev = Netdev { name: "eth0".into(), index, mac: own, mtu: 1500, up: false, extra: None };
                node.state.netdev = Some((netdev, false));
                node.coming = false;
            }
            node.netdev_at(Place::Host)
        })
    }

    fn shape(&mut self, place: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause> {
        self.change(&[Step::Rebinding], "shape", |node| {
            node.netdev_at(place)?.ok_or("no netdev there")?;
            let (netdev, _) = node.netdev_mut(index)?;
            (netdev.mac, netdev.mtu) = (mac, mtu);
            Ok(())
        })
    }

    fn move_into(&mut self, index: u32, _: &str, name: &str) -> Result<(), Cause> {
        self.change(&[Step::Rebinding], "move", |node| {
            if !node.state.netns {
                return Err("no such namespace".into());
            }
            let (netdev, in_pod) = node.netdev_mut(index)?;
            *in_pod = true;
            name.clone_into(&mut netdev.name);
            Ok(())
        })
    }

    fn dress(&mut self, netns: &str, index: u32, saved: &Netdev) -> Result<(), Cause> {
        self.change(&[Step::Rebinding], "dress", |node| {
            node.netdev_at(Place::Netns(netns))?.ok_or("no netdev there")?;
            let (netdev, _) = node.netdev_mut(index)?;
            (netdev.up, netdev.extra) = (saved.up, saved.extra.clone());
            let own = netdev.mac;
            if node.reporting && node.state.settings.mac == Some(Mac::UNSET) {
                node.state.settings.mac = Some(own);
            }
            Ok(())
        })
    }
}

impl PfControl for Model {
    fn read(&mut self, _: PciAddr, _: u32) -> Result<VfSettings, ControlError> {
        Ok(self.call(|node| {
            node.there()?;
            Ok(node.state.settings.clone())
        })?)
    }

    fn write(&mut self, _: PciAddr, _: u32, attribute: Attribute) -> Result<(), ControlError> {
        if self.0.borrow().refused.contains(&attribute.kind()) {
            return Err(ControlError::Unsupported);
        }
        Ok(self.change(&[Step::Saved, Step::Rebinding], "settings", |node| {
            node.state.settings.set(attribute);
            Ok(())
        })?)
    }
}

impl Notes for Model {
    fn noted(&mut self, _: PciAddr) -> Result<Option<Claim>, Cause> {
        self.call(|node| Ok(node.disk.clone()))
    }

    fn flush(&mut self, claim: &Claim) -> Result<(), Cause> {
        self.call(|node| {
            node.disk = Some(claim.clone());
            Ok(())
        })
    }
}
