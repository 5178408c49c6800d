//! What an answer says that it is encoded by. Nothing is ever decoded because a header says so, but for chunks: every
//! request asks for the file as it is.
//!
//! Some servers call a compressed file encoded by its own compression (Apache's `AddEncoding x-gzip .gz`), and send it as
//! it is; curl and browsers keep it so. Such a file is told from one that was encoded on the way by its name and by its
//! first bytes. One that was compressed both ways is refused when it is inspected.

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::header::{CONTENT_ENCODING, HeaderMap, HeaderName, TRANSFER_ENCODING};
use url::Url;
use vmimage::decode::Compression;
use vmimage::error::printable;

use super::{Body, FetchError};

/// Bytes by which all compressions can be told: xz has the longest mark.
const MARK: usize = 6;

/// An encoding that may be no more than another name for what the file is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Label {
    encoding: String,
    /// What the file is compressed by, by its name where it was asked for, and where it was found.
    own: Vec<Compression>,
}

/// The label of an answer that has one, of a file at these places; none of them if it is to be plain.
///
/// # Errors
/// When the answer is encoded.
pub(super) fn label(headers: &HeaderMap, places: &[&Url]) -> Result<Option<Label>, FetchError> {
    if let Some(transfer) = besides(headers, &TRANSFER_ENCODING, b"chunked") {
        return Err(FetchError::Encoded { encoding: shown(&TRANSFER_ENCODING, &transfer) });
    }
    let Some(codings) = besides(headers, &CONTENT_ENCODING, b"identity") else { return Ok(None) };
    let encoding = shown(&CONTENT_ENCODING, &codings);
    let own: Vec<_> = places.iter().filter_map(|place| by_name(place)).collect();
    match &codings[..] {
        [coding] if is_compression(coding) && !own.is_empty() => Ok(Some(Label { encoding, own })),
        _ => Err(FetchError::Encoded { encoding }),
    }
}

impl Label {
    /// The body of that answer, from its beginning: an error if it is not the file itself.
    pub(super) fn judged(self, body: Box<dyn Body>) -> Box<dyn Body> {
        Box::new(Judged { body, label: Some(self), head: Vec::new() })
    }
}

/// The codings in a header besides the one that says nothing, if there are any.
fn besides<'a>(headers: &'a HeaderMap, name: &HeaderName, nothing: &[u8]) -> Option<Vec<&'a [u8]>> {
    let values = headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b','));
    let codings = values.map(<[u8]>::trim_ascii).filter(|coding| !coding.is_empty());
    let codings: Vec<_> = codings.filter(|coding| !coding.eq_ignore_ascii_case(nothing)).collect();
    Some(codings).filter(|codings| !codings.is_empty())
}

fn shown(name: &HeaderName, codings: &[&[u8]]) -> String {
    format!("{name}: {}", printable(&String::from_utf8_lossy(&codings.join(&b", "[..]))))
}

/// Whether a coding is a compression that files have, too (RFC 9110, 8.4.1.3: `x-gzip` is `gzip`).
fn is_compression(coding: &[u8]) -> bool {
    let coding = coding.to_ascii_lowercase();
    let plain = coding.strip_prefix(b"x-").unwrap_or(&coding);
    [&b"gzip"[..], b"xz", b"zstd", b"bzip2"].contains(&plain)
}

/// What the file at a place is compressed by, as its name ends.
fn by_name(place: &Url) -> Option<Compression> {
    let (_, end) = place.path_segments()?.next_back()?.rsplit_once('.')?;
    match end.to_ascii_lowercase().as_str() {
        "gz" | "tgz" => Some(Compression::Gzip),
        "xz" | "txz" => Some(Compression::Xz),
        "zst" | "zstd" | "tzst" => Some(Compression::Zstd),
        "bz2" | "tbz" | "tbz2" => Some(Compression::Bzip2),
        _ => None,
    }
}

/// A body whose first bytes are looked at before anybody has them.
struct Judged {
    body: Box<dyn Body>,
    /// Until it is known to be true of the file.
    label: Option<Label>,
    /// What was read for that and not handed out yet.
    head: Vec<u8>,
}

impl Body for Judged {
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        async move {
            if let Some(Label { encoding, own }) = &self.label {
                let mut mark = [0; MARK];
                // What is read is kept at once: whoever waits may give up and ask again.
                while self.head.len() < MARK {
                    match self.body.read(&mut mark[self.head.len()..]).await? {
                        0 => break,
                        count => {
                            let at = self.head.len();
                            self.head.extend_from_slice(&mark[at..at + count]);
                        }
                    }
                }
                if !Compression::of(&self.head).is_some_and(|found| own.contains(&found)) {
                    return Err(FetchError::Encoded { encoding: encoding.clone() });
                }
                self.label = None;
            }
            if self.head.is_empty() {
                return self.body.read(room).await;
            }
            let count = room.len().min(self.head.len());
            room[..count].copy_from_slice(&self.head[..count]);
            self.head.drain(..count);
            Ok(count)
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests;
