//! All that two processes of virtlet-rs must agree on.
//!
//! - [`agent`]: processes in a guest, spoken by `controld` to our agent there (feature `agent`).
//! - [`cri`]: the Kubernetes Container Runtime Interface v1, spoken by kubelet to `controld` (feature `cri`).
//! - [`images`]: looking after a node's images, spoken by `virtletctl` to `controld` (feature `cri`).
//! - [`machines`]: machines that stand still for a while, spoken by `virtletctl` to `controld` (feature `cri`).
//! - [`orphans`]: things on a node that are on no record, spoken by `virtletctl` to `controld` (feature `cri`).
//! - [`otlp`]: spans of traces, sent by `controld` to a collector of OpenTelemetry (feature `otlp`).
//! - [`pause`]: why a machine that is on does not run, as `controld` tells it in CRI (feature `cri`).
//! - [`side`]: of which runtime a node is to answer, as `virtletctl` tells `controld` (feature `cri`).
//! - [`share`]: what of the node a guest sees, told by `controld` to `fswrapper` (feature `share`).
//! - [`tap`]: the tap protocol, spoken by `controld` and `vmwrapper` to `tapmanager` (feature `tap`).
//! - [`vm`]: what a pod says of its machine in one annotation, written by whoever makes pods of KubeVirt's objects for `controld`; and what
//!   `controld` tells back of the guest (feature `vm`).
//!
//! A leaf: no I/O policy, no knowledge of any daemon. All features are off by default, so that `vmwrapper`
//! and `agent` carry no async runtime and no protobuf.

#![warn(missing_docs)]

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "cri")]
pub mod cri;
#[cfg(feature = "cri")]
pub mod images;
#[cfg(feature = "cri")]
pub mod machines;
#[cfg(feature = "cri")]
pub mod orphans;
#[cfg(feature = "otlp")]
pub mod otlp;
#[cfg(feature = "cri")]
pub mod pause;
#[cfg(feature = "share")]
pub mod share;
#[cfg(feature = "cri")]
pub mod side;
#[cfg(feature = "tap")]
pub mod tap;
#[cfg(feature = "vm")]
pub mod vm;
