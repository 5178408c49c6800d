//! The service for machines beside CRI on the same socket.
//!
//! Generated from `machines/machines.proto`.

#![allow(missing_docs, clippy::allow_attributes_without_reason, reason = "generated from machines/machines.proto")]

include!("../generated/virtlet.machines.v1.rs");
