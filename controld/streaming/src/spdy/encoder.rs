//! Frames to bytes.

use bytes::{BufMut as _, BytesMut};

use super::zlib::Deflater;
use super::{CONTROL_VERSION, FLAG_FIN, FLAG_UNIDIRECTIONAL, Frame, Headers, ID_MASK, MAX_FRAME_LEN, Setting, kind};

/// Writer of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    deflater: Deflater,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// A writer at the start of a connection.
    #[must_use]
    pub fn new() -> Self {
        Self { deflater: Deflater::new() }
    }

    /// Appends `frame` to `out`. Frames must be sent in the order in which they were encoded. Data that is too long for one
    /// frame becomes several.
    pub fn encode(&mut self, frame: &Frame, out: &mut BytesMut) {
        match frame {
            Frame::Data { id, fin, payload } => data(*id, *fin, payload, out),
            Frame::SynStream { id, associated, priority, fin, unidirectional, headers } => {
                let flags = flag(*fin, FLAG_FIN) | flag(*unidirectional, FLAG_UNIDIRECTIONAL);
                let mut payload = Vec::new();
                payload.put_u32(*id & ID_MASK);
                payload.put_u32(*associated & ID_MASK);
                payload.put_u8(priority << 5);
                payload.put_u8(0);
                self.with_headers(kind::SYN_STREAM, flags, payload, headers, out);
            }
            Frame::SynReply { id, fin, headers } => {
                let payload = (id & ID_MASK).to_be_bytes().to_vec();
                self.with_headers(kind::SYN_REPLY, flag(*fin, FLAG_FIN), payload, headers, out);
            }
            Frame::Headers { id, fin, headers } => {
                let payload = (id & ID_MASK).to_be_bytes().to_vec();
                self.with_headers(kind::HEADERS, flag(*fin, FLAG_FIN), payload, headers, out);
            }
            Frame::RstStream { id, status } => control(kind::RST_STREAM, 0, &words([*id & ID_MASK, status.0]), out),
            Frame::Settings(settings) => control(kind::SETTINGS, 0, &settings_payload(settings), out),
            Frame::Ping { id } => control(kind::PING, 0, &id.to_be_bytes(), out),
            Frame::Goaway { last_good, status } => {
                control(kind::GOAWAY, 0, &words([*last_good & ID_MASK, *status]), out);
            }
            Frame::WindowUpdate { id, delta } => {
                control(kind::WINDOW_UPDATE, 0, &words([*id & ID_MASK, *delta & ID_MASK]), out);
            }
        }
    }

    fn with_headers(&mut self, kind: u16, flags: u8, mut payload: Vec<u8>, headers: &Headers, out: &mut BytesMut) {
        payload.extend_from_slice(&self.deflater.deflate(&headers.write()));
        control(kind, flags, &payload, out);
    }
}

fn control(kind: u16, flags: u8, payload: &[u8], out: &mut BytesMut) {
    out.put_u16(CONTROL_VERSION);
    out.put_u16(kind);
    flags_and_len(flags, payload.len(), out);
    out.put_slice(payload);
}

fn data(id: u32, fin: bool, payload: &[u8], out: &mut BytesMut) {
    let mut rest = payload;
    loop {
        let (piece, more) = rest.split_at(rest.len().min(MAX_FRAME_LEN));
        out.put_u32(id & ID_MASK);
        flags_and_len(flag(fin && more.is_empty(), FLAG_FIN), piece.len(), out);
        out.put_slice(piece);
        if more.is_empty() {
            return;
        }
        rest = more;
    }
}

/// Lengths here are of 24 bits: of pieces of data, or of control frames that we make, which are small.
fn flags_and_len(flags: u8, len: usize, out: &mut BytesMut) {
    debug_assert!(len <= MAX_FRAME_LEN);
    out.put_u32(u32::from(flags) << 24 | (len & MAX_FRAME_LEN) as u32);
}

fn flag(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

fn words([first, second]: [u32; 2]) -> [u8; 8] {
    (u64::from(first) << 32 | u64::from(second)).to_be_bytes()
}

fn settings_payload(settings: &[Setting]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_u32(u32::try_from(settings.len()).unwrap_or(u32::MAX));
    for setting in settings {
        payload.put_u32(u32::from(setting.flags) << 24 | setting.id & 0x00ff_ffff);
        payload.put_u32(setting.value);
    }
    payload
}
