//! How long the next run waits after starts that failed.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sha2::{Digest as _, Sha256};

use crate::objects::{Meta as _, StartFailure, Vmi};

/// The first delay; the n-th is n squared times as long.
const FIRST: u32 = 10;
const LONGEST: u32 = 300;

/// What is noted of failed starts, with this instance that failed before it ran. Noted once.
pub(crate) fn after(before: Option<&StartFailure>, failed: &Vmi, now: &Time) -> StartFailure {
    if let Some(before) = before
        && before.last_failed_vmi_uid.as_deref() == Some(failed.uid())
    {
        return before.clone();
    }
    let count = before.map_or(0, |before| before.consecutive_fail_count).saturating_add(1);
    let delay = FIRST.saturating_mul(count.saturating_mul(count));
    // Up to half as long again, so that what failed together does not come again together: as the uid says, which is random.
    let random = Sha256::digest(failed.uid()).first().copied().unwrap_or_default();
    let delay = delay.saturating_add(delay.saturating_mul(u32::from(random)) / 512).min(LONGEST);
    let retry = now.0.checked_add(Duration::from_secs(delay.into())).unwrap_or(now.0);
    StartFailure {
        consecutive_fail_count: count,
        last_failed_vmi_uid: Some(failed.uid().to_owned()),
        retry_after_timestamp: Some(Time(retry)),
    }
}

/// How long it is until the next start; `None` if it may be now.
pub(crate) fn left(failure: Option<&StartFailure>, now: &Time) -> Option<Duration> {
    let until = failure?.retry_after_timestamp.as_ref()?;
    let left = Duration::try_from(until.0.duration_since(now.0)).ok()?;
    // One that is longer was noted by another clock.
    (!left.is_zero() && left <= Duration::from_secs(LONGEST.into())).then_some(left)
}
