use std::collections::HashMap;

use proptest::collection::{hash_map, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use proto::cri::*;

use super::*;

fn config(annotations: HashMap<String, String>, uid: &str) -> PodSandboxConfig {
    let metadata = Some(PodSandboxMetadata { uid: uid.into(), name: "web".into(), ..Default::default() });
    PodSandboxConfig { metadata, annotations, hostname: "h".into(), ..Default::default() }
}

#[test]
fn fields_are_those_of_a_decoder() {
    let annotations = HashMap::from([("a".to_owned(), "1".to_owned()), ("b".into(), String::new())]);
    let request = RunPodSandboxRequest { config: Some(config(annotations, "u-1")), runtime_handler: "kata".into() };
    let raw = request.encode_to_vec();
    assert_eq!(text(&raw, &[2]), Ok("kata"));
    assert_eq!(text(&raw, &[1, 1, 2]), Ok("u-1"));
    assert_eq!(entry(&raw, &[1, 7], "a"), Ok(Some("1")));
    assert_eq!(entry(&raw, &[1, 7], "b"), Ok(Some("")), "an empty value is one");
    assert_eq!(entry(&raw, &[1, 7], "c"), Ok(None));
    assert_eq!((is_there(&raw, &[1]), is_there(&raw, &[3])), (Ok(true), Ok(false)));
    assert_eq!(is_there(&ListContainersRequest { filter: Some(Default::default()) }.encode_to_vec(), &[1]), Ok(false));
}

/// Nobody can make one side see another handler than the other side does.
#[test]
fn what_is_there_twice_is_merged_as_decoders_do() {
    let one = RunPodSandboxRequest { config: Some(config(HashMap::new(), "first")), runtime_handler: "a".into() };
    let annotations = HashMap::from([("k".to_owned(), "v".to_owned())]);
    let other = PodSandboxConfig { annotations, ..Default::default() };
    let other = RunPodSandboxRequest { config: Some(other), runtime_handler: "b".into() };
    let raw = [one.encode_to_vec(), other.encode_to_vec()].concat();
    let decoded = RunPodSandboxRequest::decode(&*raw).expect("decoded");
    assert_eq!((decoded.runtime_handler.as_str(), text(&raw, &[2])), ("b", Ok("b")));
    assert_eq!(text(&raw, &[1, 1, 2]), Ok("first"));
    assert_eq!(entry(&raw, &[1, 7], "k"), Ok(Some("v")));
}

#[test]
fn what_is_no_message_is_refused_and_what_is_unknown_is_passed_over() {
    let unknown =
        [0x82, 0x7d, 2, b'o', b'k', 0xf8, 0x7d, 7, 0x12, 1, b'h', 0x29, 1, 2, 3, 4, 5, 6, 7, 8, 0x35, 1, 2, 3, 4];
    assert_eq!(text(&unknown, &[2]), Ok("h"));
    assert_eq!(fields(&unknown).filter(Result::is_ok).count(), 5);
    for bad in [
        &[0x0a][..],
        &[0x0a, 5, 1],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0x00, 1],
        &[0x0b, 0x0c],
        &[0x0f],
        &[0xff; 12],
        &[0x0a, 1, 0xff],
        &[0x08, 1],
        &[0x0d, 1, 2],
    ] {
        assert_eq!(text(bad, &[1]), Err(Malformed), "{bad:x?}");
    }
    // A number where a message should be.
    assert_eq!(text(&[0x08, 1], &[1, 2]), Err(Malformed));
    assert_eq!(entry(&[0x0a, 2, 0x08, 1], &[1], "k"), Err(Malformed));
}

#[test]
fn a_list_is_cut_between_its_items() {
    let sandbox = |id: &str| PodSandbox { id: id.into(), ..Default::default() };
    let list = ListPodSandboxResponse { items: vec![sandbox("a"), sandbox(""), sandbox("c")] };
    let raw = Bytes::from(list.encode_to_vec());
    let items = items(&raw).expect("items");
    let ids: Vec<_> = items.iter().map(|item| text(content(item).expect("content"), &[1])).collect();
    assert_eq!(ids, [Ok("a"), Ok(""), Ok("c")]);
    assert_eq!(items.concat(), raw);
    assert!(super::items(&Bytes::from_static(&[0x0a, 9])).is_err());
}

