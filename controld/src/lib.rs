//! CRI daemon of virtlet-rs: pods as libvirt machines.
//!
//! A call goes through the rooms in this order. [`api`] takes it from the socket and turns it into our own words, those of [`vmspec`];
//! generated CRI types go no further. A service, [`sandbox`] or [`container`], decides, writes its intent to the [`store`], and
//! acts through [`tap`] (the pod's network), [`images`], [`volumes`] and the [`hypervisor`]. The result goes to the [`store`].
//! A container is one virtual machine. Its actor, `container::actor`, owns its state and hears libvirt's events. What its machine is made
//! with are [`disks`], `devices`, and what the [`guest`] and we have to do with each other: [`guest::console`] carries its serial console to
//! the pod's log and to attached clients. [`orphans`] keeps what is on no record until a person decides.
//!
//! [`proxy`] is in front of [`api`] on a node that has another container runtime too, whose calls it passes on.
//!
//! [`manifest`] judges pods that there are not yet, by the same steps. What a machine is to be is decided by [`vmspec`], without a node.
//!
//! `reporter` tells the cluster of VMs what their pods do not say.
//!
//! Layers, one way only: [`daemon`] (starts all) -> [`manifest`] -> [`proxy`] -> [`api`] -> services ([`sandbox`], [`container`],
//! [`orphans`]) and `reporter` -> [`guest`], [`disks`], `devices` -> what reaches outside ([`hypervisor`], [`tap`], [`images`], [`volumes`], [`store`])
//! -> [`model`] (pure), `trace` (spans of calls) and [`config`].

pub mod api;
mod cluster;
pub mod config;
pub mod container;
pub mod daemon;
mod devices;
pub mod disks;
mod files;
pub mod guest;
pub mod hypervisor;
pub mod images;
pub mod manifest;
pub mod model;
mod node_addresses;
pub mod orphans;
pub mod proxy;
mod reporter;
pub mod sandbox;
pub mod store;
pub mod tap;
mod trace;
pub mod volumes;

#[cfg(test)]
use common::logged;
