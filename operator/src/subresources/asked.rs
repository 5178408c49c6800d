//! What clients say in bodies and queries of requests. Pure; all of it is anybody's text.

use std::fmt;
use std::time::Duration;

use hyper::StatusCode;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::refusal::Refusal;
use crate::verbs::Power;

/// Of start, stop and restart, of pause and its like.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Options {
    paused: Option<bool>,
    grace_period: Option<i64>,
    grace_period_seconds: Option<i64>,
    dry_run: Option<Vec<String>>,
    unfreeze_timeout: Option<String>,
}

impl Options {
    /// What a body says; nothing, if there is none.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        json(body)
    }

    /// Whether it is only to be said what would come of it.
    pub(super) fn is_dry(&self) -> Result<bool, Refusal> {
        match self.dry_run.as_deref() {
            None | Some([]) => Ok(false),
            Some([all]) if all == "All" => Ok(true),
            Some(_) => Err(wrong("dryRun is empty, or [\"All\"]")),
        }
    }

    /// Seconds that a VM has to end in, of a stop or a restart.
    pub(super) fn grace(&self, power: Power) -> Result<Option<u32>, Refusal> {
        let (seconds, name) = match power {
            Power::Start => return Ok(None),
            Power::Stop => (self.grace_period, "gracePeriod"),
            Power::Restart => (self.grace_period_seconds, "gracePeriodSeconds"),
        };
        let seconds = seconds.map(u32::try_from).transpose();
        seconds.map_err(|_| wrong(&format!("{name} is a number of seconds from 0 to {}", u32::MAX)))
    }

    /// Sees that a start is one as all are.
    pub(super) fn check_start(&self) -> Result<(), Refusal> {
        match self.paused {
            Some(true) => Err(wrong(
                "a start that is paused is not offered; set spec.template.spec.startStrategy of the VM to Paused",
            )),
            _ => Ok(()),
        }
    }

    /// After which a freeze ends by itself, in whole seconds; `None` if nothing is said.
    pub(super) fn thaws_after(&self) -> Result<Option<u64>, Refusal> {
        let Some(text) = &self.unfreeze_timeout else { return Ok(None) };
        let time = duration(text).ok_or_else(|| wrong("unfreezeTimeout is a time such as 5m0s"))?;
        let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
        Ok(Some(seconds).filter(|seconds| *seconds > 0))
    }
}

/// A value of a body.
pub(super) fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| wrong(&format!("the body is not what it is to be: {error}")))
}

/// An object of JSON, of which nothing is kept.
struct Any;

/// Sees that a body is an object of JSON. Nothing is made of it, as a value takes many times the memory of its text.
pub(super) fn check_object(body: &[u8]) -> Result<(), Refusal> {
    // What is skipped is not looked at otherwise.
    let text = std::str::from_utf8(body).map_err(|_| wrong("the body is no UTF-8"))?;
    json::<Any>(text.as_bytes()).map(drop)
}

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Self)
    }
}

impl<'de> Visitor<'de> for Any {
    type Value = Self;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self)
    }
}

/// Whether a query has this key with a value that says yes.
pub(super) fn is_set(query: Option<&str>, key: &str) -> bool {
    let mut pairs = query.unwrap_or_default().split('&');
    pairs.any(|pair| pair.split_once('=').is_some_and(|(name, value)| name == key && value == "true"))
}

fn wrong(text: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, text)
}

/// A time as Go writes it: numbers with their units, one after the other.
fn duration(text: &str) -> Option<Duration> {
    // The longer first of those with one beginning.
    const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    loop {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, behind) = rest.split_at_checked(end)?;
        let (unit, factor) = UNITS.iter().find(|(unit, _)| behind.starts_with(unit))?;
        seconds += number.parse::<f64>().ok()? * factor;
        rest = behind.strip_prefix(unit)?;
        if rest.is_empty() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(body: &str) -> Options {
        Options::read(body.as_bytes()).expect("options")
    }

    #[test]
    fn what_virtctl_says_is_understood() {
        assert_eq!(read(" "), Options::default());
        assert!(!read("{\"dryRun\":[]}").is_dry().expect("said"));
        assert!(read("{\"kind\":\"x\",\"dryRun\":[\"All\"]}").is_dry().expect("said"));
        assert_eq!(read("{\"gracePeriod\":0}").grace(Power::Stop), Ok(Some(0)));
        assert_eq!(read("{\"gracePeriod\":0}").grace(Power::Restart), Ok(None));
        assert_eq!(read("{\"gracePeriodSeconds\":7}").grace(Power::Restart), Ok(Some(7)));
        assert_eq!(read("{\"gracePeriodSeconds\":-7}").grace(Power::Start), Ok(None));
        assert!(read("{\"paused\":false}").check_start().is_ok());
        for wrong in
            [read("{\"gracePeriod\":-1}").grace(Power::Stop).err(), read("{\"paused\":true}").check_start().err()]
        {
            assert_eq!(wrong.map(|refusal| refusal.code), Some(StatusCode::BAD_REQUEST));
        }
        assert!(read("{\"dryRun\":[\"Some\"]}").is_dry().is_err());
        assert!(Options::read(b"[").is_err() && Options::read(b"{\"paused\":7}").is_err());
    }

    #[test]
    fn an_object_is_one_however_deep_it_is() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        for object in ["{}", " {\"a\": {\"b\": [1, \"c\"]}, \"é\": null} ", &deep] {
            assert_eq!(check_object(object.as_bytes()), Ok(()));
        }
        let others: [&[u8]; 7] = [b"", b"[]", b"7", b"{", b"{} {}", b"{\"a\": x}", b"{\"a\": \"\xff\"}"];
        for other in others {
            assert_eq!(check_object(other).map_err(|refusal| refusal.code), Err(StatusCode::BAD_REQUEST));
        }
    }

    #[test]
    fn times_are_gos() {
        for (text, seconds) in
            [("5m0s", Some(300)), ("1h0m0.5s", Some(3601)), ("100ms", Some(1)), ("0s", None), ("0", None)]
        {
            let options = Options { unfreeze_timeout: Some(text.to_owned()), ..Options::default() };
            assert_eq!(options.thaws_after(), Ok(seconds), "{text}");
        }
        for text in ["", "5", "m", "-5m", "5x", "1e9h", "99999999999999999999h"] {
            let options = Options { unfreeze_timeout: Some(text.to_owned()), ..Options::default() };
            assert!(options.thaws_after().is_err(), "{text}");
        }
        assert_eq!(Options::default().thaws_after(), Ok(None));
    }

    #[test]
    fn a_query_is_read() {
        assert!(is_set(Some("a=b&preserveSession=true"), "preserveSession"));
        assert!(!is_set(Some("preserveSession=false"), "preserveSession"));
        assert!(!is_set(Some("preserveSession"), "preserveSession") && !is_set(None, "preserveSession"));
    }

    proptest! {
        #[test]
        fn anything_may_be_a_time(text in "[0-9hmsun.e+ -]{0,20}") {
            let _ = duration(&text);
        }
    }
}
