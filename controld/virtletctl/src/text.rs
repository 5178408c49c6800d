//! Text for a terminal: foreign text made harmless, tables, sizes and ages.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use common::shown::is_harmful;

/// How much of an id tables show; enough to be told apart, and taken by every command.
pub(super) const ID_SHOWN: usize = 13;

/// Text of others with its control characters escaped, and those that change the direction of writing (Unicode Standard
/// Annex #9, 2), so that it cannot look like something else.
pub(super) fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON of which a terminal has nothing to fear either: JSON itself escapes only some control characters (RFC 8259, 7).
/// It may be of several lines.
pub(super) fn harmless(json: &str) -> String {
    let mut harmless = String::with_capacity(json.len());
    for c in json.chars() {
        // What is left of them is in strings, and of the Basic Multilingual Plane.
        if is_harmful(c) && c != '\n' {
            // Writing to a string does not fail.
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        } else {
            harmless.push(c);
        }
    }
    harmless
}

/// A moment, of seconds since the epoch; `None` if it is not known, or in no year that can be written.
pub(super) fn moment(seconds: u64) -> Option<String> {
    // The last second of the year 9999, the last year of RFC 3339.
    let known = (1..=253_402_300_799).contains(&seconds);
    let moment = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)).filter(|_| known)?;
    Some(humantime::format_rfc3339_seconds(moment).to_string())
}

/// A moment, of nanoseconds since the epoch, as [`moment`] has it.
pub(super) fn moment_of(nanos: i64) -> Option<String> {
    moment(u64::try_from(nanos / 1_000_000_000).ok()?)
}

/// The beginning of an id.
pub(super) fn short(id: &str) -> String {
    shown(&id.chars().take(ID_SHOWN).collect::<String>())
}

/// Rows under their heads, in columns as wide as they must be.
pub(super) fn table<const N: usize>(heads: [&str; N], rows: &[[String; N]]) -> String {
    let heads = heads.map(str::to_owned).to_vec();
    let cells = |row: &[String; N]| {
        row.iter().map(|cell| if cell.is_empty() { "-".into() } else { shown(cell) }).collect::<Vec<String>>()
    };
    aligned(&std::iter::once(heads).chain(rows.iter().map(cells)).collect::<Vec<_>>())
}

/// Rows of harmless cells, in columns as wide as they must be.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let mut table = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
            // Writing to a string does not fail.
            let _ = write!(line, "{cell:<width$}   ", width = width.unwrap_or_default());
        }
        table.push_str(line.trim_end());
        table.push('\n');
    }
    table
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    let mut unit = "B";
    let mut scale = 1_u64;
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if bytes / scale < 1024 {
            break;
        }
        unit = larger;
        scale <<= 10;
    }
    if scale == 1 {
        return format!("{bytes} B");
    }
    // In tenths, and whole from ten on.
    let tenths = (u128::from(bytes) * 10 + u128::from(scale) / 2) / u128::from(scale);
    if tenths < 100 { format!("{}.{} {unit}", tenths / 10, tenths % 10) } else { format!("{} {unit}", tenths / 10) }
}

/// How long something has been there, of nanoseconds since the epoch.
pub(super) fn age(created: i64, now: i64) -> String {
    let seconds = now.saturating_sub(created).max(0) / 1_000_000_000;
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_on_its_line() {
        assert_eq!(shown("a\u{1b}[2J\nb\u{202e}c\u{e9}\u{7f}"), "a\\u{1b}[2J\\nb\\u{202e}c\u{e9}\\u{7f}");
        assert_eq!(short("0123456789abcdef"), "0123456789abc");
    }

    #[test]
    fn json_stays_what_it_was_and_harms_nobody() {
        let hostile = "a\u{1b}[2J\nb\u{202e}c\u{e9}\u{7f}\u{9b}2J";
        let json = harmless(&format!("{:#}\n", serde_json::json!({ "a": hostile })));
        assert_eq!(json, "{\n  \"a\": \"a\\u001b[2J\\nb\\u202ec\u{e9}\\u007f\\u009b2J\"\n}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON")["a"], hostile);
    }

    #[test]
    fn moments_that_cannot_be_are_none() {
        assert_eq!(moment(1_700_000_000).as_deref(), Some("2023-11-14T22:13:20Z"));
        assert_eq!(moment(253_402_300_799).as_deref(), Some("9999-12-31T23:59:59Z"));
        for never in [0, 253_402_300_800, u64::MAX] {
            assert_eq!(moment(never), None);
        }
    }

    #[test]
    fn columns_are_as_wide_as_needed() {
        let rows = [["web".into(), String::new()], ["a\nb\tlonger".into(), "x".into()]];
        assert_eq!(table(["NAME", "IP"], &rows), "NAME           IP\nweb            -\na\\nb\\tlonger   x\n");
    }

    #[test]
    fn sizes_and_ages_are_rounded() {
        for (bytes, wanted) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (10 << 20, "10 MiB"),
            (u64::MAX, "16777216 TiB"),
        ] {
            assert_eq!(size(bytes), wanted);
        }
        let second = 1_000_000_000;
        for (seconds, wanted) in [(0, "0s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (172_800, "2d")] {
            assert_eq!(age(second, second * (seconds + 1)), wanted);
        }
        assert_eq!(age(5 * second, 0), "0s", "clocks may be set back");
    }
}
