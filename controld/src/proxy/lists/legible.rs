//! Whether a list of the default's can be read, down to what stands in its items: behind one that cannot, ours could not be read either,
//! and kept it would be the last good one.

use prost::Message;
use proto::cri::{Container, Image, PodSandbox};

use crate::proxy::kind::Kind;
use crate::proxy::wire::{self, Field, Malformed, Value};

/// That `list` is one of `kind`. Of kinds that are kept each item is decoded, and at once forgotten; of others, which are of a moment, the
/// items' ends alone are looked at.
pub(super) fn check(kind: Kind, list: &[u8]) -> Result<(), Malformed> {
    for field in wire::fields(list) {
        let Field { number: 1, value, .. } = field? else { continue };
        let Value::Bytes(item) = value else { return Err(Malformed) };
        match kind {
            Kind::Sandboxes => decode::<PodSandbox>(item)?,
            Kind::Containers => decode::<Container>(item)?,
            Kind::Images => decode::<Image>(item)?,
            Kind::ContainerStats | Kind::SandboxStats | Kind::Metrics => {}
        }
    }
    Ok(())
}

fn decode<T: Message + Default>(item: &[u8]) -> Result<(), Malformed> {
    T::decode(item).map(drop).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use proto::cri::{ListContainersResponse, ListImagesResponse, ListPodSandboxResponse};

    use super::*;

    #[test]
    fn items_of_kinds_that_are_kept_are_read_and_unknown_fields_are_no_fault() {
        let unknown = [0xfa, 0x7d, 1, b'x'];
        let with = |list: Vec<u8>| [list, unknown.to_vec()].concat();
        let sandboxes = ListPodSandboxResponse { items: vec![PodSandbox { id: "a".into(), ..Default::default() }] };
        let containers =
            ListContainersResponse { containers: vec![Container { id: "a".into(), ..Default::default() }] };
        let images = ListImagesResponse { images: vec![Image { id: "a".into(), ..Default::default() }] };
        for (kind, list) in [
            (Kind::Sandboxes, sandboxes.encode_to_vec()),
            (Kind::Containers, containers.encode_to_vec()),
            (Kind::Images, images.encode_to_vec()),
        ] {
            assert_eq!(check(kind, &list), Ok(()), "{kind:?}");
            assert_eq!(check(kind, &with(list.clone())), Ok(()), "{kind:?}");
            assert_eq!(check(kind, &[]), Ok(()), "{kind:?}");
            let mut inside = Vec::new();
            wire::put(1, &[&[0x0a, 1, b'a'], &unknown], &mut inside);
            assert_eq!(check(kind, &inside), Ok(()), "{kind:?}");
            // An item that is cut off, an id that is a number, one that is no text, and an item that is a number.
            for garbage in [&[0x0a, 2, 0x0a, 9][..], &[0x0a, 2, 0x08, 9], &[0x0a, 3, 0x0a, 1, 0xff], &[0x08, 9]] {
                assert_eq!(check(kind, &[&list[..], garbage].concat()), Err(Malformed), "{kind:?} {garbage:x?}");
            }
        }
        assert_eq!(check(Kind::Metrics, &[0x0a, 2, 0x0a, 9]), Ok(()), "of a moment");
        assert_eq!(check(Kind::Metrics, &[0x0a, 9]), Err(Malformed));
    }
}
