//! The time of the day, as records and CRI have it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the epoch.
#[must_use]
pub fn now_nanos() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
