//! Network daemon of virtlet-rs: gives a pod that is a virtual machine the network that its CNI plugins made.
//!
//! `main` forks the [`spawner`] of plugins, gives up what the daemon does not need ([`confinement`]) and runs [`daemon`].
//!
//! The walk of one `Attach`: [`rpc`] takes the request -> the pod's actor in [`pod`] -> [`journal`] intent -> [`sys`]
//! creates the netns -> [`cni`] ADD of each network, its plugins by the [`spawner`] -> [`net`] reads links, addresses and
//! routes from the kernel, plans and applies the join of links and taps -> [`addressing`] serves the guest from a packet
//! socket on each tap -> [`journal`] result -> reply.
//! `Get` walks [`handoff`] -> [`tokens`] -> [`sys`] opens the tap -> descriptors go to `vmwrapper`, none is kept.
//!
//! [`toolkit`] is a client of the daemon, and knows no more of it than its socket and its configuration.
//!
//! Which module may use which is data of the layer check, `tests/layers/arrows.toml`: from [`toolkit`] and [`daemon`] at the
//! top down to [`sys`].

mod addressing;
mod arp;
mod blocking;
mod checksum;
mod cni;
pub mod config;
pub mod confinement;
pub mod daemon;
mod dhcp;
mod dhcp6;
mod domain;
mod durable;
#[doc(hidden)]
pub mod exercise;
pub mod faults;
mod handoff;
mod instance;
mod ipv6;
mod journal;
mod net;
mod pod;
mod ra;
mod rpc;
mod span;
pub mod spawner;
mod sys;
mod tokens;
pub mod toolkit;

pub use sys::memory::keep_one_heap;
