//! Streams over WebSocket (RFC 6455), the server's end. Pure: no I/O, no clock.
//!
//! Kubernetes has two ways. [`channels`]: the first byte of a message says which stream the rest is of. [`tunnel`]: messages
//! are SPDY, cut anywhere. Both are a codec of [`crate::mux`], which sees the frames of SPDY either way; so bounds,
//! back-pressure and the order of a session's end are the same for all protocols. A message of any length passes through in
//! pieces and is never held.

mod channels;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod tunnel;

use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

pub(crate) use self::channels::{Channels, Coding, channels};
#[cfg(any(test, feature = "exercise"))]
pub use self::exercise::exercise;
pub(crate) use self::tunnel::tunnel;
use crate::spdy::Frame;
use crate::websocket;

/// How a connection shows the ping of a WebSocket client: as one that the server is to answer. A SPDY client would come to
/// this number after two thousand million pings.
const PING: u32 = u32::MAX;
/// The session has ended as it should. To Kubernetes' clients any other code is a failure.
const CLOSE_NORMAL: u16 = 1000;
const CLOSE_PROTOCOL_ERROR: u16 = 1002;

/// What the last ping held that was not answered yet: the answer is to hold the same.
#[derive(Debug, Clone, Default)]
struct Pinged(Arc<Mutex<Bytes>>);

impl Pinged {
    fn come(&self, payload: Bytes) -> Frame {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = payload;
        Frame::Ping { id: PING }
    }

    fn answer(&self, out: &mut BytesMut) {
        let payload = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        websocket::write(websocket::PONG, &[&payload], out);
    }
}

/// The message that ends a connection for which SPDY's GOAWAY would say this status.
fn write_close(status: u32, out: &mut BytesMut) {
    let code = if status == 0 { CLOSE_NORMAL } else { CLOSE_PROTOCOL_ERROR };
    websocket::write(websocket::CLOSE, &[&code.to_be_bytes()], out);
}

#[cfg(test)]
mod tests;
