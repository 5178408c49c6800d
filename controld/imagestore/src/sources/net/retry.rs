//! When a request is repeated. Pure: what happened goes in, how long to wait comes out.
//!
//! Only requests that change nothing are repeated, and only while their answer is unused. A decision of the server or
//! about its certificate is final; a failure of the network, or of the moment, is not.

use std::time::{Duration, SystemTime};

use hyper::StatusCode;
use hyper::header::{HeaderMap, RETRY_AFTER};

use super::FetchError;

/// How often and how soon.
#[derive(Debug, Clone, Copy)]
pub struct Retries {
    /// Most attempts after the first; default 5.
    pub count: u32,
    /// Longest wait before the first of them, doubled with each; default 250 ms.
    pub first: Duration,
    /// Longest wait of all; default 8 s.
    pub longest: Duration,
    /// Longest wait that a server may demand; one that demands more is not asked again; default 60 s.
    pub demanded: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            count: 5,
            first: Duration::from_millis(250),
            longest: Duration::from_secs(8),
            demanded: Duration::from_secs(60),
        }
    }
}

/// What an attempt ended with.
#[derive(Debug)]
pub(super) enum Outcome<'a> {
    Failed(&'a FetchError),
    Answered { status: StatusCode, headers: &'a HeaderMap },
}

impl Retries {
    /// How long to wait before asking again, `done` attempts after the first having been made; `None` to take what
    /// there is. `random` spreads those who failed together.
    pub(super) fn wait(&self, done: u32, outcome: &Outcome<'_>, now: SystemTime, random: u16) -> Option<Duration> {
        let demanded = match outcome {
            Outcome::Failed(error) => error.is_transient().then_some(Duration::ZERO)?,
            Outcome::Answered { status, headers } => {
                (status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS).then_some(())?;
                headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now)).unwrap_or_default()
            }
        };
        if done >= self.count || demanded > self.demanded {
            return None;
        }
        let full = self.first.saturating_mul(1 << done.min(16)).min(self.longest);
        // Between half of it and all of it.
        let spread = full / 2 + full / 2 * u32::from(random) / u32::from(u16::MAX);
        Some(spread.max(demanded))
    }
}

/// Seconds or a date (RFC 9110, 10.2.3). One that is past demands nothing.
fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More than there is a number for is more than anybody waits.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::io;

    use hyper::header::HeaderValue;

    use super::*;

    const RETRIES: Retries = Retries {
        count: 3,
        first: Duration::from_millis(100),
        longest: Duration::from_millis(300),
        demanded: Duration::from_secs(10),
    };

    fn wait(done: u32, status: u16, after: Option<&'static str>, random: u16) -> Option<u128> {
        let mut headers = HeaderMap::new();
        after.map(|after| headers.insert(RETRY_AFTER, HeaderValue::from_static(after)));
        let status = StatusCode::from_u16(status).expect("a status");
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let wait = RETRIES.wait(done, &Outcome::Answered { status, headers: &headers }, now, random)?;
        Some(wait.as_millis())
    }

    #[test]
    fn statuses_decide() {
        for status in [500, 502, 503, 504, 599, 429] {
            assert_eq!(wait(0, status, None, u16::MAX), Some(100), "{status}");
        }
        for status in [200, 204, 206, 301, 304, 400, 401, 403, 404, 407, 408, 410, 412, 416, 451] {
            assert_eq!(wait(0, status, Some("1"), 0), None, "{status}");
        }
    }

    #[test]
    fn waits_grow_up_to_a_limit_and_end() {
        let waits: Vec<_> = (0..5).map(|done| wait(done, 503, None, u16::MAX)).collect();
        assert_eq!(waits, [Some(100), Some(200), Some(300), None, None]);
        let waits: Vec<_> = (0..5).map(|done| wait(done, 503, None, 0)).collect();
        assert_eq!(waits, [Some(50), Some(100), Some(150), None, None]);
        assert_eq!(wait(0, 503, None, u16::MAX / 2), Some(74));
        let huge = Retries { count: u32::MAX, ..RETRIES };
        let outcome = Outcome::Answered { status: StatusCode::BAD_GATEWAY, headers: &HeaderMap::new() };
        assert_eq!(huge.wait(u32::MAX - 1, &outcome, SystemTime::UNIX_EPOCH, u16::MAX), Some(RETRIES.longest));
    }

    #[test]
    fn servers_may_demand_more_time_but_not_any() {
        let cases = [
            ("2", Some(2000)),
            (" 2 ", Some(2000)),
            ("0", Some(100)),
            ("10", Some(10_000)),
            ("11", None),
            ("99999999999999999999", None),
            ("", Some(100)),
            ("Sun, 06 Nov 1994 08:49:42 GMT", Some(5000)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(100)),
            ("Sun, 06 Nov 1994 09:49:37 GMT", None),
            ("soon", Some(100)),
            ("-5", Some(100)),
        ];
        for (text, expected) in cases {
            assert_eq!(wait(0, 429, Some(text), u16::MAX), expected, "{text}");
        }
    }

    #[test]
    fn failures_of_the_way_are_transient_and_verdicts_are_not() {
        let tls = |cause: io::Error| FetchError::Tls { host: "h".into(), cause };
        let unknown = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let cases = [
            (FetchError::Connect { host: "h".into(), cause: io::ErrorKind::ConnectionRefused.into() }, true),
            (tls(io::ErrorKind::ConnectionReset.into()), true),
            (tls(io::ErrorKind::UnexpectedEof.into()), true),
            (tls(io::Error::new(io::ErrorKind::InvalidData, unknown)), false),
            (FetchError::Proxy { proxy: "p".into(), status: 503 }, true),
            (FetchError::Proxy { proxy: "p".into(), status: 407 }, false),
            (FetchError::Resolve { host: "h".into(), cause: io::ErrorKind::NotFound.into() }, false),
            (FetchError::Address { host: "h".into(), address: [169, 254, 169, 254].into() }, false),
            (FetchError::Redirects { limit: 9 }, false),
            (FetchError::Status { url: "u".into(), status: 404 }, false),
            (FetchError::Interrupted { received: 1, announced: None, cause: None }, true),
            (FetchError::Overlong { announced: 1 }, false),
            (FetchError::Stalled { bytes: 0, window: Duration::ZERO }, false),
        ];
        for (error, transient) in cases {
            let wait = RETRIES.wait(0, &Outcome::Failed(&error), SystemTime::UNIX_EPOCH, 0);
            assert_eq!(wait.is_some(), transient, "{error}");
        }
    }
}
