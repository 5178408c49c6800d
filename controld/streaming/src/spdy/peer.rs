//! The other end of a connection in tests of what speaks SPDY: frame by frame, and where that matters byte by byte.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::{Decoder, Encoder, Frame, Headers};

/// Until what is sent is taken.
const SEND_DEADLINE: Duration = Duration::from_secs(5);
/// Until something comes.
const NEXT_DEADLINE: Duration = Duration::from_secs(60);

pub(crate) struct Peer<T> {
    pub(crate) transport: T,
    pub(crate) encoder: Encoder,
    decoder: Decoder,
    buffer: BytesMut,
    seen: VecDeque<Frame>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Peer<T> {
    pub(crate) fn new(transport: T) -> Self {
        let (encoder, decoder) = (Encoder::new(), Decoder::new());
        Self { transport, encoder, decoder, buffer: BytesMut::new(), seen: VecDeque::new() }
    }

    pub(crate) async fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        self.encoder.encode(frame, &mut bytes);
        timeout(SEND_DEADLINE, self.transport.write_all(&bytes)).await.expect("taken in time").expect("open");
    }

    /// The next frame; `None` at the end of the connection.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.decoder.decode(&mut self.buffer).expect("frames") {
                self.seen.push_back(frame.clone());
                return Some(frame);
            }
            let read = self.transport.read_buf(&mut self.buffer);
            if timeout(NEXT_DEADLINE, read).await.expect("something in time").expect("open") == 0 {
                return None;
            }
        }
    }

    /// All frames to the end of the connection.
    pub(crate) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    pub(crate) async fn until(&mut self, wanted: &Frame) {
        while let Some(frame) = self.next().await {
            if frame == *wanted {
                return;
            }
        }
        panic!("no {wanted:?} in {:?}", self.seen);
    }

    /// All data of a stream, to its end.
    pub(crate) async fn text_of(&mut self, wanted: u32) -> String {
        let mut text = Vec::new();
        loop {
            if let Frame::Data { id, fin, payload } = self.next().await.expect("the stream's end")
                && id == wanted
            {
                text.extend_from_slice(&payload);
                if fin {
                    return String::from_utf8(text).expect("text");
                }
            }
        }
    }
}

/// Opens a stream, whose kind Kubernetes tells by a header.
pub(crate) fn syn(id: u32, kind: &str) -> Frame {
    let headers = Headers::new().with("streamType", kind);
    Frame::SynStream { id, associated: 0, priority: 0, fin: false, unidirectional: false, headers }
}
