//! WebSocket messages and their bytes (RFC 6455), as much of it as Kubernetes' streaming uses, at either end. Pure: no I/O, no
//! clock. [`opening`] is the request that it begins with.

pub mod opening;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use sha1::{Digest as _, Sha1};

/// Kinds of messages.
pub const TEXT: u8 = 1;
pub const BINARY: u8 = 2;
/// Its payload is a code in two bytes and a text, or nothing.
pub const CLOSE: u8 = 8;
pub const PING: u8 = 9;
pub const PONG: u8 = 10;
const CONTINUATION: u8 = 0;

/// The one version that there is, as the header `Sec-WebSocket-Version` has it.
pub const VERSION: &str = "13";
/// Appended to a client's key before it is hashed (section 1.3).
const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Bytes of a client's key.
pub const KEY_LEN: usize = 16;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
/// Values of the length's seven bits that say how long the length itself is.
const LEN_16: u8 = 126;
const LEN_64: u8 = 127;
/// Longest payload of a control frame.
pub const MAX_CONTROL_LEN: usize = 125;
const MASK_LEN: usize = 4;

/// Why messages cannot be understood any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// A frame uses an extension that was not agreed on.
    #[error("WebSocket frame has reserved bits set")]
    Reserved,
    /// A frame is of no known kind.
    #[error("WebSocket frame has unknown opcode {0}")]
    Opcode(u8),
    /// A client has to mask its frames.
    #[error("WebSocket frame of a client is not masked")]
    NotMasked,
    /// A server must not.
    #[error("WebSocket frame of a server is masked")]
    Masked,
    /// A control frame is too long, or in pieces.
    #[error("WebSocket control frame is longer than {MAX_CONTROL_LEN} bytes or in pieces")]
    Control,
    /// A length needs 64 bits.
    #[error("WebSocket frame has an impossible length")]
    Length,
    /// A message begins inside another, or goes on without a beginning.
    #[error("WebSocket message begins or goes on at the wrong place")]
    Order,
    /// What should be base64 is not.
    #[error("WebSocket message is not base64")]
    Base64,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes of a message. They may be none.
    Message {
        /// It is text, and not bytes.
        text: bool,
        /// The message begins with them.
        first: bool,
        /// It ends with them.
        last: bool,
        bytes: Bytes,
    },
    /// To be answered by a [`PONG`] with the same payload.
    Ping(Bytes),
    /// The peer leaves; a code in two bytes and a text, or nothing.
    Close(Bytes),
}

/// Parser of a peer's messages: a client's, unless it is made by [`Decoder::of_server`]. Of no use after an error.
#[derive(Debug, Default)]
pub struct Decoder {
    of_server: bool,
    inside: Option<Payload>,
    /// A message has begun and not ended.
    in_message: bool,
    /// It is text, or the last one was.
    text: bool,
}

/// The payload of a frame of a message, which has begun.
#[derive(Debug)]
struct Payload {
    left: u64,
    /// Its first byte is for the payload's next one.
    mask: [u8; MASK_LEN],
    first: bool,
    last: bool,
}

impl Decoder {
    /// Parser of a server's messages.
    #[must_use]
    pub fn of_server() -> Self {
        Self { of_server: true, ..Self::default() }
    }

    /// What the bytes that have come so far say next; nothing yet if it is `None`.
    ///
    /// # Errors
    /// When they are no messages of such a peer.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, MessageError> {
        loop {
            if let Some(payload) = &mut self.inside {
                let len = usize::try_from(payload.left).unwrap_or(usize::MAX).min(buffer.len());
                if len == 0 && payload.left > 0 {
                    return Ok(None);
                }
                let mut bytes = buffer.split_to(len);
                mask_with(&mut bytes, &mut payload.mask);
                payload.left -= len as u64;
                let over = payload.left == 0;
                let (first, last) = (std::mem::take(&mut payload.first), over && payload.last);
                if over {
                    self.inside = None;
                }
                return Ok(Some(Piece::Message { text: self.text, first, last, bytes: bytes.freeze() }));
            }
            match self.head(buffer)? {
                Some(Head::Control(piece)) => return Ok(Some(piece)),
                Some(Head::Ignored | Head::Payload) => {}
                None => return Ok(None),
            }
        }
    }

    /// Takes the head of a frame, and all of it if it is a control frame. `None` if not all of that has come.
    fn head(&mut self, buffer: &mut BytesMut) -> Result<Option<Head>, MessageError> {
        let mut head = &buffer[..];
        let (Ok(kind), Ok(len)) = (head.try_get_u8(), head.try_get_u8()) else { return Ok(None) };
        if kind & RESERVED != 0 {
            return Err(MessageError::Reserved);
        }
        match (len & MASKED != 0, self.of_server) {
            (false, false) => return Err(MessageError::NotMasked),
            (true, true) => return Err(MessageError::Masked),
            _ => {}
        }
        let left = match len & !MASKED {
            LEN_16 => head.try_get_u16().ok().map(u64::from),
            LEN_64 => head.try_get_u64().ok(),
            len => Some(u64::from(len)),
        };
        let Some(left) = left else { return Ok(None) };
        if left > i64::MAX as u64 {
            return Err(MessageError::Length);
        }
        let (fin, opcode) = (kind & FIN != 0, kind & OPCODE);
        let control = matches!(opcode, CLOSE | PING | PONG);
        if control && (!fin || left > MAX_CONTROL_LEN as u64) {
            return Err(MessageError::Control);
        }
        let (mask, payload) = match head.split_first_chunk::<MASK_LEN>() {
            _ if self.of_server => ([0; MASK_LEN], head),
            Some((&mask, payload)) => (mask, payload),
            None => return Ok(None),
        };
        let head_len = buffer.len() - payload.len();
        if control {
            // At most 125.
            let len = left as usize;
            if payload.len() < len {
                return Ok(None);
            }
            buffer.advance(head_len);
            let mut bytes = buffer.split_to(len);
            mask_with(&mut bytes, &mut { mask });
            return Ok(Some(match opcode {
                PING => Head::Control(Piece::Ping(Bytes::copy_from_slice(&bytes))),
                CLOSE => Head::Control(Piece::Close(Bytes::copy_from_slice(&bytes))),
                _ => Head::Ignored,
            }));
        }
        let first = match opcode {
            CONTINUATION => false,
            TEXT | BINARY => true,
            other => return Err(MessageError::Opcode(other)),
        };
        if first == self.in_message {
            return Err(MessageError::Order);
        }
        self.in_message = !fin;
        if first {
            self.text = opcode == TEXT;
        }
        buffer.advance(head_len);
        self.inside = Some(Payload { left, mask, first, last: fin });
        Ok(Some(Head::Payload))
    }
}

