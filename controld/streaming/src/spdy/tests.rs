use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::exercise::{decode_in_pieces, join};
use super::*;

/// Header blocks that a Go client sent on one connection, in order.
const CLIENT_BLOCKS: [(&str, &str); 3] = [
    ("78f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff", "error"),
    ("c22ac5565c92925f5a02000000ffff", "stdout"),
    ("c229975a5404000000ffff", "stderr"),
];
/// Header blocks of replies without headers, the first and a later one of a connection.
const EMPTY_BLOCKS: [&str; 2] = ["78f9e3c6a7c202a6230600000000ffff", "020100000000ffff"];

#[test]
fn captured_streams_of_a_go_client_decode() {
    let frames = decode_all(&captured_streams(), usize::MAX);
    let types: Vec<Option<&str>> = frames
        .iter()
        .map(|frame| match frame {
            Frame::SynStream { headers, .. } => headers.get("streamtype"),
            _ => None,
        })
        .collect();
    assert_eq!(types, CLIENT_BLOCKS.map(|(_, kind)| Some(kind)));
    let Some(Frame::SynStream { id, associated, priority, fin, unidirectional, headers }) = frames.first() else {
        panic!("a stream")
    };
    assert_eq!((*id, *associated, *priority, *fin, *unidirectional, headers.len()), (1, 0, 0, false, false, 1));
}

#[test]
fn captured_empty_replies_decode() {
    let mut bytes = Vec::new();
    for (n, block) in EMPTY_BLOCKS.iter().enumerate() {
        bytes.extend(control_frame(kind::SYN_REPLY, 0, &[&[0, 0, 0, n as u8 * 2 + 1][..], &hex(block)].concat()));
    }
    let expected = [1, 3].map(|id| Frame::SynReply { id, fin: false, headers: Headers::new() });
    assert_eq!(decode_all(&bytes, 3), expected);
}

#[test]
fn frames_may_be_cut_anywhere() {
    let bytes = captured_streams();
    let whole = decode_all(&bytes, usize::MAX);
    for len in 1..bytes.len() {
        assert_eq!(decode_all(&bytes, len), whole, "pieces of {len}");
    }
}

#[test]
fn our_bytes_are_pinned() {
    let mut encoder = Encoder::new();
    let mut lines = String::new();
    for frame in [
        Frame::SynStream {
            id: 1,
            associated: 0,
            priority: 0,
            fin: false,
            unidirectional: false,
            headers: Headers::new().with("streamType", "error"),
        },
        Frame::SynReply { id: 1, fin: false, headers: Headers::new() },
        Frame::Data { id: 1, fin: false, payload: Bytes::from_static(b"hello") },
        Frame::Data { id: 1, fin: true, payload: Bytes::new() },
        Frame::RstStream { id: 3, status: Status::CANCEL },
        Frame::Ping { id: 7 },
        Frame::Goaway { last_good: 9, status: 0 },
        Frame::WindowUpdate { id: 1, delta: 65536 },
        Frame::Settings(vec![Setting { flags: 1, id: 4, value: 100 }]),
    ] {
        let mut out = BytesMut::new();
        encoder.encode(&frame, &mut out);
        lines.extend(out.iter().map(|byte| format!("{byte:02x}")));
        lines.push('\n');
    }
    insta::assert_snapshot!(lines);
}

#[test]
fn unknown_control_frames_are_skipped_without_being_held() {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::from(&[0x80, 3, 0, 10, 0, 0xff, 0xff, 0xff][..]);
    for _ in 0..255 {
        input.extend_from_slice(&[0; 65536]);
        assert_eq!(decoder.decode(&mut input), Ok(None));
        assert!(input.is_empty());
    }
    input.extend_from_slice(&vec![0; 65535]);
    // An empty one each eight bytes.
    input.extend_from_slice(&[0x80, 3, 0, 5, 0, 0, 0, 0].repeat(100_000));
    input.extend_from_slice(&control_frame(kind::PING, 0, &[0, 0, 0, 5]));
    assert_eq!(decoder.decode(&mut input), Ok(Some(Frame::Ping { id: 5 })));
}

