use hyper::header::CONTENT_LENGTH;

use super::super::Resume;
use super::*;

fn ask(at: u64, until: Option<u64>, etag: Option<&str>, total: Option<u64>) -> Ask {
    Ask { known: None, from: Some(Resume { at, etag: etag.map(str::to_owned), total }), until }
}

fn header_map(lines: &[(HeaderName, &str)]) -> HeaderMap {
    lines.iter().map(|(name, value)| (name.clone(), HeaderValue::try_from(*value).expect("a value"))).collect()
}

fn shown(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("a text"))).collect();
    lines.sort();
    lines
}

#[test]
fn only_what_can_be_told_apart_is_resumed() {
    let asked = |ask: &Ask| shown(&headers(ask.known.as_ref(), Range::of(ask).as_ref()));
    let cases: Vec<(Ask, &[&str])> = vec![
        (Ask::default(), &[]),
        (ask(0, None, Some("\"a\""), None), &[]),
        (ask(100, None, Some("\"a\""), Some(900)), &["if-range: \"a\"", "range: bytes=100-"]),
        (ask(100, None, None, None), &["range: bytes=100-"]),
        (ask(100, None, Some("W/\"a\""), None), &[]),
        (ask(100, None, Some("a"), None), &[]),
        (ask(100, None, Some("\""), None), &[]),
        (ask(100, Some(200), Some("\"a\""), None), &["if-range: \"a\"", "range: bytes=100-199"]),
        (ask(0, Some(1), None, None), &["range: bytes=0-0"]),
        (ask(100, Some(100), None, None), &[]),
        (ask(100, Some(50), None, None), &[]),
        (Ask { until: Some(50), ..Ask::default() }, &["range: bytes=0-49"]),
        (ask(100, None, Some("\"a\nb\""), None), &["range: bytes=100-"]),
    ];
    for (ask, expected) in cases {
        assert_eq!(asked(&ask), expected, "{ask:?}");
    }
    let known =
        Validators { etag: Some("W/\"x\"".into()), last_modified: Some("Sun, 06 Nov 1994 08:49:37 GMT".into()) };
    assert_eq!(
        asked(&Ask { known: Some(known), ..Ask::default() }),
        ["if-modified-since: Sun, 06 Nov 1994 08:49:37 GMT", "if-none-match: W/\"x\""]
    );
}

