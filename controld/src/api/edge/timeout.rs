//! `grpc-timeout`, the client's deadline (gRPC over HTTP/2, "Requests").

use std::time::Duration;

use tonic::codegen::http::HeaderMap;

/// An answer that leaves so much earlier may still be read by a client that goes by its own clock.
const AHEAD: Duration = Duration::from_millis(20);

/// How long the client waits, less the way back; `None` if it does not say, or nonsense.
pub(crate) fn of(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    };
    Some(timeout.saturating_sub(AHEAD.min(timeout / 10)))
}

#[cfg(test)]
mod tests {
    use tonic::codegen::http::HeaderValue;

    use super::*;

    #[test]
    fn a_timeout_is_read_and_nonsense_is_none() {
        let read = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_str(text).expect("a value"));
            of(&headers).map(|timeout| timeout.as_nanos())
        };
        for (text, wanted) in [
            ("1S", Some(980_000_000)),
            ("100m", Some(90_000_000)),
            ("1000u", Some(900_000)),
            ("10n", Some(9)),
            ("99999999H", Some(359_999_996_400 * 1_000_000_000 - 20_000_000)),
            ("2M", Some(119_980_000_000)),
            ("0S", Some(0)),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("+1S", None),
            ("999999999S", None),
        ] {
            assert_eq!(read(text), wanted, "{text}");
        }
        assert_eq!(of(&HeaderMap::new()), None);
    }
}
