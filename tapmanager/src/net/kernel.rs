//! The verbs of [`super::apply`] on the real kernel, in the namespace of the calling thread.
//!
//! Made by [`crate::net`] from what [`super::observe`] saw. Plans speak of names and the kernel of indices: the table
//! between them is here.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use proto::tap::{IfName, MacAddr};

use super::Port;
use super::apply::{Links, Listeners, Makes, StepError};
use super::filter::Guard;
use super::observe::Observed;
use crate::sys::bpf::Program;
use crate::sys::netlink::{Netlink, NetlinkError};
use crate::sys::tc::{Hook, Redirect};
use crate::sys::{bridge, link, macvtap, tap, tc};

/// The kernel as seen from inside a pod's namespace.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    netlink: Netlink,
    observed: &'a Observed,
    indices: BTreeMap<IfName, u32>,
}

impl<'a> Kernel<'a> {
    /// Works through `netlink` on the links that were seen, and on those that it makes.
    pub(crate) fn new(netlink: Netlink, observed: &'a Observed) -> Self {
        let indices = observed.links.iter().map(|link| (link.name.clone(), link.index)).collect();
        Self { netlink, observed, indices }
    }

    fn index(&self, link: &IfName) -> Result<u32, StepError> {
        self.indices.get(link).copied().ok_or_else(|| StepError::LinkGone { link: link.clone() })
    }

    /// Notes a link that was just made.
    fn made(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = if_nametoindex(link.as_str()).map_err(|_| StepError::LinkGone { link: link.clone() })?;
        self.indices.insert(link.clone(), index);
        Ok(())
    }
}

/// Of a link that was made: its name may be taken.
fn creating(link: &IfName, done: Result<(), NetlinkError>) -> Result<(), StepError> {
    match done {
        Err(error) if error.errno() == Some(Errno::EEXIST) => Err(StepError::Exists { link: link.clone() }),
        done => Ok(done?),
    }
}

impl Makes for Kernel<'_> {
    fn create_tap(&mut self, tap: &IfName, queues: u16) -> Result<(), StepError> {
        tap::create(tap, queues)?;
        self.made(tap)
    }

    fn delete_tap(&mut self, tap: &IfName, queues: u16) -> Result<(), StepError> {
        tap::remove(tap, queues)?;
        self.indices.remove(tap);
        Ok(())
    }

    fn create_bridge(&mut self, name: &IfName, mac: MacAddr) -> Result<(), StepError> {
        creating(name, bridge::create(&mut self.netlink, name, mac))?;
        self.made(name)
    }

    fn create_macvtap(&mut self, tap: &IfName, link: &IfName) -> Result<(), StepError> {
        let lower = self.index(link)?;
        creating(tap, macvtap::create(&mut self.netlink, tap, lower))?;
        self.made(tap)
    }

    fn delete_link(&mut self, name: &IfName) -> Result<(), StepError> {
        if let Some(index) = self.indices.remove(name) {
            link::delete(&mut self.netlink, index)?;
        }
        Ok(())
    }
}

impl Links for Kernel<'_> {
    fn set_noqueue(&mut self, tap: &IfName) -> Result<(), StepError> {
        let index = self.index(tap)?;
        Ok(tc::set_noqueue(&mut self.netlink, index)?)
    }

    fn shape_tap(&mut self, tap: &IfName, mtu: u32) -> Result<(), StepError> {
        let index = self.index(tap)?;
        Ok(link::shape_tap(&mut self.netlink, index, mtu)?)
    }

    fn add_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        match tc::add_clsact(&mut self.netlink, index) {
            Err(error) if error.errno() == Some(Errno::EEXIST) => Err(StepError::QdiscTaken { link: link.clone() }),
            done => Ok(done?),
        }
    }

    fn delete_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(tc::delete_clsact(&mut self.netlink, index)?)
    }

    fn replace_guard(&mut self, link: &IfName, hook: Hook, guard: &Guard) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(tc::replace_guard(&mut self.netlink, index, hook, &guard.program())?)
    }

    fn drop_ingress(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(tc::replace_guard(&mut self.netlink, index, Hook::Ingress, &Program::always(tc::DROP))?)
    }

    fn replace_redirect(&mut self, from: &IfName, to: &IfName, redirect: Redirect) -> Result<(), StepError> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        Ok(tc::replace_redirect(&mut self.netlink, from, to, redirect)?)
    }

    fn set_master(&mut self, link: &IfName, bridge: &IfName) -> Result<(), StepError> {
        let (link, bridge) = (self.index(link)?, self.index(bridge)?);
        Ok(link::set_master(&mut self.netlink, link, bridge)?)
    }

    fn unset_master(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        match link::set_master(&mut self.netlink, index, 0) {
            Err(error) if error.is_absent() => Ok(()),
            done => Ok(done?),
        }
    }

    fn replace_fdb_entry(&mut self, port: &IfName, mac: MacAddr) -> Result<(), StepError> {
        let index = self.index(port)?;
        Ok(bridge::replace_fdb_entry(&mut self.netlink, index, mac)?)
    }

    fn set_up(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(link::set_up(&mut self.netlink, index)?)
    }

    fn set_down(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        match link::set_down(&mut self.netlink, index) {
            Err(error) if error.is_absent() => Ok(()),
            done => Ok(done?),
        }
    }
}

impl Listeners for Kernel<'_> {
    type Listener = Port;

    fn listen(&mut self, tap: &IfName, link: &IfName) -> Result<Port, StepError> {
        let index = self.index(tap)?;
        let link = self.observed.links.iter().find(|other| other.name == *link);
        let neighbours = link.map(|link| self.observed.neighbours_of(link)).unwrap_or_default();
        Port::open(index, neighbours).map_err(StepError::Listen)
    }
}
