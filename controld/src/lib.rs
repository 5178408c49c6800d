//! CRI daemon of virtlet-rs: pods as libvirt machines.
//!
//! The walk of a call: [`cri`] takes it and turns it into this crate's own [`model`] (generated types stop there) ->
//! [`sandbox`] or [`container`], the services, decide and write intent to the [`store`] -> they act through [`tap`]
//! (the pod's network), [`images`], [`volumes`], [`seed`] and the [`hypervisor`] -> the result goes to the [`store`].
//! A container is one virtual machine and has one actor, `container::actor`, that owns its state and hears its events.
//! [`console`] carries the serial console to the pod's log and to attached clients.
//!
//! Layers, one way only: edge (`main`, [`cri`]) -> service ([`daemon`], [`sandbox`], [`container`]) -> pure core
//! ([`model`], [`domain`], [`annotations`], [`seed`]) -> [`store`] and what reaches outside.

pub mod accel;
pub mod accelerator;
pub mod admin;
pub mod annotations;
pub mod boot;
pub mod config;
pub mod console;
pub mod container;
pub mod cri;
pub mod daemon;
pub mod domain;
pub mod error;
pub mod hypervisor;
pub mod images;
pub mod instance;
pub mod mapping;
pub mod metrics;
pub mod model;
pub mod orphans;
pub mod sandbox;
pub mod seed;
pub mod store;
pub mod tap;
pub mod volumes;
