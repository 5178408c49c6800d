//! What lies between the bytes of a transport and the frames of a connection. SPDY's own is the plain one; those of
//! WebSocket are in [`crate::ws`].

use bytes::BytesMut;

use crate::spdy::{self, DecodeError, Frame};
use crate::websocket::MessageError;

/// Bytes to frames.
pub(crate) trait Decode: Send {
    /// What the bytes that have come so far say next.
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Decoded, CodecError>;
}

/// Frames to bytes.
pub(crate) trait Encode: Send {
    /// Appends a frame's bytes, which may be none.
    fn encode(&mut self, frame: &Frame, out: &mut BytesMut);
}

/// Both directions.
pub(crate) type Codec = (Box<dyn Decode>, Box<dyn Encode>);

/// What bytes say.
#[derive(Debug)]
pub(crate) enum Decoded {
    Frame(Frame),
    /// Nothing yet.
    More,
    /// The peer says that it leaves.
    End,
}

/// Why a peer cannot be understood any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// It is not SPDY.
    #[error(transparent)]
    Spdy(#[from] DecodeError),
    /// It is not WebSocket.
    #[error(transparent)]
    WebSocket(#[from] MessageError),
}

/// Frames as SPDY itself has them.
pub(crate) fn plain() -> Codec {
    (Box::new(spdy::Decoder::new()), Box::new(spdy::Encoder::new()))
}

impl Decode for spdy::Decoder {
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Decoded, CodecError> {
        Ok(Self::decode(self, bytes)?.map_or(Decoded::More, Decoded::Frame))
    }
}

impl Encode for spdy::Encoder {
    fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        Self::encode(self, frame, out);
    }
}
