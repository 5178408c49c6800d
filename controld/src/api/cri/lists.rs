//! Long lists as streams of short ones (KEP-5825), so that no answer is longer than a message may be.

use prost::Message;
use tonic::codegen::BoxStream;
use tonic::{Response, Status};

/// Bytes of items in one message. The client's limit is 16 MiB, and one item may have 256 KiB of annotations.
const PIECE: usize = 1 << 20;

/// All items, each once, in their order. No message is empty: an empty list is a stream that ends at once.
pub(super) fn stream<I: Message + 'static, P: Send + 'static>(
    items: Vec<I>,
    piece: fn(Vec<I>) -> P,
) -> Response<BoxStream<P>> {
    let pieces = pieces(items).into_iter().map(move |items| Ok::<_, Status>(piece(items)));
    Response::new(Box::pin(tokio_stream::iter(pieces)))
}

fn pieces<I: Message>(items: Vec<I>) -> Vec<Vec<I>> {
    let mut pieces: Vec<Vec<I>> = Vec::new();
    let mut room = 0;
    for item in items {
        let length = item.encoded_len();
        match pieces.last_mut() {
            Some(piece) if length <= room => piece.push(item),
            _ => {
                room = PIECE;
                pieces.push(vec![item]);
            }
        }
        room = room.saturating_sub(length);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proto::cri::PodSandbox;

    use super::*;

    fn sandbox(length: usize) -> PodSandbox {
        PodSandbox { id: "x".repeat(length), ..PodSandbox::default() }
    }

    #[test]
    fn no_item_is_lost_and_no_piece_is_longer_than_it_may_be() {
        let cut = |lengths: &[usize]| -> Vec<usize> {
            pieces(lengths.iter().map(|length| sandbox(*length)).collect()).iter().map(Vec::len).collect()
        };
        assert!(cut(&[]).is_empty(), "an empty list is no message");
        assert_eq!(cut(&[1; 100]), [100]);
        assert_eq!(cut(&[PIECE / 2, PIECE / 3, PIECE / 3, 1]), [2, 2]);
        assert_eq!(cut(&[1, 2 * PIECE, 1]), [1, 1, 1], "one that is too long goes alone");
    }
}
