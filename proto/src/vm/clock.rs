//! The clock of a described machine.

use serde::{Deserialize, Serialize};

/// A clock: what it shows at the start, and its timers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Clock {
    /// UTC, with an offset. Not together with a time zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utc: Option<Utc>,
    /// The time of a zone, as `Europe/Rome`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<Timezone>,
    /// Its timers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timers>,
}

/// UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Utc {
    /// Seconds that the clock is ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset_seconds: Option<i64>,
}

/// Name of a time zone.
pub type Timezone = String;

/// Timers that the guest may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[allow(missing_docs, reason = "named as libvirt names them")]
pub struct Timers {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<TickTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<SimpleTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<TickTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<RtcTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<SimpleTimer>,
}

/// A timer that is there or is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimpleTimer {
    /// Whether it is there; it is if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// The same, with what becomes of ticks that come late.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TickTimer {
    /// What becomes of ticks that come late, as libvirt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
    /// Whether it is there; it is if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// The real-time clock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RtcTimer {
    /// What becomes of ticks that come late, as libvirt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
    /// Whether it is there; it is if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    /// Whose time it follows: `guest` or `wall`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub track: Option<String>,
}
