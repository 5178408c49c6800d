//! Network daemon of virtlet-rs: gives a pod that is a virtual machine the network that CNI plugins made for it.
//!
//! `main` forks the [`spawner`] of plugins, gives up privileges ([`confinement`]) and runs [`daemon`].
//!
//! What happens for an `Attach`:
//! 1. [`rpc`] receives the request; [`daemon`] hands it to the pod's actor in [`pod`].
//! 2. The actor writes its intent to the [`journal`], and [`sys`] creates the network namespace.
//! 3. [`cni`] runs ADD of each network; the [`spawner`] starts the plugins.
//! 4. [`net`] reads links, addresses and routes from the kernel, and joins each link with a tap.
//! 5. [`addressing`] starts to answer the guest's DHCP and router solicitations on each tap.
//! 6. The actor writes the result to the [`journal`], and replies.
//!
//! What happens for a `Get`: [`handoff`] receives it, [`tokens`] tells the pod, [`sys`] opens the taps, and the
//! descriptors go to `vmwrapper`. The daemon keeps none.
//!
//! [`toolkit`] is a client of the daemon: it uses its socket and its configuration only. [`plugin`] is a program of its own,
//! a CNI plugin, which the daemon may run as any other.
//!
//! `tests/layers/arrows.toml` says which module may use which, and `make lint` checks it.

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
#[cfg(any(test, feature = "exercise"))]
pub mod exercise;
pub mod faults;
mod handoff;
mod instance;
mod ipv6;
mod journal;
mod net;
pub mod plugin;
mod pod;
mod ra;
mod rpc;
#[cfg(test)]
mod served_nic;
mod span;
pub mod spawner;
mod sys;
mod tokens;
pub mod toolkit;
mod vf;

pub use sys::memory::keep_one_heap;
