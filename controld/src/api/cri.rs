//! CRI v1, as kubelet speaks it.
//!
//! A handler turns a request into words of our own ([`vmspec`]) and refuses early what cannot be ([`convert`]), asks a service, and
//! turns the answer back. Work that changes state runs to its end even if the caller gives up
//! ([`finish`](super::status::finish)): gRPC drops a handler with its caller, and half of a sandbox is no sandbox.

pub mod convert;
mod find;
pub mod image;
mod lists;
mod metrics;
pub mod runtime;
pub(super) mod starting;
#[cfg(test)]
mod tests;
