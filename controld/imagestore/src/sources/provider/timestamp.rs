//! Times as sources write them, in seconds since 1970: RFC 5322 (Simple Streams), RFC 3339 (Glance, Keystone).
//!
//! Used only for ordering and display: nothing is trusted because of a time.

/// Days from 1970-01-01 to a day of the Gregorian calendar, of the years that sources can mean.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    const LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let at = usize::try_from(month.checked_sub(1)?).ok()?;
    let last = LENGTHS.get(at)? + u64::from(leap && month == 2);
    if !(1970..=9999).contains(&year) || !(1..=last).contains(&day) {
        return None;
    }
    let past = year - 1;
    let leap_days = past / 4 - past / 100 + past / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    Some((year - 1970) * 365 + leap_days + BEFORE[at] + u64::from(leap && month > 2) + day - 1)
}

/// Seconds of a day. A leap second is the second before it.
fn seconds(hour: u64, minute: u64, second: u64) -> Option<u64> {
    (hour < 24 && minute < 60 && second <= 60).then(|| hour * 3600 + minute * 60 + second.min(59))
}

/// A number of exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<u64> {
    (text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

/// `+hhmm`, `-hhmm`, with a colon or without, as minutes east of Greenwich.
fn zone(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = match rest.split_once(':') {
        Some(parts) => parts,
        None => rest.split_at_checked(2)?,
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let east = i64::try_from(hours * 60 + minutes).ok()?;
    (hours < 24 && minutes < 60).then_some(sign * east)
}

fn moment(days: u64, seconds: u64, zone: i64) -> Option<u64> {
    (days * 86400 + seconds).checked_add_signed(-zone * 60)
}

/// `Tue, 08 Mar 2016 01:02:03 +0000`; the day's name may be missing.
pub(crate) fn of_mail(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let date = text.split_once(',').map_or(text, |(_, date)| date);
    let mut words = date.split_ascii_whitespace();
    let (day, month, year, time, offset) = (words.next()?, words.next()?, words.next()?, words.next()?, words.next()?);
    let month = MONTHS.iter().position(|name| month.eq_ignore_ascii_case(name))?;
    let mut clock = time.split(':');
    let (hour, minute, second) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?, clock.next());
    let second = second.map_or(Some(0), |second| number(second, 2))?;
    if clock.next().is_some() || words.next().is_some() {
        return None;
    }
    let offset = if matches!(offset, "GMT" | "UT" | "UTC" | "Z") { 0 } else { zone(offset)? };
    let day = number(day, 2).or_else(|| number(day, 1))?;
    moment(days(number(year, 4)?, month as u64 + 1, day)?, seconds(hour, minute, second)?, offset)
}

/// `2016-03-08T01:02:03.456Z`; parts of seconds are dropped.
pub(crate) fn of_internet(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (date.next()?, date.next()?, date.next()?);
    let at = rest.find(['Z', 'z', '+', '-'])?;
    let (time, offset) = rest.split_at(at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut clock = time.splitn(3, ':');
    let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next()?);
    if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let offset = if offset.eq_ignore_ascii_case("z") { 0 } else { zone(offset)? };
    let days = days(number(year, 4)?, number(month, 2)?, number(day, 2)?)?;
    moment(days, seconds(number(hour, 2)?, number(minute, 2)?, number(second, 2)?)?, offset)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{of_internet, of_mail};

    #[test]
    fn moments_are_read() {
        // `date -u -d TEXT +%s`
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 +0000", Some(0)),
            ("Tue, 08 Mar 2016 01:02:03 +0000", Some(1_457_398_923)),
            ("Mon, 29 Feb 2016 23:59:60 GMT", Some(1_456_790_399)),
            ("1 Mar 2000 00:00 +0130", Some(951_863_400)),
            ("Thu, 31 Dec 2026 23:00:00 -0100", Some(1_798_761_600)),
            ("Sun, 29 Feb 2015 00:00:00 +0000", None),
            ("Tue, 08 Foo 2016 01:02:03 +0000", None),
            ("Tue, 08 Mar 2016 24:00:00 +0000", None),
            ("Tue, 08 Mar 2016 01:02:03", None),
            ("Tue, 08 Mar 2016 01:02:03 +0000 x", None),
            ("Thu, 01 Jan 1970 00:00:00 +0100", None),
            ("", None),
        ] {
            assert_eq!(of_mail(text), seconds, "{text}");
        }
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2016-03-08T01:02:03Z", Some(1_457_398_923)),
            ("2016-03-08T01:02:03.999999+00:00", Some(1_457_398_923)),
            ("2016-03-08T02:02:03+01:00", Some(1_457_398_923)),
            ("2015-11-06T15:32:17.893769Z", Some(1_446_823_937)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("2016-03-08T01:02:03", None),
            ("2016-3-8T01:02:03Z", None),
            ("2016-03-08T01:02:03.Z", None),
            ("2016-13-08T01:02:03Z", None),
            ("0000-00-00T00:00:00Z", None),
        ] {
            assert_eq!(of_internet(text), seconds, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "\\PC{0,40}") {
            let _ = (of_mail(&text), of_internet(&text));
        }

        #[test]
        fn time_goes_on(day in 0_u64..2_000_000) {
            // A later day of the calendar is a later second, without gaps.
            let (year, rest) = (1970 + day / 372 % 8000, day % 372);
            let text = |rest: u64| format!("{year:04}-{:02}-{:02}T00:00:00Z", rest / 31 + 1, rest % 31 + 1);
            if let (Some(one), Some(other)) = (of_internet(&text(rest)), of_internet(&text(rest + 1))) {
                prop_assert_eq!(other - one, 86400);
            }
        }
    }
}
