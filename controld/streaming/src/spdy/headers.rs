//! Header blocks after decompression: a count, then names and values, each behind its length.

use std::collections::BTreeMap;

use bytes::{Buf as _, BufMut as _};

use super::MAX_HEADERS;

/// Headers of a stream. Names are lower case; a name may have several values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(BTreeMap<String, Vec<String>>);

/// Why a header block is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It ends in the middle, or goes on after its end.
    #[error("header block has another length than it says")]
    Length,
    /// It has more headers than are taken.
    #[error("header block has {0} headers, the limit is {MAX_HEADERS}")]
    Count(u32),
    /// A name is empty, has upper case letters, or comes twice.
    #[error("header name is empty, not lower case, or there twice")]
    Name,
    /// A name or value is not UTF-8.
    #[error("header is not UTF-8")]
    Text,
}

impl Headers {
    /// No headers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value to those of `name`, which is made lower case.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.entry(name.to_ascii_lowercase()).or_default().push(value.into());
        self
    }

    /// The first value of a name in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|values| values.first()).map(String::as_str)
    }

    /// Names and their values, in order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0.iter().map(|(name, values)| (name.as_str(), values.as_slice()))
    }

    /// How many names there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn parse(mut block: &[u8]) -> Result<Self, HeaderError> {
        let count = block.try_get_u32().map_err(|_short| HeaderError::Length)?;
        if count as usize > MAX_HEADERS {
            return Err(HeaderError::Count(count));
        }
        let mut headers = BTreeMap::new();
        for _ in 0..count {
            let name = text(&mut block)?;
            let values = text(&mut block)?;
            if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(HeaderError::Name);
            }
            let values = values.split('\0').map(str::to_owned).collect();
            if headers.insert(name.to_owned(), values).is_some() {
                return Err(HeaderError::Name);
            }
        }
        if !block.is_empty() {
            return Err(HeaderError::Length);
        }
        Ok(Self(headers))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut block = Vec::new();
        block.put_u32(length(self.0.len()));
        for (name, values) in &self.0 {
            let values = values.join("\0");
            for text in [name, &values] {
                block.put_u32(length(text.len()));
                block.put_slice(text.as_bytes());
            }
        }
        block
    }
}

fn text<'a>(block: &mut &'a [u8]) -> Result<&'a str, HeaderError> {
    let len = block.try_get_u32().map_err(|_short| HeaderError::Length)? as usize;
    let (text, rest) = block.split_at_checked(len).ok_or(HeaderError::Length)?;
    *block = rest;
    std::str::from_utf8(text).map_err(|_| HeaderError::Text)
}

/// Our own headers are a few hundred bytes; a longer one would be cut off by the peer's limits in any case.
fn length(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
