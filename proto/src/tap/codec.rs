//! Bytes of a packet to messages and back. Pure: sockets are [`super::wire`]'s.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ErrorBody, ErrorCode, MAX_FDS, MAX_MESSAGE, OLDEST, VERSION, Versioned};

/// Why bytes are not a message, or a message does not become bytes.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Longer than a packet may be.
    #[error("message of {len} bytes is over the limit of {MAX_MESSAGE}")]
    TooLong {
        /// Its length.
        len: usize,
    },
    /// Not the JSON that the protocol says.
    #[error("message is not of the tap protocol")]
    Json(#[source] serde_json::Error),
    /// Another version.
    #[error(
        "peer speaks tap protocol {theirs}, this program speaks {OLDEST} to {VERSION}; install one release of both"
    )]
    Version {
        /// What the peer speaks.
        theirs: u16,
    },
    /// The count in the message is not the count of descriptors that came.
    #[error("message announces {announced} descriptors, {received} came")]
    FdCount {
        /// As the message says.
        announced: usize,
        /// As the kernel delivered.
        received: usize,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestEnvelope<B> {
    v: u16,
    body: B,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyEnvelope<B> {
    v: u16,
    fds: usize,
    body: Outcome<B>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome<B> {
    Ok(B),
    Err(ErrorBody),
}

/// Only the version, so that a peer of another release is told so whatever else its message holds.
#[derive(Deserialize)]
struct VersionOnly {
    v: u16,
}

/// The packet of a request.
///
/// # Errors
/// When the message is longer than a packet may be.
pub fn encode_request<B: Serialize + Versioned>(body: &B) -> Result<Vec<u8>, CodecError> {
    encode(&RequestEnvelope { v: body.since(), body })
}

/// The request in a packet that came with `received_fds` descriptors.
///
/// # Errors
/// See [`CodecError`]. A request never carries descriptors.
pub fn decode_request<B: DeserializeOwned>(bytes: &[u8], received_fds: usize) -> Result<B, CodecError> {
    let envelope: RequestEnvelope<B> = decode(bytes)?;
    check_fds(0, received_fds)?;
    Ok(envelope.body)
}

/// The packet of a reply with `fds` descriptors beside it.
///
/// # Errors
/// When the message is longer than a packet may be, or carries more descriptors than one.
pub fn encode_reply<B: Serialize + Versioned>(body: Result<&B, ErrorBody>, fds: usize) -> Result<Vec<u8>, CodecError> {
    if fds > MAX_FDS {
        return Err(CodecError::FdCount { announced: fds, received: MAX_FDS });
    }
    let (v, body) = match body {
        Ok(body) => (body.since(), Outcome::Ok(body)),
        Err(error) => (OLDEST, Outcome::Err(error)),
    };
    encode(&ReplyEnvelope { v, fds, body })
}

/// The reply in a packet that came with `received_fds` descriptors. The inner result is the server's.
///
/// # Errors
/// See [`CodecError`].
pub fn decode_reply<B: DeserializeOwned>(
    bytes: &[u8],
    received_fds: usize,
) -> Result<Result<B, ErrorBody>, CodecError> {
    let envelope: ReplyEnvelope<B> = decode(bytes)?;
    check_fds(envelope.fds, received_fds)?;
    Ok(match envelope.body {
        Outcome::Ok(body) => Ok(body),
        Outcome::Err(error) => Err(error),
    })
}

fn encode<T: Serialize>(envelope: &T) -> Result<Vec<u8>, CodecError> {
    let bytes = serde_json::to_vec(envelope).map_err(CodecError::Json)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLong { len: bytes.len() });
    }
    Ok(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > MAX_MESSAGE {
        return Err(CodecError::TooLong { len: bytes.len() });
    }
    let VersionOnly { v } = serde_json::from_slice(bytes).map_err(CodecError::Json)?;
    if !(OLDEST..=VERSION).contains(&v) {
        return Err(CodecError::Version { theirs: v });
    }
    serde_json::from_slice(bytes).map_err(CodecError::Json)
}

fn check_fds(announced: usize, received: usize) -> Result<(), CodecError> {
    if announced == received { Ok(()) } else { Err(CodecError::FdCount { announced, received }) }
}

impl CodecError {
    /// What a server answers to a packet that it cannot read.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Version { .. } => ErrorCode::Version,
            Self::TooLong { .. } | Self::Json(_) | Self::FdCount { .. } => ErrorCode::BadRequest,
        }
    }
}

#[cfg(test)]
mod tests;
