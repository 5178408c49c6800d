//! What a caller says of the trace that its call belongs to: the headers `traceparent` and `tracestate` of W3C Trace Context.
//!
//! `baggage` is not read: it is for those whom we would call, and these speak other protocols.

use tonic::codegen::http::HeaderMap;

/// Longest state that is handed on; a longer one may be left out.
const MAX_STATE: usize = 512;

/// The span that a call was made in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) sampled: bool,
    /// What the tracing systems on the way say, as they said it.
    pub(super) state: String,
}

impl Parent {
    /// The one that the headers name, if they name one.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut said = headers.get_all("traceparent").iter();
        let (Some(said), None) = (said.next(), said.next()) else { return None };
        let mut fields = said.to_str().ok()?.split('-');
        let [version] = bytes(fields.next()?)?;
        let (trace, span) = (bytes::<16>(fields.next()?)?, bytes::<8>(fields.next()?)?);
        let [flags] = bytes(fields.next()?)?;
        // A later version may have more fields behind these.
        let is_known = version == 0 && fields.next().is_none() || (1..0xff).contains(&version);
        let is_valid = is_known && trace != [0; 16] && span != [0; 8];
        is_valid.then(|| Self { trace, span, sampled: flags & 1 == 1, state: state(headers).unwrap_or_default() })
    }
}

fn state(headers: &HeaderMap) -> Option<String> {
    let said: Result<Vec<_>, _> = headers.get_all("tracestate").iter().map(|value| value.to_str()).collect();
    Some(said.ok()?.join(",")).filter(|state| state.len() <= MAX_STATE)
}

/// So many bytes, as two lower-case digits each.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    bytes?.try_into().ok()
}

fn digit(of: u8) -> Option<u8> {
    match of {
        b'0'..=b'9' => Some(of - b'0'),
        b'a'..=b'f' => Some(of - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    fn read(headers: &[(&'static str, &str)]) -> Option<Parent> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().expect("a value"));
        }
        Parent::of(&map)
    }

    #[test]
    fn a_parent_is_read_with_its_state() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        let read =
            read(&[("traceparent", &parent), ("tracestate", "rojo=00f067aa"), ("tracestate", "k=v")]).expect("one");
        let trace = [0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];
        let span = [0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31];
        assert_eq!(read, Parent { trace, span, sampled: true, state: "rojo=00f067aa,k=v".into() });
    }

    #[test]
    fn flags_and_versions_of_later_years_do_not_matter() {
        for (rest, sampled) in [("00", false), ("01", true), ("02", false), ("03", true)] {
            let parent = format!("00-{TRACE}-b7ad6b7169203331-{rest}");
            assert_eq!(read(&[("traceparent", &parent)]).map(|parent| parent.sampled), Some(sampled), "{rest}");
        }
        let parent = format!("cc-{TRACE}-b7ad6b7169203331-01-what-the-future-will-be");
        assert_eq!(read(&[("traceparent", &parent)]).map(|parent| parent.sampled), Some(true));
    }

    #[test]
    fn nonsense_is_as_if_nothing_was_said() {
        let whole = format!("00-{TRACE}-b7ad6b7169203331-01");
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[("traceparent", &whole), ("traceparent", &whole)]), None);
        for (was, is) in [
            (&*whole, ""),
            ("00-", ""),
            ("00-", "0-"),
            ("00-", "ff-"),
            ("-01", ""),
            ("-01", "-1"),
            ("-01", "-01-"),
            ("-01", "-01-00"),
            ("0af7", "0AF7"),
            ("0af7", "0bg7"),
            ("0af7", "af7"),
            (TRACE, "00000000000000000000000000000000"),
            ("b7ad6b7169203331", "0000000000000000"),
            ("b7ad6b7169203331", "b7ad6b716920333"),
        ] {
            let parent = whole.replacen(was, is, 1);
            assert_eq!(read(&[("traceparent", &parent)]), None, "{parent}");
        }
        for length in 0..whole.len() {
            assert_eq!(read(&[("traceparent", &whole[..length])]), None, "{length}");
        }
    }

    #[test]
    fn a_state_that_is_too_long_is_left_out() {
        let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
        for (length, kept) in [(MAX_STATE, MAX_STATE), (MAX_STATE + 1, 0)] {
            let read = read(&[("traceparent", &parent), ("tracestate", &"x".repeat(length))]).expect("a parent");
            assert_eq!(read.state.len(), kept);
        }
    }
}
