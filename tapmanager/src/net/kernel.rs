//! The verbs of [`super::apply`] on the real kernel, in the namespace of the calling thread.
//!
//! Made by [`crate::net`] from what [`super::observe`] saw. Plans speak of names and the kernel of indices: the table
//! between them is here.

use std::collections::BTreeMap;

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use proto::tap::IfName;

use super::apply::{Links, Listeners, StepError, Taps};
use super::filter::{self, Guard};
use super::observe::Observed;
use crate::sys::netlink::Netlink;
use crate::sys::packet::PacketSocket;
use crate::sys::{link, tap, tc};

/// The kernel as seen from inside a pod's namespace.
#[derive(Debug)]
pub(crate) struct Kernel {
    netlink: Netlink,
    indices: BTreeMap<IfName, u32>,
}

impl Kernel {
    /// Works through `netlink` on the links that were seen, and on those that it makes.
    pub(crate) fn new(netlink: Netlink, observed: &Observed) -> Self {
        let indices = observed.links.iter().map(|link| (link.name.clone(), link.index)).collect();
        Self { netlink, indices }
    }

    fn index(&self, link: &IfName) -> Result<u32, StepError> {
        self.indices.get(link).copied().ok_or_else(|| StepError::LinkGone { link: link.clone() })
    }
}

impl Taps for Kernel {
    fn create_tap(&mut self, tap: &IfName) -> Result<(), StepError> {
        tap::create(tap)?;
        match if_nametoindex(tap.as_str()) {
            Ok(index) => {
                self.indices.insert(tap.clone(), index);
                Ok(())
            }
            Err(_) => Err(StepError::LinkGone { link: tap.clone() }),
        }
    }

    fn remove_tap(&mut self, tap: &IfName) -> Result<(), StepError> {
        tap::remove(tap)?;
        self.indices.remove(tap);
        Ok(())
    }
}

impl Links for Kernel {
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

    fn remove_clsact(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(tc::remove_clsact(&mut self.netlink, index)?)
    }

    fn add_guard(&mut self, link: &IfName, guard: &Guard) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(tc::add_guard(&mut self.netlink, index, &guard.program())?)
    }

    fn add_redirect(&mut self, from: &IfName, to: &IfName) -> Result<(), StepError> {
        let (from, to) = (self.index(from)?, self.index(to)?);
        Ok(tc::add_redirect(&mut self.netlink, from, to)?)
    }

    fn raise(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        Ok(link::up(&mut self.netlink, index)?)
    }

    fn lower(&mut self, link: &IfName) -> Result<(), StepError> {
        let index = self.index(link)?;
        match link::down(&mut self.netlink, index) {
            Err(error) if error.is_absent() => Ok(()),
            done => Ok(done?),
        }
    }
}

impl Listeners for Kernel {
    type Listener = PacketSocket;

    fn listen(&mut self, tap: &IfName) -> Result<PacketSocket, StepError> {
        let index = self.index(tap)?;
        PacketSocket::open(index, &filter::guest_requests()).map_err(StepError::Listen)
    }
}
