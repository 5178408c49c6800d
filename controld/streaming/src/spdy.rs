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
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod frame;
mod headers;
#[cfg(test)]
pub(crate) mod peer;
mod zlib;

pub use self::decoder::{DecodeError, Decoder};
pub use self::encoder::Encoder;
#[cfg(any(test, feature = "exercise"))]
pub use self::exercise::exercise;
#[cfg(any(test, feature = "exercise"))]
pub(crate) use self::exercise::join;
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

#[cfg(test)]
mod tests;
