//! Looks after KubeVirt's objects in a cluster: VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceReplicaSet and
//! VirtualMachineInstancePreset are here ordinary VM pods.
//!
//! [`manifests`] is what an installation is made of, [`install`] and [`uninstall`] put it into a cluster and take it off. [`run`] is the
//! service: [`leader`] says which of several writes, [`controllers`] have a queue for each kind, and `vmi`, `vm` and `replica_set` say what is
//! to be done about one object and do it. [`subresources`] is another service, for clients of KubeVirt's. What is wrong with an object and
//! which pod it is, the crate `kubevirt` says.

#![forbid(unsafe_code)]

mod backoff;
mod cache;
mod certificates;
pub mod cli;
pub mod cluster;
mod context;
pub mod controllers;
pub mod group;
mod holds;
pub mod install;
pub mod leader;
pub mod manifests;
pub mod metrics;
pub mod names;
mod objects;
mod pending;
mod replica_set;
pub mod run;
#[cfg(test)]
mod sample;
pub mod serve;
pub mod subresources;
pub mod uninstall;
mod verbs;
mod vm;
mod vmi;
pub mod webhook;
mod write;