#[test]
fn giant_data_frames_pass_in_pieces() {
    let mut decoder = Decoder::new();
    let mut input = BytesMut::from(&[0, 0, 0, 1, 1, 0xff, 0xff, 0xff][..]);
    let mut seen = 0;
    for _ in 0..256 {
        input.extend_from_slice(&[7; 65536]);
        while let Some(frame) = decoder.decode(&mut input).expect("data") {
            let Frame::Data { id: 1, fin, payload } = frame else { break };
            seen += payload.len();
            assert_eq!(fin, seen == MAX_FRAME_LEN, "the end is on the last piece");
            if fin {
                assert_eq!(input.as_ref(), [7], "what follows is the next frame's");
                return;
            }
        }
    }
    panic!("no end after {seen} bytes");
}

#[test]
fn hostile_frames_are_refused() {
    let syn = |block: &[u8]| control_frame(kind::SYN_STREAM, 0, &[&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0], block].concat());
    let block = |plain: &[u8]| zlib::Deflater::new().deflate(plain);
    let header = |name: &str| {
        let mut plain = vec![0, 0, 0, 1, 0, 0, 0, name.len() as u8];
        plain.extend_from_slice(name.as_bytes());
        plain.extend_from_slice(&[0, 0, 0, 1, b'v']);
        plain
    };
    let twice = [&[0, 0, 0, 2][..], &header("a")[4..], &header("a")[4..]].concat();
    for (bytes, expected) in [
        (vec![0x80, 2, 0, 1, 0, 0, 0, 0], DecodeError::Version(2)),
        (vec![0x80, 3, 0, 1, 0, 1, 0, 1], DecodeError::TooLong { kind: 1, len: 65537 }),
        (control_frame(kind::PING, 0, &[1; 5]), DecodeError::Length { kind: 6, len: 5 }),
        (control_frame(kind::RST_STREAM, 0, &[1; 7]), DecodeError::Length { kind: 3, len: 7 }),
        (control_frame(kind::SETTINGS, 0, &[0xff; 12]), DecodeError::Length { kind: 4, len: 12 }),
        (control_frame(kind::RST_STREAM, 0, &[0, 0, 0, 0, 0, 0, 0, 1]), DecodeError::StreamZero),
        (vec![0, 0, 0, 0, 0, 0, 0, 0], DecodeError::StreamZero),
        (syn(b"no zlib at all"), ZlibError::Corrupt.into()),
        (syn(&hex("78f9deadbeef0000")), ZlibError::Dictionary(0xdead_beef).into()),
        // An empty last block, and the checksum of nothing.
        (syn(&hex("78f9e3c6a7c2030000000001")), ZlibError::Ended.into()),
        (syn(&block(&vec![0; MAX_HEADERS_LEN * 100])), ZlibError::TooLarge(MAX_HEADERS_LEN).into()),
        (syn(&block(&[])), HeaderError::Length.into()),
        (syn(&block(&[0, 0, 0, 0, 0])), HeaderError::Length.into()),
        (syn(&block(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff])), HeaderError::Length.into()),
        (syn(&block(&[0, 0, 1, 1])), HeaderError::Count(257).into()),
        (syn(&block(&header("Upper"))), HeaderError::Name.into()),
        (syn(&block(&header(""))), HeaderError::Name.into()),
        (syn(&block(&twice)), HeaderError::Name.into()),
        (syn(&block(&[0, 0, 0, 1, 0, 0, 0, 1, 0xff, 0, 0, 0, 0])), HeaderError::Text.into()),
    ] {
        let mut input = BytesMut::from(&bytes[..]);
        assert_eq!(Decoder::new().decode(&mut input), Err(expected), "{expected}");
    }
}

