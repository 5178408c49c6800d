//! What a source sends: facts about a file, and its bytes.

use std::fmt;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::HeaderMap;
use url::Url;

use super::redacted;
use super::{FetchError, Validators};

/// Bytes on their way.
pub trait Body: Send {
    /// Fills `room` from its beginning, and says with how many bytes; it may be fewer than there is room for. 0 says
    /// that the body was whole. A body that is not whole ends in an error. Dropping the body closes its connection.
    fn read<'a>(&'a mut self, room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>>;
}

/// What a source says when it is asked for bytes.
#[derive(Debug)]
pub enum Opened {
    /// They are what the caller has.
    Unchanged,
    /// Here they are.
    Artifact(Artifact),
}

/// Bytes and what is known of them beforehand.
pub struct Artifact {
    /// How many bytes the whole has, if that is known.
    pub length: Option<u64>,
    /// Where in the whole the body begins: 0 if the source would not go on from where it was asked to.
    pub from: u64,
    /// Whether the end of the body can be told from a broken connection.
    pub delimited: bool,
    /// Whether the source calls it a web page.
    pub web_page: bool,
    /// Whether the source would go on from the middle later, and tell if it has something else then.
    pub resumable: bool,
    /// What to recognise this version by.
    pub validators: Validators,
    /// The bytes, as they are hosted.
    pub body: Box<dyn Body>,
}

impl fmt::Debug for Artifact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { length, from, .. } = self;
        out.debug_struct("Artifact").field("length", length).field("from", from).finish_non_exhaustive()
    }
}

/// A whole answer that was small enough, of any status.
#[derive(Debug)]
pub struct Small {
    /// The status; 304 says that the caller has it already.
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Where it came from in the end.
    pub url: Url,
    pub body: Bytes,
    /// What to recognise this version by.
    pub validators: Validators,
}

impl Small {
    /// Its status, as an error.
    pub(crate) fn refusal(&self) -> FetchError {
        FetchError::Status { url: redacted(&self.url), status: self.status.as_u16() }
    }
}
