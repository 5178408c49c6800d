//! Bytes to frames.

use bytes::{Buf as _, Bytes, BytesMut};

use super::zlib::{Inflater, ZlibError};
use super::{
    CONTROL_VERSION, FLAG_FIN, FLAG_UNIDIRECTIONAL, Frame, HEAD_LEN, HeaderError, Headers, ID_MASK, MAX_CONTROL_LEN,
    MAX_HEADERS_LEN, Setting, Status, kind,
};

/// Why a connection cannot be understood any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A control frame of another version: header compression may be out of step after it.
    #[error("control frame is of SPDY version {0}, only 3 is spoken here")]
    Version(u16),
    /// A control frame is larger than is taken.
    #[error("control frame of type {kind} has {len} bytes, the limit is {MAX_CONTROL_LEN}")]
    TooLong {
        /// Its type.
        kind: u16,
        len: usize,
    },
    /// A control frame's length does not fit its type.
    #[error("control frame of type {kind} cannot have {len} bytes")]
    Length {
        /// Its type.
        kind: u16,
        len: usize,
    },
    /// A frame is for stream 0, which is none.
    #[error("frame for stream 0")]
    StreamZero,
    /// A header block does not decompress.
    #[error(transparent)]
    Zlib(#[from] ZlibError),
    /// A header block is not one.
    #[error(transparent)]
    Headers(#[from] HeaderError),
}

/// Parser of one direction of a connection. Of no use after an error.
#[derive(Debug)]
pub struct Decoder {
    inflater: Inflater,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// At the start of a frame.
    Head,
    /// Inside a data frame.
    Data { id: u32, fin: bool, left: usize },
    /// Inside a control frame of unknown type.
    Skip { left: usize },
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A parser at the start of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self { inflater: Inflater::new(), state: State::Head }
    }

    /// Takes the next frame, or piece of a data frame, from the front of `input`. `None` if more bytes are needed.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, DecodeError> {
        loop {
            match self.state {
                State::Head => {
                    let Some(frame) = self.frame(input)? else {
                        if matches!(self.state, State::Head) {
                            return Ok(None);
                        }
                        continue;
                    };
                    return Ok(Some(frame));
                }
                State::Data { .. } | State::Skip { .. } if input.is_empty() => return Ok(None),
                State::Data { id, fin, left } => {
                    let payload = input.split_to(left.min(input.len())).freeze();
                    let left = left - payload.len();
                    self.state = if left == 0 { State::Head } else { State::Data { id, fin, left } };
                    return Ok(Some(Frame::Data { id, fin: fin && left == 0, payload }));
                }
                State::Skip { left } => {
                    let skipped = left.min(input.len());
                    input.advance(skipped);
                    let left = left - skipped;
                    self.state = if left == 0 { State::Head } else { State::Skip { left } };
                }
            }
        }
    }

    /// A frame that is here whole. `None` if it is not, or if the state has changed.
    fn frame(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, DecodeError> {
        let Some(head) = input.first_chunk::<HEAD_LEN>().copied() else { return Ok(None) };
        let mut rest = &head[..];
        let first = rest.get_u32();
        let flags_and_len = rest.get_u32();
        let flags = (flags_and_len >> 24) as u8;
        let len = (flags_and_len & 0x00ff_ffff) as usize;
        if first >> 31 == 0 {
            let (id, fin) = (stream_id(first)?, flags & FLAG_FIN != 0);
            input.advance(HEAD_LEN);
            if len > 0 {
                self.state = State::Data { id, fin, left: len };
                return Ok(None);
            }
            return Ok(Some(Frame::Data { id, fin, payload: Bytes::new() }));
        }
        let version = (first >> 16) as u16;
        let kind = (first & 0xffff) as u16;
        if version != CONTROL_VERSION {
            return Err(DecodeError::Version(version & 0x7fff));
        }
        if !is_known(kind) {
            input.advance(HEAD_LEN);
            self.state = State::Skip { left: len };
            return Ok(None);
        }
        if len > MAX_CONTROL_LEN {
            return Err(DecodeError::TooLong { kind, len });
        }
        if input.len() < HEAD_LEN + len {
            return Ok(None);
        }
        input.advance(HEAD_LEN);
        let payload = input.split_to(len).freeze();
        self.control(kind, flags, payload).map(Some)
    }

    fn control(&mut self, kind: u16, flags: u8, mut payload: Bytes) -> Result<Frame, DecodeError> {
        let wrong = DecodeError::Length { kind, len: payload.len() };
        let (shortest, exact) = match kind {
            kind::SYN_STREAM => (10, false),
            kind::SYN_REPLY | kind::HEADERS | kind::SETTINGS => (4, false),
            kind::PING => (4, true),
            _ => (8, true),
        };
        if payload.len() < shortest || (exact && payload.len() > shortest) {
            return Err(wrong);
        }
        let fin = flags & FLAG_FIN != 0;
        Ok(match kind {
            kind::SYN_STREAM => {
                let id = stream_id(payload.get_u32())?;
                let associated = payload.get_u32() & ID_MASK;
                let priority = payload.get_u8() >> 5;
                // Slot in the sender's certificate vector, unused.
                payload.advance(1);
                let unidirectional = flags & FLAG_UNIDIRECTIONAL != 0;
                Frame::SynStream { id, associated, priority, fin, unidirectional, headers: self.headers(&payload)? }
            }
            kind::SYN_REPLY => {
                let id = stream_id(payload.get_u32())?;
                Frame::SynReply { id, fin, headers: self.headers(&payload)? }
            }
            kind::HEADERS => {
                let id = stream_id(payload.get_u32())?;
                Frame::Headers { id, fin, headers: self.headers(&payload)? }
            }
            kind::RST_STREAM => {
                Frame::RstStream { id: stream_id(payload.get_u32())?, status: Status(payload.get_u32()) }
            }
            kind::SETTINGS => {
                let count = payload.get_u32() as usize;
                if count.checked_mul(8) != Some(payload.len()) {
                    return Err(wrong);
                }
                Frame::Settings((0..count).map(|_| setting(&mut payload)).collect())
            }
            kind::PING => Frame::Ping { id: payload.get_u32() },
            kind::GOAWAY => Frame::Goaway { last_good: payload.get_u32() & ID_MASK, status: payload.get_u32() },
            // The one kind that is left. Its stream 0 is the whole connection, in SPDY/3.1.
            _ => Frame::WindowUpdate { id: payload.get_u32() & ID_MASK, delta: payload.get_u32() & ID_MASK },
        })
    }

    fn headers(&mut self, block: &[u8]) -> Result<Headers, DecodeError> {
        let block = self.inflater.inflate(block, MAX_HEADERS_LEN)?;
        Ok(Headers::parse(&block)?)
    }
}

fn is_known(kind: u16) -> bool {
    matches!(
        kind,
        kind::SYN_STREAM
            | kind::SYN_REPLY
            | kind::RST_STREAM
            | kind::SETTINGS
            | kind::PING
            | kind::GOAWAY
            | kind::HEADERS
            | kind::WINDOW_UPDATE
    )
}

fn stream_id(raw: u32) -> Result<u32, DecodeError> {
    match raw & ID_MASK {
        0 => Err(DecodeError::StreamZero),
        id => Ok(id),
    }
}

fn setting(payload: &mut Bytes) -> Setting {
    let flags_and_id = payload.get_u32();
    Setting { flags: (flags_and_id >> 24) as u8, id: flags_and_id & 0x00ff_ffff, value: payload.get_u32() }
}
