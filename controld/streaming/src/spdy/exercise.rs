//! What a fuzzer gives to the decoder: the same bytes, cut in different places.

use super::{Decoder, Frame};

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
pub(super) fn decode_in_pieces(input: &[u8], len: usize) -> (Vec<Frame>, Option<String>) {
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

/// Adds a frame; to the one before it if both are pieces of one data frame.
pub(crate) fn join(frames: &mut Vec<Frame>, next: Frame) {
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