/// The verdict on a 206 to bytes 100 to 199 or 100 to the end, of version "a".
fn part(until: Option<u64>, total: Option<u64>, range: &str, length: Option<u64>, etag: Option<&str>) -> String {
    let range_asked = Range::of(&ask(100, until, Some("\"a\""), total)).expect("a range");
    let mut lines = vec![(CONTENT_RANGE, range)];
    lines.extend(etag.map(|etag| (ETAG, etag)));
    let verdict =
        judge(StatusCode::PARTIAL_CONTENT, &header_map(&lines), length, None, Some(&range_asked)).map(Option::unwrap);
    match verdict {
        Ok(Verdict::Body { from, length: Some(length), .. }) => format!("{from} of {length}"),
        Ok(verdict) => format!("{verdict:?}"),
        Err(FetchError::Range { why, .. }) => why.to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_part_is_just_what_was_asked_for() {
    let (kind, other, whole, body, version) = (
        "it is not one range",
        "it is another range",
        "the whole has another length",
        "its body has another length",
        "it is not of the version that was asked for",
    );
    let a = Some("\"a\"");
    let cases = [
        (Some(200), None, "bytes 100-199/1000", Some(100), a, "100 of 1000"),
        (Some(200), Some(1000), "Bytes  100-199/1000 ", Some(100), a, "100 of 1000"),
        (Some(200), Some(1000), "bytes 100-199/1000", Some(100), None, version),
        (Some(200), None, "bytes 100-199/1000", None, a, "100 of 1000"),
        (None, Some(1000), "bytes 100-999/1000", Some(900), a, "100 of 1000"),
        (Some(200), Some(150), "bytes 100-149/150", Some(50), a, "100 of 150"),
        (Some(200), None, "bytes 100-199/*", Some(100), a, kind),
        (Some(200), None, "bytes 100-199", Some(100), a, kind),
        (Some(200), None, "100-199/1000", Some(100), a, kind),
        (Some(200), None, "lines 100-199/1000", Some(100), a, kind),
        (Some(200), None, "bytes 199-100/1000", Some(100), a, kind),
        (Some(200), None, "bytes 100-199/150", Some(100), a, kind),
        (Some(200), None, "bytes +100-199/1000", Some(100), a, kind),
        (Some(200), None, "bytes -100-199/1000", Some(100), a, kind),
        (Some(200), None, "bytes 100-199/99999999999999999999", Some(100), a, kind),
        (Some(200), None, "bytes 100-/1000", Some(100), a, kind),
        (Some(200), None, "", Some(100), a, kind),
        (Some(200), None, "bytes 0-99/1000", Some(100), a, other),
        (Some(200), None, "bytes 101-199/1000", Some(99), a, other),
        (Some(200), None, "bytes 100-198/1000", Some(99), a, other),
        (Some(200), None, "bytes 100-200/1000", Some(101), a, other),
        (None, None, "bytes 100-998/1000", Some(899), a, other),
        (Some(200), None, "bytes 50-99/100", Some(50), a, other),
        (Some(200), Some(1000), "bytes 100-199/1001", Some(100), a, whole),
        (None, Some(1000), "bytes 100-1000/1001", Some(901), a, whole),
        (Some(200), None, "bytes 100-199/1000", Some(99), a, body),
        (Some(200), None, "bytes 100-199/1000", Some(101), a, body),
        (Some(200), None, "bytes 100-199/1000", Some(100), Some("\"b\""), version),
        (Some(200), None, "bytes 100-199/1000", Some(100), Some("W/\"a\""), version),
    ];
    for (until, total, range, length, etag, expected) in cases {
        assert_eq!(
            part(until, total, range, length, etag),
            expected,
            "{until:?} {total:?} {range} {length:?} {etag:?}"
        );
    }
    let asked = Range::of(&ask(100, Some(200), None, None)).expect("a range");
    let multipart = [(CONTENT_RANGE, "bytes 100-199/1000"), (CONTENT_TYPE, "Multipart/ByteRanges; boundary=x")];
    assert!(judge(StatusCode::PARTIAL_CONTENT, &header_map(&multipart), None, None, Some(&asked)).is_err());
    let error = judge(StatusCode::PARTIAL_CONTENT, &HeaderMap::new(), None, None, Some(&asked)).expect_err("no range");
    assert_eq!(error.to_string(), "server was asked for bytes 100-199 and gave ``: it is not one range");
}

#[test]
fn statuses_mean_something_only_if_asked_for() {
    let known = Validators { etag: Some("\"a\"".into()), last_modified: None };
    let open = Range::of(&ask(100, None, None, None)).expect("a range");
    let closed = Range::of(&ask(100, Some(200), None, None)).expect("a range");
    let verdict = |status: u16, known: Option<&Validators>, range: Option<&Range>| {
        let status = StatusCode::from_u16(status).expect("a status");
        match judge(status, &header_map(&[(CONTENT_LENGTH, "7")]), Some(7), known, range) {
            Ok(Some(Verdict::Body { from, length, .. })) => format!("from {from} of {length:?}"),
            Ok(verdict) => format!("{verdict:?}"),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(verdict(200, None, None), "from 0 of Some(7)");
    assert_eq!(verdict(200, Some(&known), Some(&open)), "from 0 of Some(7)");
    assert_eq!(verdict(200, None, Some(&closed)), "from 0 of Some(7)");
    assert_eq!(verdict(304, Some(&known), None), "Some(Unchanged)");
    assert_eq!(verdict(304, None, None), "None");
    assert_eq!(verdict(304, Some(&Validators::default()), Some(&open)), "None");
    assert_eq!(verdict(206, Some(&known), None), "None");
    for status in [412, 416] {
        assert_eq!(verdict(status, None, Some(&open)), "Some(FromStart)");
        let gone = format!("server has nothing from byte 100 on any more (status {status})");
        assert_eq!(verdict(status, None, Some(&closed)), gone);
        assert_eq!(verdict(status, Some(&known), None), "None");
    }
    for status in [100, 201, 203, 204, 205, 300, 301, 401, 404, 500, 503] {
        assert_eq!(verdict(status, Some(&known), Some(&open)), "None", "{status}");
    }
}

#[test]
fn resuming_needs_a_strong_validator_and_a_server_that_does_ranges() {
    let is = |status: StatusCode, lines: &[(HeaderName, &str)]| {
        let headers = header_map(lines);
        is_resumable(status, &headers, &validators(&headers))
    };
    let (ok, part) = (StatusCode::OK, StatusCode::PARTIAL_CONTENT);
    assert!(is(ok, &[(ETAG, "\"a\""), (ACCEPT_RANGES, "bytes")]));
    assert!(is(ok, &[(ETAG, "\"a\""), (ACCEPT_RANGES, "lines, Bytes")]));
    assert!(is(part, &[(ETAG, "\"a\"")]));
    assert!(!is(ok, &[(ETAG, "\"a\""), (ACCEPT_RANGES, "none")]));
    assert!(!is(ok, &[(ETAG, "\"a\"")]));
    assert!(!is(ok, &[(ETAG, "W/\"a\""), (ACCEPT_RANGES, "bytes")]));
    assert!(!is(part, &[(LAST_MODIFIED, "Sun, 06 Nov 1994 08:49:37 GMT"), (ACCEPT_RANGES, "bytes")]));
}

#[test]
fn validators_are_kept_if_they_are_sane() {
    let long = format!("\"{}\"", "x".repeat(MAX_VALIDATOR));
    let headers = header_map(&[(ETAG, &long), (LAST_MODIFIED, "yesterday")]);
    assert_eq!(validators(&headers), Validators { etag: None, last_modified: Some("yesterday".into()) });
    assert!(validators(&header_map(&[(ETAG, "")])).is_empty());
}
