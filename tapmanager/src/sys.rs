//! The kernel's network, one file for each kind of object. Here are the system calls and netlink messages; decisions
//! are made elsewhere.
//!
//! Called by [`crate::net`], by [`crate::vf`], by the pod's actor (namespaces, hand-off of taps) and by the servers
//! ([`common::Ready`]). No function here knows a pod. "This namespace" is that of the calling thread, so callers use
//! [`netns::Netns::visit`], whose module alone switches namespaces.

pub(crate) mod belongings;
pub(crate) mod bpf;
pub(crate) mod bridge;
mod detached;
pub(crate) mod family;
pub(crate) mod fork;
pub(crate) mod link;
pub(crate) mod link_events;
pub(crate) mod macvtap;
pub(crate) mod memory;
pub(crate) mod neighbour;
pub(crate) mod netdev;
pub(crate) mod netlink;
pub(crate) mod netns;
pub(crate) mod netns_pool;
pub(crate) mod nsid;
pub(crate) mod packet;
pub(crate) mod tap;
pub(crate) mod tc;
#[cfg(test)]
pub(crate) mod testbed;
pub(crate) mod vf;
pub(crate) mod vhost;