/// What a frame's head begins.
enum Head {
    Control(Piece),
    Ignored,
    Payload,
}

/// Puts the mask on or takes it off, and turns it to where the next byte is.
fn mask_with(bytes: &mut [u8], mask: &mut [u8; MASK_LEN]) {
    let (whole, rest) = bytes.as_chunks_mut::<MASK_LEN>();
    for bytes in whole {
        for (byte, mask) in bytes.iter_mut().zip(*mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in rest.iter_mut().zip(*mask) {
        *byte ^= mask;
    }
    mask.rotate_left(rest.len());
}

/// Appends a message of a server in one frame.
pub fn write(opcode: u8, payload: &[&[u8]], out: &mut BytesMut) {
    put_head(opcode, payload, 0, out);
    for part in payload {
        out.put_slice(part);
    }
}

/// Appends a message of a client in one frame. The mask is to be one that nobody foresees.
pub fn write_masked(opcode: u8, payload: &[&[u8]], mut mask: [u8; MASK_LEN], out: &mut BytesMut) {
    put_head(opcode, payload, MASKED, out);
    out.put_slice(&mask);
    let at = out.len();
    for part in payload {
        out.put_slice(part);
    }
    if let Some(payload) = out.get_mut(at..) {
        mask_with(payload, &mut mask);
    }
}

fn put_head(opcode: u8, payload: &[&[u8]], masked: u8, out: &mut BytesMut) {
    let len: usize = payload.iter().map(|part| part.len()).sum();
    out.put_u8(FIN | opcode);
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ ..LEN_16), _) => out.put_u8(masked | len),
        (_, Ok(len)) => {
            out.put_u8(masked | LEN_16);
            out.put_u16(len);
        }
        _ => {
            out.put_u8(masked | LEN_64);
            out.put_u64(len as u64);
        }
    }
}

/// What a server answers to a client's key, in the header `Sec-WebSocket-Accept`; `None` if it is no key.
#[must_use]
pub fn accept(key: &str) -> Option<String> {
    let key = key.trim();
    BASE64.decode(key).ok().filter(|bytes| bytes.len() == KEY_LEN)?;
    Some(BASE64.encode(Sha1::new().chain_update(key).chain_update(GUID).finalize()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All of one message.
    fn read(mut decoder: Decoder, bytes: &[u8], cut: usize) -> Result<Vec<u8>, MessageError> {
        let (mut buffer, mut message) = (BytesMut::new(), Vec::new());
        for part in bytes.chunks(cut) {
            buffer.extend_from_slice(part);
            while let Some(piece) = decoder.decode(&mut buffer)? {
                match piece {
                    Piece::Message { bytes, .. } | Piece::Ping(bytes) => message.extend_from_slice(&bytes),
                    Piece::Close(_) => return Ok(message),
                }
            }
        }
        Ok(message)
    }

    fn written(masked: bool, opcode: u8, payload: &[&[u8]]) -> BytesMut {
        let mut out = BytesMut::new();
        if masked {
            write_masked(opcode, payload, [1, 2, 3, 250], &mut out);
        } else {
            write(opcode, payload, &mut out);
        }
        out
    }

    #[test]
    fn the_example_of_the_standard_is_written() {
        let mut out = BytesMut::new();
        write_masked(TEXT, &[b"Hell", b"o"], [0x37, 0xfa, 0x21, 0x3d], &mut out);
        assert_eq!(&out[..], b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ==").as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(accept("c2hvcnQ="), None);
    }

    #[test]
    fn each_end_takes_only_what_the_other_sends() {
        let (client, server) = (written(true, BINARY, &[b"x"]), written(false, BINARY, &[b"x"]));
        assert_eq!(read(Decoder::default(), &client, 1), Ok(b"x".to_vec()));
        assert_eq!(read(Decoder::of_server(), &server, 1), Ok(b"x".to_vec()));
        assert_eq!(read(Decoder::default(), &server, 1), Err(MessageError::NotMasked));
        assert_eq!(read(Decoder::of_server(), &client, 1), Err(MessageError::Masked));
        assert_eq!(read(Decoder::of_server(), &written(false, CLOSE, &[]), 1), Ok(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_one_end_writes_the_other_reads(
            payload in proptest::collection::vec(any::<u8>(), 0..70_000), cut in 1..9_000_usize, masked: bool, ping: bool
        ) {
            let payload = if ping { &payload[..payload.len().min(MAX_CONTROL_LEN)] } else { &payload[..] };
            let (head, rest) = payload.split_at(payload.len() / 3);
            let bytes = written(masked, if ping { PING } else { BINARY }, &[head, rest]);
            let decoder = if masked { Decoder::default() } else { Decoder::of_server() };
            prop_assert_eq!(read(decoder, &bytes, cut), Ok(payload.to_vec()));
        }
    }
}
