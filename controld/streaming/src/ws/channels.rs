//! Channels: the first byte of a message says which stream the rest of it is of.
//!
//! Nobody opens a channel: the streams that the session is to have are shown as opened by the client before its first
//! message. Their numbers are those of the channels, doubled and one more. An end of a stream cannot be told, except by the
//! client in version 5.

use std::collections::VecDeque;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::{Bytes, BytesMut};

use super::{PING, Pinged, write_close};
use crate::mux::codec::{Codec, CodecError, Decode, Decoded, Encode};
use crate::spdy::{Frame, Headers};
use crate::websocket::{BINARY, Decoder, MessageError, PONG, Piece, TEXT, write};

/// Base64 as Go's `StdEncoding` writes it, and without padding too.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Base64 characters that make whole bytes.
const GROUP: usize = 4;
/// The channel of the client's message that ends another channel.
const CLOSE_CHANNEL: u8 = 255;

/// What messages look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coding {
    /// Text: the channel's digit, then base64.
    pub(crate) base64: bool,
    /// The client can end a channel: version 5.
    pub(crate) half_close: bool,
}

/// The channels of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Channels {
    /// In ascending order, with the headers that a SPDY client would open the stream with.
    pub(crate) streams: Vec<(u8, Headers)>,
    /// Messages that the client hears first.
    pub(crate) preface: Vec<(u8, Vec<u8>)>,
}

/// Streams in channels.
pub(crate) fn channels(coding: Coding, channels: Channels) -> Codec {
    let Channels { streams, preface } = channels;
    let known = streams.iter().map(|(channel, _)| *channel).collect();
    let opened = streams.into_iter().map(|(channel, headers)| {
        let id = id_of(channel);
        Frame::SynStream { id, associated: 0, priority: 0, fin: false, unidirectional: false, headers }
    });
    let pinged = Pinged::default();
    let reader = Reader {
        coding,
        known,
        opened: opened.collect(),
        decoder: Decoder::default(),
        at: At::Start,
        group: Vec::new(),
        padded: false,
        pinged: pinged.clone(),
    };
    (Box::new(reader), Box::new(Writer { coding, preface, pinged }))
}

fn id_of(channel: u8) -> u32 {
    2 * u32::from(channel) + 1
}

struct Reader {
    coding: Coding,
    known: Vec<u8>,
    opened: VecDeque<Frame>,
    decoder: Decoder,
    at: At,
    /// Base64 characters that make no whole byte yet.
    group: Vec<u8>,
    /// The message's base64 has ended.
    padded: bool,
    pinged: Pinged,
}

/// Where in a message the next byte is.
#[derive(Debug, Clone, Copy)]
enum At {
    Start,
    /// The rest is of this stream.
    Stream(u32),
    /// The next byte is the channel that ends.
    Ending,
    /// The rest says nothing.
    Skip,
}

struct Writer {
    coding: Coding,
    preface: Vec<(u8, Vec<u8>)>,
    pinged: Pinged,
}

// === impl Reader ===

impl Reader {
    /// Takes the next bytes of a message.
    fn take(&mut self, mut bytes: Bytes, last: bool) -> Result<Option<Frame>, MessageError> {
        if matches!(self.at, At::Start) && !bytes.is_empty() {
            let channel = bytes.split_to(1);
            self.at = self.begin(channel.first().copied().unwrap_or_default());
        }
        match self.at {
            At::Ending if !bytes.is_empty() => {
                self.at = At::Skip;
                let channel = bytes.first().copied().unwrap_or_default();
                let ends = self.known.contains(&channel);
                Ok(ends.then(|| Frame::Data { id: id_of(channel), fin: true, payload: Bytes::new() }))
            }
            At::Stream(id) => {
                let payload = if self.coding.base64 { self.decode_base64(&bytes, last)? } else { bytes };
                Ok((!payload.is_empty()).then_some(Frame::Data { id, fin: false, payload }))
            }
            At::Start | At::Ending | At::Skip => Ok(None),
        }
    }

    fn begin(&self, byte: u8) -> At {
        let channel = if self.coding.base64 { byte.wrapping_sub(b'0') } else { byte };
        match channel {
            CLOSE_CHANNEL if self.coding.half_close => At::Ending,
            channel if self.known.contains(&channel) => At::Stream(id_of(channel)),
            _ => At::Skip,
        }
    }

    fn decode_base64(&mut self, bytes: &[u8], last: bool) -> Result<Bytes, MessageError> {
        if self.padded && !bytes.is_empty() {
            return Err(MessageError::Base64);
        }
        self.group.extend_from_slice(bytes);
        let whole = if last { self.group.len() } else { self.group.len() / GROUP * GROUP };
        let decoded = BASE64.decode(self.group.get(..whole).unwrap_or_default()).map_err(|_| MessageError::Base64)?;
        let padded = self.group.drain(..whole).any(|byte| byte == b'=');
        // Also when it came with the padding, at once.
        if padded && !self.group.is_empty() {
            return Err(MessageError::Base64);
        }
        self.padded = padded && !last;
        Ok(decoded.into())
    }
}

impl Decode for Reader {
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Decoded, CodecError> {
        if let Some(opened) = self.opened.pop_front() {
            return Ok(Decoded::Frame(opened));
        }
        while let Some(piece) = self.decoder.decode(bytes)? {
            match piece {
                Piece::Message { first, last, bytes, .. } => {
                    if first {
                        self.at = At::Start;
                    }
                    if let Some(frame) = self.take(bytes, last)? {
                        return Ok(Decoded::Frame(frame));
                    }
                }
                Piece::Ping(payload) => return Ok(Decoded::Frame(self.pinged.come(payload))),
                Piece::Close(_) => return Ok(Decoded::End),
            }
        }
        Ok(Decoded::More)
    }
}

// === impl Writer ===

impl Writer {
    fn message(&self, channel: u8, payload: &[u8], out: &mut BytesMut) {
        if self.coding.base64 {
            write(TEXT, &[&[b'0' + channel % 10], BASE64.encode(payload).as_bytes()], out);
        } else {
            write(BINARY, &[&[channel], payload], out);
        }
    }
}

impl Encode for Writer {
    fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        for (channel, bytes) in std::mem::take(&mut self.preface) {
            self.message(channel, &bytes, out);
        }
        match frame {
            Frame::Data { id, payload, .. } if !payload.is_empty() => {
                // No other stream was ever opened.
                if let Ok(channel) = u8::try_from((id - 1) / 2) {
                    self.message(channel, payload, out);
                }
            }
            Frame::Ping { id: PING } => self.pinged.answer(out),
            // Kubernetes' clients take it for a sign of life.
            Frame::Ping { .. } => write(PONG, &[], out),
            Frame::Goaway { status, .. } => write_close(*status, out),
            // There is no way to say it.
            _ => {}
        }
    }
}
