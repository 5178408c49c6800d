//! Links of the node that a plugin has put into a pod: what is done so that none is lost when the pod ends.
//!
//! The plugin `host-device` moves a link of the node into the pod, and writes its name there into its alias. Its DEL moves it back
//! under that name, and fails for as long as the node has another link of the name. Called by [`crate::net`] in the pod's
//! namespace; the node's names are looked up before.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use proto::tap::IfName;

use crate::sys::link::{self, Link};
use crate::sys::netdev;
use crate::sys::netlink::{Netlink, NetlinkError};

/// The plugin.
pub(crate) const PLUGIN: &str = "host-device";
/// Linux's, without the zero at the end.
const LONGEST_NAME: usize = 15;
/// Most links of the node whose names begin alike.
const TRIES: usize = 1000;

/// A link that goes back to the node under a name that is free there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Renamed {
    /// What it was named before it came into the pod.
    pub(crate) was: String,
    /// What it is named on the node from now on.
    pub(crate) becomes: IfName,
}

/// Gives the link `name` a way back to a node on which these names are `taken`, if its own is among them.
pub(super) fn make_way(
    netlink: &mut Netlink,
    name: &IfName,
    taken: &BTreeSet<String>,
) -> Result<Option<Renamed>, NetlinkError> {
    let Some((link, was)) = lent(netlink, name)? else { return Ok(None) };
    let Some(becomes) = free_name(&was, taken).filter(|becomes| becomes.as_str() != was) else { return Ok(None) };
    netdev::set_alias(netlink, link.index, becomes.as_str())?;
    Ok(Some(Renamed { was, becomes }))
}

/// Moves the link `name` back to the node, whose namespace is `node`, as the plugin would have done.
pub(super) fn send_back(
    netlink: &mut Netlink,
    name: &IfName,
    node: impl AsFd,
    taken: &BTreeSet<String>,
) -> Result<Option<Renamed>, NetlinkError> {
    let Some((link, was)) = lent(netlink, name)? else { return Ok(None) };
    let Some(becomes) = free_name(&was, taken) else { return Ok(None) };
    netdev::move_into(netlink, link.index, node, &becomes)?;
    Ok(Some(Renamed { was, becomes }))
}

/// The link, and what it was named on the node.
fn lent(netlink: &mut Netlink, name: &IfName) -> Result<Option<(Link, String)>, NetlinkError> {
    let Some(link) = link::links(netlink)?.into_iter().find(|link| link.name == *name) else { return Ok(None) };
    let alias = link::alias(netlink, link.index)?;
    Ok(alias.map(|alias| (link, alias)))
}

/// `was` if it is free, else that with a number; nothing if it is no name of a link.
fn free_name(was: &str, taken: &BTreeSet<String>) -> Option<IfName> {
    let own: IfName = was.parse().ok()?;
    if !taken.contains(was) {
        return Some(own);
    }
    (1..TRIES).find_map(|number| {
        let end = format!("-{number}");
        let begin: String = own.as_str().chars().take(LONGEST_NAME.saturating_sub(end.len())).collect();
        let name = format!("{begin}{end}");
        if taken.contains(&name) { None } else { name.parse().ok() }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let taken = ["up0", "up0-1", "enp129s0f0np0v1"].map(str::to_owned).into();
        let free = |was: &str| free_name(was, &taken).map(|name| name.to_string());
        assert_eq!(free("up1").as_deref(), Some("up1"));
        assert_eq!(free("up0").as_deref(), Some("up0-2"));
        assert_eq!(free("enp129s0f0np0v1").as_deref(), Some("enp129s0f0np0-1"));
        assert_eq!(free("a note of somebody's"), None);
    }
}
