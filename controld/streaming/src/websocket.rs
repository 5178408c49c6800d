//! WebSocket messages and their bytes (RFC 6455), as much of it as a server of Kubernetes' streaming uses. Pure: no I/O, no
//! clock.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;
pub(crate) const PONG: u8 = 10;
const CONTINUATION: u8 = 0;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const OPCODE: u8 = 0x0f;
const MASKED: u8 = 0x80;
/// Values of the length's seven bits that say how long the length itself is.
const LEN_16: u8 = 126;
const LEN_64: u8 = 127;
/// Longest payload of a control frame.
const MAX_CONTROL_LEN: usize = 125;
const MASK_LEN: usize = 4;

/// Why a client's messages cannot be understood any more.
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
pub(crate) enum Piece {
    /// The next bytes of a message. They may be none.
    Message {
        first: bool,
        last: bool,
        bytes: Bytes,
    },
    Ping(Bytes),
    Close,
}

/// Parser of a client's messages. Of no use after an error.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    inside: Option<Payload>,
    /// A message has begun and not ended.
    in_message: bool,
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
    pub(crate) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, MessageError> {
        loop {
            if let Some(payload) = &mut self.inside {
                let len = usize::try_from(payload.left).unwrap_or(usize::MAX).min(buffer.len());
                if len == 0 && payload.left > 0 {
                    return Ok(None);
                }
                let mut bytes = buffer.split_to(len);
                unmask(&mut bytes, &mut payload.mask);
                payload.left -= len as u64;
                let over = payload.left == 0;
                let (first, last) = (std::mem::take(&mut payload.first), over && payload.last);
                if over {
                    self.inside = None;
                }
                return Ok(Some(Piece::Message { first, last, bytes: bytes.freeze() }));
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
        if len & MASKED == 0 {
            return Err(MessageError::NotMasked);
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
        let Some((&mask, payload)) = head.split_first_chunk::<MASK_LEN>() else { return Ok(None) };
        let head_len = buffer.len() - payload.len();
        if control {
            // At most 125.
            let len = left as usize;
            if payload.len() < len {
                return Ok(None);
            }
            buffer.advance(head_len);
            let mut bytes = buffer.split_to(len);
            unmask(&mut bytes, &mut { mask });
            return Ok(Some(match opcode {
                PING => Head::Control(Piece::Ping(Bytes::copy_from_slice(&bytes))),
                CLOSE => Head::Control(Piece::Close),
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

/// Takes the mask off, and turns the mask to where the next byte is.
fn unmask(bytes: &mut [u8], mask: &mut [u8; MASK_LEN]) {
    for (byte, mask) in bytes.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
    mask.rotate_left(bytes.len() % MASK_LEN);
}

/// Appends a message of a server in one frame.
pub(crate) fn write(opcode: u8, payload: &[&[u8]], out: &mut BytesMut) {
    let len: usize = payload.iter().map(|part| part.len()).sum();
    out.put_u8(FIN | opcode);
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ ..LEN_16), _) => out.put_u8(len),
        (_, Ok(len)) => {
            out.put_u8(LEN_16);
            out.put_u16(len);
        }
        _ => {
            out.put_u8(LEN_64);
            out.put_u64(len as u64);
        }
    }
    for part in payload {
        out.put_slice(part);
    }
}
