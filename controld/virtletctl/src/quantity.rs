//! Quantities of a command line: memory, CPUs, lines and time. Whole numbers with a suffix, and CPUs with a fraction.

use std::time::Duration;

use common::quantity;

/// Longest grace of a guest, in seconds: a week.
const MAX_GRACE: u32 = 604_800;
/// CPU quota that is one CPU, in microseconds a period.
const MILLIS: i64 = 1000;
/// Memory below this is a slip: no QEMU starts with it.
const LEAST: i64 = 1 << 20;

/// How many of the last lines; `None` is all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lines(pub Option<usize>);

/// Bytes of a memory size, such as `512Mi`.
///
/// # Errors
/// Says what a size looks like.
pub(super) fn bytes(text: &str) -> Result<i64, String> {
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if !matches!(suffix, "" | "k" | "M" | "G" | "T" | "Ki" | "Mi" | "Gi" | "Ti") {
        return Err("not a size, such as 512Mi, 2Gi or 1000000000".into());
    }
    let size = quantity::bytes(text).ok().and_then(|size| i64::try_from(size).ok()).filter(|size| *size > 0);
    size.ok_or_else(|| "not a size, such as 512Mi; it must be a whole number above zero, and not too large".into())
}

/// Bytes of a machine's memory. What begins with a small letter or ends with a B is read as docker reads it: `512m` and `512MB` are
/// 512 MiB. All else is a quantity of Kubernetes.
///
/// # Errors
/// Says what a size looks like, also of one that is a slip: docker's numbers without a suffix are bytes.
pub(super) fn memory(text: &str) -> Result<i64, String> {
    let size = match as_docker(text) {
        Some(quantity) => quantity::bytes(&quantity).ok().and_then(|size| i64::try_from(size).ok()),
        None => Some(bytes(text)?),
    };
    match size.ok_or("not a size, such as 512m, 512Mi or 2g")? {
        size if size < LEAST => Err(format!("{size} bytes are less than any machine takes; write 512m for 512 MiB")),
        size => Ok(size),
    }
}

/// A size with a suffix of docker's alone, as a quantity of Kubernetes. All of docker's are powers of 1024.
fn as_docker(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, suffix) = text.split_at_checked(end).filter(|(number, _)| !number.is_empty())?;
    let unit = match suffix {
        "b" | "B" => "",
        "k" => "Ki",
        "m" => "Mi",
        "g" => "Gi",
        "t" => "Ti",
        _ => match suffix.to_ascii_lowercase().as_str() {
            "kb" | "kib" => "Ki",
            "mb" | "mib" => "Mi",
            "gb" | "gib" => "Gi",
            "tb" | "tib" => "Ti",
            _ => return None,
        },
    };
    Some(format!("{number}{unit}"))
}

/// Thousandths of a CPU, of `2`, `1.5` or `500m`.
///
/// # Errors
/// Says what a number of CPUs looks like.
pub(super) fn milli_cpus(text: &str) -> Result<i64, String> {
    let millis = match text.strip_suffix('m') {
        Some(millis) => digits(millis),
        None => {
            let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
            let thousandths = (fraction.len() <= 3).then(|| digits(&format!("{fraction:0<3}"))).flatten();
            digits(whole).zip(thousandths.filter(|_| !fraction.is_empty())).map(|(whole, rest)| whole * MILLIS + rest)
        }
    };
    millis
        .filter(|millis| (10..=255 * MILLIS).contains(millis))
        .ok_or_else(|| "not a number of CPUs, such as 2, 1.5 or 500m; at least 10m, at most 255".into())
}

/// A number of lines, or `all`, which kubectl writes as `-1`.
///
/// # Errors
/// Says what a number of lines looks like.
pub(super) fn lines(text: &str) -> Result<Lines, String> {
    if matches!(text, "all" | "-1") {
        return Ok(Lines(None));
    }
    text.parse().map(|lines| Lines(Some(lines))).map_err(|_| "not a number of lines, such as 20, nor `all`".into())
}

/// A span of time, of `90s` or `1h30m`.
///
/// # Errors
/// Says what a span looks like.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| "not a span of time, such as 90s, 5m or 1h30m".into())
}

/// How long a guest may take to shut down, in seconds.
///
/// # Errors
/// Says how long is as long as it takes.
pub(super) fn grace(text: &str) -> Result<u32, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds <= MAX_GRACE);
    seconds
        .ok_or_else(|| format!("not a number of seconds from 0 to {MAX_GRACE}, which is a week: as long as it takes"))
}

/// A number without sign that is small enough to be calculated with.
fn digits(text: &str) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_suffixes() {
        for (text, wanted) in [("1", 1), ("512Mi", 512 << 20), ("2Gi", 2 << 30), ("3G", 3_000_000_000), ("4k", 4000)] {
            assert_eq!(bytes(text), Ok(wanted), "{text}");
        }
        for text in ["", "0", "-1", "+1", "Mi", "1.5Gi", "1mi", "1 Mi", "9223372036854775807Ki", "99999999999999999999"]
        {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_is_read_as_docker_and_kubernetes_read_it() {
        for (text, wanted) in [
            ("512m", 512 << 20),
            ("1g", 1 << 30),
            ("1.5g", 3 << 29),
            ("2048k", 2 << 20),
            ("512MB", 512 << 20),
            ("1GiB", 1 << 30),
            ("1073741824b", 1 << 30),
            ("1073741824", 1 << 30),
            ("512Mi", 512 << 20),
            ("3G", 3_000_000_000),
        ] {
            assert_eq!(memory(text), Ok(wanted), "{text}");
        }
        for text in ["", "m", "0", "0g", "-1g", "1x", "g1", "1..5g", "99999999999999999999g"] {
            memory(text).expect_err(text);
        }
        let told = memory("512").expect_err("bytes");
        assert_eq!(told, "512 bytes are less than any machine takes; write 512m for 512 MiB");
    }

    #[test]
    fn lines_are_counted_or_all() {
        for (text, wanted) in [("0", Some(0)), ("20", Some(20)), ("all", None), ("-1", None)] {
            assert_eq!(lines(text), Ok(Lines(wanted)), "{text}");
        }
        for text in ["", "-2", "some", "1.5"] {
            lines(text).expect_err(text);
        }
    }

    #[test]
    fn spans_are_as_in_go() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("1h30m", 5400)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "-5m", "5", "soon"] {
            span(text).expect_err(text);
        }
    }

    #[test]
    fn cpus_have_fractions() {
        for (text, wanted) in
            [("2", 2000), ("1.5", 1500), ("0.25", 250), ("500m", 500), ("0.125", 125), ("255", 255_000)]
        {
            assert_eq!(milli_cpus(text), Ok(wanted), "{text}");
        }
        for text in ["", "0", "9m", "256", "1.", ".5", "-1", "1.0001", "1e3", "2 ", "m", "99999999999999999999"] {
            assert!(milli_cpus(text).is_err(), "{text}");
        }
    }
}
