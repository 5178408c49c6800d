//! Numbers of the file, whose unit is the end of their key, as durations and bytes.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer};

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

pub(super) fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_secs)
}

/// More than there can be is the most that there can be.
pub(super) fn mib<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)?.saturating_mul(MIB))
}

pub(super) fn optional_mib<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    mib(from).map(Some)
}

pub(super) fn optional_gib<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    gib(from).map(Some)
}

/// More than there can be is the most that there can be.
pub(super) fn gib<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(u64::deserialize(from)?.saturating_mul(GIB))
}
