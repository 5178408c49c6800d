//! Netdevs of VFs: found, awaited, shaped, moved and dressed.
//!
//! Called by the claims of VFs, by the port [`Links`]. What a claim calls a netdev's `extra` is the JSON of
//! [`Belongings`], whose header says what is kept; `None` if there is nothing, and for a netdev in the host's namespace.

use std::time::{Duration, Instant};

use common::Reason;
use proto::tap::IfName;
use sriov::claim::{Cause, Links, Netdev, Place};
use sriov::{Mac, PciAddr};

use super::{HostNet, Whose, of_pod, pod};
use crate::sys::belongings::Belongings;
use crate::sys::link::{self, Link};
use crate::sys::link_events::LinkEvents;
use crate::sys::netdev;
use crate::sys::netlink::Netlink;
use crate::sys::netns::{Netns, NetnsError};

impl Links for HostNet {
    fn netns_exists(&mut self, netns: &str) -> Result<bool, Cause> {
        match Netns::open(netns.as_ref()) {
            Ok(found) => Ok(found.is_some()),
            // Its file is left.
            Err(NetnsError::NotNetns { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn find(&mut self, vf: PciAddr, place: Place<'_>) -> Result<Option<Netdev>, Cause> {
        let whose = self.whose;
        match place {
            Place::Host => find(&mut self.netlink, whose, vf)?.map(|link| netdev_of(link, None)).transpose(),
            Place::Netns(path) => {
                let netlink = of_pod(&mut self.pods, path)?;
                let Some(link) = find(netlink, whose, vf)? else { return Ok(None) };
                let belongings = Belongings::of(netlink, link.index)?;
                Ok(Some(netdev_of(link, extra(&belongings)?)?))
            }
        }
    }

    fn await_netdev(&mut self, vf: PciAddr, limit: Duration) -> Result<Option<Netdev>, Cause> {
        let until = Instant::now() + limit;
        let whose = self.whose;
        // Before the first look, so that nothing is missed in between.
        let events = self.host.inside(LinkEvents::open)??;
        loop {
            if let Some(found) = self.find(vf, Place::Host)? {
                return Ok(Some(found));
            }
            if !events.wait(until, |link| whose(link) == Some(vf))? {
                return Ok(None);
            }
        }
    }

    fn shape(&mut self, place: Place<'_>, index: u32, mac: Mac, mtu: u32) -> Result<(), Cause> {
        let netlink = match place {
            Place::Host => &mut self.netlink,
            Place::Netns(path) => of_pod(&mut self.pods, path)?,
        };
        let link = existing(netlink, index)?;
        let name = &link.name;
        if link.mac.map(|mac| Mac(mac.octets())) != Some(mac) {
            let failed = |cause| Reason::new(format!("failed to give `{name}` the address `{mac}`")).with(cause);
            netdev::set_mac(netlink, &link, mac.0).map_err(failed)?;
        }
        if link.mtu != mtu {
            let failed = |cause| Reason::new(format!("failed to give `{name}` the MTU {mtu}")).with(cause);
            netdev::set_mtu(netlink, &link, mtu).map_err(failed)?;
        }
        Ok(())
    }

    fn move_into(&mut self, index: u32, netns: &str, name: &str) -> Result<(), Cause> {
        let name: IfName = name.parse()?;
        let pod = pod(netns)?;
        let failed = |cause| {
            let text = format!("failed to move the netdev with index {index} into `{netns}` as `{name}`");
            Reason::new(text).with(cause)
        };
        Ok(netdev::move_into(&mut self.netlink, index, &pod, &name).map_err(failed)?)
    }

    fn dress(&mut self, netns: &str, index: u32, saved: &Netdev) -> Result<(), Cause> {
        let name: IfName = saved.name.parse()?;
        let belongings = belongings(saved.extra.as_deref())?;
        let netlink = of_pod(&mut self.pods, netns)?;
        let link = existing(netlink, index)?;
        if link.name != name {
            let failed = |cause| Reason::new(format!("failed to rename `{}` to `{name}`", link.name)).with(cause);
            netdev::rename(netlink, &link, &name).map_err(failed)?;
        }
        let failed = |what| move |cause| Reason::new(format!("failed to bring `{name}` {what}")).with(cause);
        if saved.up {
            link::set_up(netlink, index).map_err(failed.clone()("up"))?;
        } else {
            link::set_down(netlink, index).map_err(failed.clone()("down"))?;
        }
        Ok(belongings.put_back(netlink, index)?)
    }
}

/// The VF's link in the socket's namespace. Should there be several, the one that was made first.
fn find(netlink: &mut Netlink, whose: Whose, vf: PciAddr) -> Result<Option<Link>, Cause> {
    let links = link::links(netlink)?;
    Ok(links.into_iter().filter(|link| whose(link) == Some(vf)).min_by_key(|link| link.index))
}

fn existing(netlink: &mut Netlink, index: u32) -> Result<Link, Cause> {
    let gone = || Reason::new(format!("the netdev with index {index} is gone"));
    Ok(link::links(netlink)?.into_iter().find(|link| link.index == index).ok_or_else(gone)?)
}

fn netdev_of(link: Link, extra: Option<String>) -> Result<Netdev, Cause> {
    let Link { name, index, mac, mtu, up, .. } = link;
    let none = || Reason::new(format!("`{name}` has no Ethernet address; only Ethernet VFs are known here"));
    let mac = Mac(mac.ok_or_else(none)?.octets());
    Ok(Netdev { name: name.to_string(), index, mac, mtu, up, extra })
}

fn extra(belongings: &Belongings) -> Result<Option<String>, Cause> {
    if belongings.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::to_string(belongings)?))
}

fn belongings(extra: Option<&str>) -> Result<Belongings, Reason> {
    let Some(extra) = extra else { return Ok(Belongings::default()) };
    serde_json::from_str(extra).map_err(Reason::because("addresses and routes that were kept are not understood"))
}
