//! SPDY inside messages, cut anywhere.

use bytes::BytesMut;

use super::{PING, Pinged, write_close};
use crate::mux::codec::{Codec, CodecError, Decode, Decoded, Encode};
use crate::spdy::{self, Frame};
use crate::websocket::{BINARY, Decoder, Piece, write};

/// SPDY in messages.
pub(crate) fn tunnel() -> Codec {
    let pinged = Pinged::default();
    let reader = Reader {
        messages: Decoder::default(),
        inner: BytesMut::new(),
        spdy: spdy::Decoder::new(),
        pinged: pinged.clone(),
    };
    (Box::new(reader), Box::new(Writer { spdy: spdy::Encoder::new(), inner: BytesMut::new(), pinged }))
}

struct Reader {
    messages: Decoder,
    inner: BytesMut,
    spdy: spdy::Decoder,
    pinged: Pinged,
}

struct Writer {
    spdy: spdy::Encoder,
    inner: BytesMut,
    pinged: Pinged,
}

impl Decode for Reader {
    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Decoded, CodecError> {
        loop {
            if let Some(frame) = self.spdy.decode(&mut self.inner)? {
                return Ok(Decoded::Frame(frame));
            }
            match self.messages.decode(bytes)? {
                Some(Piece::Message { bytes, .. }) => self.inner.extend_from_slice(&bytes),
                Some(Piece::Ping(payload)) => return Ok(Decoded::Frame(self.pinged.come(payload))),
                Some(Piece::Close(_)) => return Ok(Decoded::End),
                None => return Ok(Decoded::More),
            }
        }
    }
}

impl Encode for Writer {
    fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        if let Frame::Ping { id: PING } = frame {
            return self.pinged.answer(out);
        }
        self.inner.clear();
        self.spdy.encode(frame, &mut self.inner);
        write(BINARY, &[&self.inner], out);
        if let Frame::Goaway { status, .. } = frame {
            write_close(*status, out);
        }
    }
}
