//! What a fuzzer gives to the codecs: the same bytes, cut in different places.

use bytes::BytesMut;

use super::{Channels, Coding, channels, tunnel};
use crate::mux::codec::{Codec, Decode, Decoded};
use crate::spdy::{Frame, Headers};

/// Entry for fuzzers: decodes `input` whole and in pieces (its first byte says how long they are), in each way there is.
///
/// # Panics
/// When the two ways do not agree, which is the bug that is looked for.
pub fn exercise(input: &[u8]) {
    let Some((piece, input)) = input.split_first() else { return };
    for codec in [binary, base64, tunnel] {
        let whole = decode_in_pieces(&mut *codec().0, input, input.len().max(1));
        let pieces = decode_in_pieces(&mut *codec().0, input, usize::from(*piece).max(1));
        // Bytes before a fault in base64 may have been passed on.
        let same = whole == pieces || (whole.1 == pieces.1 && whole.1.contains("base64"));
        assert!(same, "the parser depends on how its input is cut");
    }
}

fn binary() -> Codec {
    channels(Coding { base64: false, half_close: true }, five())
}

fn base64() -> Codec {
    channels(Coding { base64: true, half_close: false }, five())
}

fn five() -> Channels {
    Channels { streams: (0..5).map(|channel| (channel, Headers::new())).collect(), preface: Vec::new() }
}

/// All frames of `input`, neighbouring pieces of a stream joined, and how they ended.
pub(super) fn decode_in_pieces(decoder: &mut dyn Decode, input: &[u8], len: usize) -> (Vec<Frame>, String) {
    let mut buffer = BytesMut::new();
    let mut frames: Vec<Frame> = Vec::new();
    for piece in input.chunks(len) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(Decoded::Frame(frame)) => crate::spdy::join(&mut frames, frame),
                Ok(Decoded::More) => break,
                Ok(Decoded::End) => return (frames, "closed".into()),
                Err(error) => return (frames, error.to_string()),
            }
        }
    }
    (frames, String::new())
}
