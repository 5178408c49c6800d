//! SPDY/3.1 frames and their bytes, as much of it as Kubernetes' streaming uses. Pure: no I/O, no clock.
//!
//! Called by [`crate::mux`]. [`Decoder`] takes bytes as they arrive, split anywhere; [`Encoder`] appends bytes. Each holds
//! the compression state of one direction of one connection, so every header block goes through it in wire order, even
//! that of a stream that is refused. What a peer sends is bounded here: [`MAX_CONTROL_LEN`], [`MAX_HEADERS_LEN`] and
//! [`MAX_HEADERS`]; a data frame of any length passes through in pieces and is never held.
//!
//! Format: SPDY Protocol draft 3.1 (sections 2.2 and 2.6). All integers are big endian.

mod decoder;
mod dictionary;
mod encoder;
mod frame;
mod headers;
mod zlib;

pub use self::decoder::{DecodeError, Decoder};
pub use self::encoder::Encoder;
pub use self::frame::{Frame, Setting, Status};
pub use self::headers::{HeaderError, Headers};
pub use self::zlib::ZlibError;

/// Largest payload of a control frame that is taken. Those of Kubernetes' clients are below 200 bytes.
pub const MAX_CONTROL_LEN: usize = 64 << 10;
/// Largest header block after decompression.
pub const MAX_HEADERS_LEN: usize = 16 << 10;
/// Most headers in a block.
pub const MAX_HEADERS: usize = 256;
/// Largest payload of one frame: its length has 24 bits.
pub const MAX_FRAME_LEN: usize = (1 << 24) - 1;

/// Length of every frame's head.
const HEAD_LEN: usize = 8;
/// Stream ids have 31 bits.
const ID_MASK: u32 = 0x7fff_ffff;
/// The version in every control frame, with the bit that marks it as one.
const CONTROL_VERSION: u16 = 0x8003;
const FLAG_FIN: u8 = 1;
const FLAG_UNIDIRECTIONAL: u8 = 2;

/// Numbers of the control frames.
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const SETTINGS: u16 = 4;
    pub(super) const PING: u16 = 6;
    pub(super) const GOAWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
    pub(super) const WINDOW_UPDATE: u16 = 9;
}

/// Entry for fuzzers: decodes `input` whole and in pieces (its first byte says how long they are).
///
/// # Panics
/// When the two ways do not agree, which is the bug that is looked for.
pub fn exercise(input: &[u8]) {
    let Some((piece, input)) = input.split_first() else { return };
    let whole = decode_in_pieces(input, input.len().max(1));
    let pieces = decode_in_pieces(input, usize::from(*piece).max(1));
    assert!(whole == pieces, "the parser depends on how its input is cut");
}

/// All frames of `input`, neighbouring pieces of one data frame joined, and the error that ended it.
fn decode_in_pieces(input: &[u8], len: usize) -> (Vec<Frame>, Option<String>) {
    let mut decoder = Decoder::new();
    let mut buffer = bytes::BytesMut::new();
    let mut frames: Vec<Frame> = Vec::new();
    for piece in input.chunks(len) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => join(&mut frames, frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error.to_string())),
            }
        }
    }
    (frames, None)
}

fn join(frames: &mut Vec<Frame>, next: Frame) {
    if let (Some(Frame::Data { id, fin, payload }), Frame::Data { id: next_id, fin: next_fin, payload: more }) =
        (frames.last_mut(), &next)
        && id == next_id
        && !*fin
    {
        *payload = [payload.as_ref(), more.as_ref()].concat().into();
        *fin = *next_fin;
        return;
    }
    frames.push(next);
}

#[cfg(test)]
mod tests;