#[test]
fn several_values_of_a_name_are_kept_apart() {
    let headers = Headers::new().with("port", "80").with("Port", "443").with("empty", "");
    let parsed = Headers::parse(&headers.write()).expect("our own");
    assert_eq!(parsed, headers);
    assert_eq!(parsed.get("port"), Some("80"));
    assert_eq!(parsed.get("empty"), Some(""));
    assert_eq!(parsed.get("none"), None);
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(frames in proptest::collection::vec(any_frame(), 0..40), len in 1_usize..200) {
        let mut encoder = Encoder::new();
        let mut bytes = BytesMut::new();
        let mut expected = Vec::new();
        for frame in frames {
            encoder.encode(&frame, &mut bytes);
            join(&mut expected, frame);
        }
        prop_assert_eq!(decode_all(&bytes, len), expected);
    }

    #[test]
    fn garbage_is_the_same_garbage_in_pieces(input in proptest::collection::vec(any::<u8>(), 0..400)) {
        exercise(&input);
    }

    #[test]
    fn damaged_connections_are_the_same_in_pieces(
        frames in proptest::collection::vec(any_frame(), 1..10),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in any::<u8>()
    ) {
        let mut encoder = Encoder::new();
        let mut bytes = BytesMut::from(&[piece][..]);
        for frame in &frames {
            encoder.encode(frame, &mut bytes);
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        exercise(&bytes);
    }
}

fn any_headers() -> impl Strategy<Value = Headers> {
    let header = ("[a-z0-9:-]{1,12}", "[ -~]{0,40}");
    proptest::collection::btree_map(header.0, header.1, 0..6)
        .prop_map(|all| all.into_iter().fold(Headers::new(), |headers, (name, value)| headers.with(&name, value)))
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let id = 1..=ID_MASK;
    prop_oneof![
        (id.clone(), 0..=ID_MASK, 0_u8..8, any::<bool>(), any::<bool>(), any_headers()).prop_map(
            |(id, associated, priority, fin, unidirectional, headers)| Frame::SynStream {
                id,
                associated,
                priority,
                fin,
                unidirectional,
                headers
            }
        ),
        (id.clone(), any::<bool>(), any_headers()).prop_map(|(id, fin, headers)| Frame::SynReply { id, fin, headers }),
        (id.clone(), any::<bool>(), any_headers()).prop_map(|(id, fin, headers)| Frame::Headers { id, fin, headers }),
        (id.clone(), any::<u32>()).prop_map(|(id, status)| Frame::RstStream { id, status: Status(status) }),
        any::<u32>().prop_map(|id| Frame::Ping { id }),
        (0..=ID_MASK, any::<u32>()).prop_map(|(last_good, status)| Frame::Goaway { last_good, status }),
        (0..=ID_MASK, 0..=ID_MASK).prop_map(|(id, delta)| Frame::WindowUpdate { id, delta }),
        proptest::collection::vec((any::<u8>(), 0_u32..1 << 24, any::<u32>()), 0..5).prop_map(|all| {
            Frame::Settings(all.into_iter().map(|(flags, id, value)| Setting { flags, id, value }).collect())
        }),
        (id, any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(id, fin, payload)| Frame::Data { id, fin, payload: payload.into() }),
    ]
}

fn decode_all(bytes: &[u8], len: usize) -> Vec<Frame> {
    let (frames, error) = decode_in_pieces(bytes, len.min(bytes.len()).max(1));
    assert_eq!(error, None);
    frames
}

fn captured_streams() -> Vec<u8> {
    let streams = CLIENT_BLOCKS.iter().enumerate().flat_map(|(n, (block, _))| {
        let start = [0, 0, 0, n as u8 * 2 + 1, 0, 0, 0, 0, 0, 0];
        control_frame(kind::SYN_STREAM, 0, &[&start[..], &hex(block)].concat())
    });
    let bytes: Vec<u8> = streams.collect();
    assert_eq!(bytes[..20], hex("800300010000002900000001000000000000 78f9")[..], "as captured");
    bytes
}

fn control_frame(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3, (kind >> 8) as u8, kind as u8, flags, 0];
    frame.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}
