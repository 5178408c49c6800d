//! Conditions and ranges (RFC 9110, 13 and 14): what is asked for, and whether the answer fits.
//!
//! Pure. A server that mixes up ranges would have us put an image together from pieces of different files, so every
//! answer that does not fit is an error.

use hyper::StatusCode;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};

use super::{Ask, FetchError, Validators};

/// Longest validator that is worth keeping.
const MAX_VALIDATOR: usize = 1024;

/// What an answer gives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// What the caller knows is what there is.
    Unchanged,
    /// A body of `bytes` that begins at `from`, of a whole of `length`.
    Body { from: u64, bytes: Option<u64>, length: Option<u64> },
    /// The range cannot be had any more: to be asked for from the beginning.
    FromStart,
}

/// A range that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Range {
    at: u64,
    /// Not in it any more.
    until: Option<u64>,
    /// Strong.
    etag: Option<String>,
    total: Option<u64>,
}

impl Range {
    /// The range that can be asked for; none if the whole is to be.
    pub(super) fn of(ask: &Ask) -> Option<Self> {
        let from = ask.from.clone().unwrap_or_default();
        // Nobody can tell by a weak validator whether the rest belongs to what is here (RFC 9110, 8.8.1).
        let strong = from.etag.as_deref().is_none_or(is_strong);
        match ask.until {
            Some(until) if strong && until > from.at => {
                Some(Self { at: from.at, until: Some(until), etag: from.etag, total: from.total })
            }
            None if strong && from.at > 0 => {
                Some(Self { at: from.at, until: None, etag: from.etag, total: from.total })
            }
            _ => None,
        }
    }

    /// Whether an answer says that it is of the version that was asked for, if one was. One that says nothing may be of
    /// any (RFC 9110, 15.3.7: a part that is sent has the validators that a whole would have).
    fn is_of_version(&self, headers: &HeaderMap) -> bool {
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        self.etag.is_none() || etag == self.etag.as_deref()
    }

    /// Whether the body is of use only if it is the range.
    fn is_part(&self) -> bool {
        self.until.is_some()
    }
}

/// The headers that ask for it.
pub(super) fn headers(known: Option<&Validators>, range: Option<&Range>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: HeaderName, value: &str| {
        // What a server sent is a sound value; what is not was tampered with, and asks for nothing.
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    };
    if let Some(Validators { etag, last_modified }) = known {
        etag.iter().for_each(|etag| put(IF_NONE_MATCH, etag));
        last_modified.iter().for_each(|date| put(IF_MODIFIED_SINCE, date));
    }
    if let Some(Range { at, until, etag, .. }) = range {
        match until {
            Some(until) => put(RANGE, &format!("bytes={at}-{}", until - 1)),
            None => put(RANGE, &format!("bytes={at}-")),
        }
        etag.iter().for_each(|etag| put(IF_RANGE, etag));
    }
    headers
}

/// What an answer to these conditions is worth. `length` is that of its body, if it announces one. `None` for a status
/// that is none of a good answer.
pub(super) fn judge(
    status: StatusCode,
    headers: &HeaderMap,
    length: Option<u64>,
    known: Option<&Validators>,
    range: Option<&Range>,
) -> Result<Option<Verdict>, FetchError> {
    match (status, range) {
        (StatusCode::OK, _) => Ok(Some(Verdict::Body { from: 0, bytes: length, length })),
        (StatusCode::NOT_MODIFIED, _) if known.is_some_and(|known| !known.is_empty()) => Ok(Some(Verdict::Unchanged)),
        // Of another version, or of none that anybody can tell: what is here does not go on there.
        (StatusCode::PARTIAL_CONTENT, Some(range)) if !range.is_part() && !range.is_of_version(headers) => {
            Ok(Some(Verdict::FromStart))
        }
        (StatusCode::PARTIAL_CONTENT, Some(range)) => part(headers, length, range).map(Some),
        (StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED, Some(range)) if range.is_part() => {
            Err(FetchError::RangeGone { at: range.at, status: status.as_u16() })
        }
        (StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED, Some(_)) => Ok(Some(Verdict::FromStart)),
        _ => Ok(None),
    }
}

/// A part must be just what was asked for, of just what it was asked of.
fn part(headers: &HeaderMap, body: Option<u64>, range: &Range) -> Result<Verdict, FetchError> {
    let got = headers.get(CONTENT_RANGE);
    let bad = |why| FetchError::Range {
        wanted: format!("{}-{}", range.at, range.until.map_or(String::new(), |until| (until - 1).to_string())),
        got: got.map_or_else(String::new, |got| vmimage::error::printable(&String::from_utf8_lossy(got.as_bytes()))),
        why,
    };
    let parsed = got.and_then(|got| got.to_str().ok()).and_then(parse_content_range);
    let multipart = headers.get(CONTENT_TYPE).is_some_and(|value| {
        value.as_bytes().get(..20).is_some_and(|start| start.eq_ignore_ascii_case(b"multipart/byteranges"))
    });
    let Some((first, last, total)) = parsed.filter(|_| !multipart) else { return Err(bad("it is not one range")) };
    if range.total.is_some_and(|wanted| wanted != total) {
        return Err(bad("the whole has another length"));
    }
    // A server may give less than was asked for only where the whole ends (RFC 9110, 14.1.2).
    let wanted_last = range.until.map_or(total, |until| until.min(total)) - 1;
    if (first, last) != (range.at, wanted_last) {
        return Err(bad("it is another range"));
    }
    let bytes = last - first + 1;
    if body.is_some_and(|body| body != bytes) {
        return Err(bad("its body has another length"));
    }
    if !range.is_of_version(headers) {
        return Err(bad("it is not of the version that was asked for"));
    }
    Ok(Verdict::Body { from: first, bytes: Some(bytes), length: Some(total) })
}

/// First and last byte and the length of the whole: `bytes 0-99/1000`.
fn parse_content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (unit, rest) = text.trim().split_once(' ')?;
    let (span, total) = rest.trim_start().split_once('/')?;
    let (first, last) = span.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    (unit.eq_ignore_ascii_case("bytes") && first <= last && last < total).then_some((first, last, total))
}

/// Digits alone: `parse` would also take a sign.
pub(super) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether a validator changes with every byte.
pub(super) fn is_strong(etag: &str) -> bool {
    etag.len() >= 2 && etag.starts_with('"') && etag.ends_with('"')
}

/// Whether the server would go on from the middle of this later.
pub(super) fn is_resumable(status: StatusCode, headers: &HeaderMap, validators: &Validators) -> bool {
    let ranges = headers.get_all(ACCEPT_RANGES).iter().filter_map(|value| value.to_str().ok());
    let mut units = ranges.flat_map(|value| value.split(','));
    validators.etag.as_deref().is_some_and(is_strong)
        && (status == StatusCode::PARTIAL_CONTENT || units.any(|unit| unit.trim().eq_ignore_ascii_case("bytes")))
}

/// What to recognise the version by later.
pub(super) fn validators(headers: &HeaderMap) -> Validators {
    let kept = |name| {
        let value = headers.get(name)?.to_str().ok()?;
        (!value.is_empty() && value.len() <= MAX_VALIDATOR).then(|| value.to_owned())
    };
    Validators { etag: kept(ETAG), last_modified: kept(LAST_MODIFIED) }
}

#[cfg(test)]
mod tests;