/// Whether what prost takes, and this does not, stands among the fields that are walked over on the way to `path`: a group, or a sandbox's
/// labels or annotations, which prost reads as a map's entry whatever type their key says.
fn is_more_than_ours(mut message: &[u8], path: &[u32]) -> bool {
    while let Ok((number, kind)) = decode_key(&mut message) {
        let before = message;
        if matches!(kind, WireType::StartGroup | WireType::EndGroup) {
            return true;
        }
        if path.len() == 2 && matches!(number, 6 | 7) && kind != WireType::LengthDelimited {
            return true;
        }
        if prost::encoding::skip_field(kind, number, &mut message, Default::default()).is_err() {
            return false;
        }
        let mut inner = &before[..before.len() - message.len()];
        let is_on_path = kind == WireType::LengthDelimited && path.len() > 1 && path.first() == Some(&number);
        if is_on_path && decode_varint(&mut inner).is_ok() && is_more_than_ours(inner, &path[1..]) {
            return true;
        }
    }
    false
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_go_round_for_ever(raw in vec(any::<u8>(), 0..400)) {
        prop_assert!(fields(&raw).count() <= raw.len());
        let _ = text(&raw, &[1, 1, 2]);
        let _ = entry(&raw, &[1, 7], "k");
        let _ = items(&Bytes::from(raw));
    }

    /// What a decoder takes is read here as the decoder reads it: messages after each other, and with bytes that are others.
    #[test]
    fn a_message_that_a_decoder_takes_is_read_alike(
        messages in vec((".{0,9}", ".{0,9}", hash_map(".{0,5}", ".{0,9}", 0..3)), 1..3),
        others in vec((any::<Index>(), any::<u8>()), 0..3),
    ) {
        let message = |(handler, uid, annotations): (String, String, HashMap<String, String>)| {
            RunPodSandboxRequest { config: Some(config(annotations, &uid)), runtime_handler: handler }.encode_to_vec()
        };
        let mut raw = messages.into_iter().map(message).collect::<Vec<_>>().concat();
        for (at, other) in &others {
            let at = at.index(raw.len());
            raw[at] = *other;
        }
        let decoded = RunPodSandboxRequest::decode(&*raw);
        prop_assert!(decoded.is_ok() || !others.is_empty(), "{decoded:?}");
        if let Ok(decoded) = decoded {
            let metadata = decoded.config.unwrap_or_default().metadata.unwrap_or_default();
            for (path, wanted) in [(&[2][..], decoded.runtime_handler), (&[1, 1, 2], metadata.uid)] {
                if !is_more_than_ours(&raw, path) {
                    prop_assert_eq!(text(&raw, path), Ok(wanted.as_str()));
                }
            }
        }
    }

    #[test]
    fn every_text_and_entry_is_found(
        handler in ".{0,20}",
        uid in ".{0,20}",
        annotations in hash_map(".{0,5}", ".{0,20}", 0..6),
    ) {
        let config = config(annotations.clone(), &uid);
        let raw = RunPodSandboxRequest { config: Some(config), runtime_handler: handler.clone() }.encode_to_vec();
        prop_assert_eq!(text(&raw, &[2]), Ok(handler.as_str()));
        prop_assert_eq!(text(&raw, &[1, 1, 2]), Ok(uid.as_str()));
        for (key, value) in &annotations {
            prop_assert_eq!(entry(&raw, &[1, 7], key), Ok(Some(value.as_str())));
        }
        // Cut anywhere, it is refused or read as what is left of it; it is never read beyond.
        for end in 0..raw.len() {
            let _ = text(&raw[..end], &[1, 1, 2]);
        }
    }
}
