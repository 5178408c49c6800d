//! The service for what is on no record, beside CRI on the same socket.
//!
//! Generated from `orphans/orphans.proto`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from orphans/orphans.proto")]

include!("../generated/virtlet.orphans.v1.rs");
