//! Numbers of the file, whose unit is the end of their key, as durations and bytes.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer};

pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

pub fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_secs)
}

/// More than there can be is the most that there can be.
pub fn mib<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)?.saturating_mul(MIB))
}

pub fn optional_mib<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    mib(from).map(Some)
}

pub fn optional_gib<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    gib(from).map(Some)
}

/// More than there can be is the most that there can be.
pub fn gib<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)?.saturating_mul(GIB))
}
