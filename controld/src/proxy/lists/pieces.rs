//! A list as the messages of a stream: cut between items, and not copied.

use bytes::Bytes;

use crate::proxy::wire::{self, Malformed};

/// Bytes of items in one message, as our own streams have it. One item that has more goes alone.
const PIECE: usize = 1 << 20;

/// The items of these lists, each once, in their order. No message is empty.
pub(super) fn of(lists: &[Bytes]) -> Result<Vec<Bytes>, Malformed> {
    let mut pieces = Vec::new();
    for list in lists {
        // Where the piece begins, and where its last item ends.
        let (mut begin, mut end) = (0, 0);
        for field in wire::fields(list) {
            let next = end + field?.whole.len();
            if next - begin > PIECE && end > begin {
                pieces.push(list.slice(begin..end));
                begin = end;
            }
            end = next;
        }
        if end > begin {
            pieces.push(list.slice(begin..end));
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;
    use proto::cri::{ListPodSandboxResponse, PodSandbox, StreamPodSandboxesResponse};

    use super::*;

    fn list(lengths: &[usize]) -> Bytes {
        let items = lengths.iter().map(|length| PodSandbox { id: "x".repeat(*length), ..Default::default() }).collect();
        Bytes::from(ListPodSandboxResponse { items }.encode_to_vec())
    }

    #[test]
    fn an_empty_list_is_no_message_and_a_long_item_goes_alone() {
        let cut = |lengths: &[usize]| -> Vec<usize> {
            let pieces = of(&[list(lengths)]).expect("pieces");
            let count =
                |piece: &Bytes| StreamPodSandboxesResponse::decode(piece.clone()).expect("one").pod_sandboxes.len();
            pieces.iter().map(count).collect()
        };
        assert!(cut(&[]).is_empty());
        assert_eq!(cut(&[1; 100]), [100]);
        assert_eq!(cut(&[PIECE / 2, PIECE / 3, PIECE / 3, 1]), [2, 2]);
        assert_eq!(cut(&[1, 2 * PIECE, 1]), [1, 1, 1]);
        assert!(of(&[Bytes::from_static(&[0x0a, 9])]).is_err());
    }

    proptest! {
        #[test]
        fn no_byte_is_lost(sizes in proptest::collection::vec(proptest::collection::vec(0..400_000usize, 0..8), 0..3)) {
            let lists: Vec<_> = sizes.iter().map(|sizes| list(sizes)).collect();
            let pieces = of(&lists).expect("pieces");
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= PIECE));
            prop_assert_eq!(pieces.concat(), lists.concat());
        }
    }
}
