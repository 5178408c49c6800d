use bytes::BytesMut;
use proptest::prelude::*;

use super::exercise::decode_in_pieces;
use super::*;
use crate::mux::codec::{Codec, Decoded};
use crate::spdy::Headers;

/// A client's frame, masked.
fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    match payload.len() {
        len @ ..126 => bytes.push(0x80 | len as u8),
        len => {
            bytes.push(0x80 | 126);
            bytes.extend((len as u16).to_be_bytes());
        }
    }
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

fn data(id: u32, payload: &[u8]) -> Frame {
    Frame::Data { id, fin: false, payload: Bytes::copy_from_slice(payload) }
}

fn codec(coding: Coding) -> Codec {
    let streams = [0, 1, 3].map(|channel| (channel, Headers::new())).to_vec();
    channels(coding, Channels { streams, preface: vec![(1, Vec::new())] })
}

const V5: Coding = Coding { base64: false, half_close: true };
const BASE64: Coding = Coding { base64: true, half_close: false };

fn read(codec: Codec, bytes: &[u8]) -> (Vec<Frame>, String) {
    let (mut frames, end) = decode_in_pieces({ codec.0 }.as_mut(), bytes, bytes.len().max(1));
    frames.retain(|frame| !matches!(frame, Frame::SynStream { .. }));
    (frames, end)
}

#[test]
fn an_example_of_the_standard_is_read() {
    // RFC 6455, section 5.7: "Hello" masked; here its first letter would be the channel.
    let hello = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    let mut decoder = websocket::Decoder::default();
    let piece = decoder.decode(&mut BytesMut::from(&hello[..])).expect("right").expect("whole");
    let bytes = Bytes::from_static(b"Hello");
    assert_eq!(piece, websocket::Piece::Message { text: true, first: true, last: true, bytes });
}

#[test]
fn channels_are_streams() {
    let captured_end_of_stdin = frame(0x82, b"\xff\x00");
    let bytes = [frame(0x82, b"\x00ls\n"), frame(0x82, b"\x07?"), frame(0x82, b""), captured_end_of_stdin].concat();
    let end = Frame::Data { id: 1, fin: true, payload: Bytes::new() };
    assert_eq!(
        read(codec(V5), &bytes),
        (vec![Frame::Data { id: 1, fin: true, payload: Bytes::from_static(b"ls\n") }], String::new())
    );
    let v4 = Coding { half_close: false, ..V5 };
    assert_eq!(read(codec(v4), &bytes), (vec![data(1, b"ls\n")], String::new()));
    drop(end);
}

#[test]
fn messages_may_be_in_pieces_with_pings_between() {
    let bytes = [frame(0x02, b"\x00a"), frame(0x89, b"ping"), frame(0x00, b""), frame(0x80, b"b")].concat();
    let (frames, end) = read(codec(V5), &bytes);
    assert_eq!(frames, [data(1, b"a"), Frame::Ping { id: PING }, data(1, b"b")]);
    assert_eq!(end, "");
}

#[test]
fn base64_is_read_and_written() {
    let (mut reader, mut writer) = codec(BASE64);
    let bytes = [frame(0x81, b"0bHMK"), frame(0x01, b"0b"), frame(0x80, b"A=="), frame(0x81, b"0bA")].concat();
    let (frames, end) = decode_in_pieces(&mut *reader, &bytes, 3);
    assert_eq!((&frames[3..], end.as_str()), (&[data(1, b"ls\nll")][..], ""));
    let mut out = BytesMut::new();
    writer.encode(&data(3, b"hi"), &mut out);
    assert_eq!(&out[..], b"\x81\x011\x81\x051aGk=");
    assert_eq!(read(codec(BASE64), &frame(0x81, b"0b")).1, "WebSocket message is not base64");
    assert_eq!(read(codec(BASE64), &frame(0x81, b"0bA==bHMK")).1, "WebSocket message is not base64");
}

#[test]
fn our_bytes_are_pinned() {
    let (mut reader, mut writer) = codec(V5);
    let mut out = BytesMut::new();
    let mut said = |frame: &Frame| {
        writer.encode(frame, &mut out);
        out.split().to_vec()
    };
    let reply = Frame::SynReply { id: 1, fin: false, headers: Headers::new() };
    assert_eq!(said(&reply), b"\x82\x01\x01", "an empty message first");
    assert_eq!(said(&reply), b"");
    assert_eq!(said(&data(3, b"ls\n")), b"\x82\x04\x01ls\n");
    assert_eq!(said(&data(7, &[b'x'; 200]))[..5], *b"\x82\x7e\x00\xc9\x03");
    assert_eq!(said(&data(7, &[b'x'; 1 << 16]))[..11], *b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x01\x03");
    assert_eq!(said(&Frame::Data { id: 3, fin: true, payload: Bytes::new() }), b"");
    let mut ping = BytesMut::from(&frame(0x89, b"still there?")[..]);
    while !matches!(reader.decode(&mut ping), Ok(Decoded::Frame(Frame::Ping { id: PING }))) {}
    assert_eq!(said(&Frame::Ping { id: PING }), b"\x8a\x0cstill there?");
    assert_eq!(said(&Frame::Ping { id: 2 }), b"\x8a\x00");
    assert_eq!(said(&Frame::Goaway { last_good: 7, status: 0 }), b"\x88\x02\x03\xe8");
    assert_eq!(said(&Frame::Goaway { last_good: 7, status: 1 }), b"\x88\x02\x03\xea");
}

#[test]
fn hostile_messages_are_refused() {
    let unmasked = b"\x82\x02\x00a".to_vec();
    for (bytes, expected) in [
        (unmasked, "WebSocket frame of a client is not masked"),
        (frame(0xc2, b"\x00a"), "WebSocket frame has reserved bits set"),
        (frame(0x83, b"\x00a"), "WebSocket frame has unknown opcode 3"),
        (frame(0x80, b"\x00a"), "WebSocket message begins or goes on at the wrong place"),
        (
            [frame(0x02, b"\x00a"), frame(0x82, b"\x00a")].concat(),
            "WebSocket message begins or goes on at the wrong place",
        ),
        (frame(0x09, b""), "WebSocket control frame is longer than 125 bytes or in pieces"),
        (frame(0x89, &[0; 126]), "WebSocket control frame is longer than 125 bytes or in pieces"),
        (b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), "WebSocket frame has an impossible length"),
        (frame(0x88, b"\x03\xe8"), "closed"),
    ] {
        for codec in [codec(V5), codec(BASE64), tunnel()] {
            assert_eq!(read(codec, &bytes).1, expected, "{bytes:?}");
        }
    }
}

#[test]
fn a_tunnel_is_spdy_cut_anywhere() {
    let sent = [Frame::Ping { id: 1 }, data(5, &[b'x'; 3000]), Frame::Ping { id: 3 }];
    let mut encoder = crate::spdy::Encoder::new();
    let mut bytes = BytesMut::new();
    for frame in &sent {
        encoder.encode(frame, &mut bytes);
    }
    let mut messages: Vec<u8> = bytes.chunks(700).flat_map(|piece| frame(0x82, piece)).collect();
    messages.extend(frame(0x89, b""));
    let (mut frames, end) = decode_in_pieces(&mut *tunnel().0, &messages, 100);
    assert_eq!((frames.pop(), end.as_str()), (Some(Frame::Ping { id: PING }), ""));
    assert_eq!(frames, sent);
    let mut out = BytesMut::new();
    let mut writer = tunnel().1;
    writer.encode(&Frame::Ping { id: 1 }, &mut out);
    assert_eq!(&out[..], b"\x82\x0c\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01");
}

proptest! {
    #[test]
    fn anything_may_come_in_any_pieces(
        cut in 1_u8..20,
        parts in proptest::collection::vec(
            (proptest::sample::select(vec![0x81_u8, 0x82, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x88, 0x83]),
             proptest::collection::vec(proptest::sample::select(b"0013\xff\x00bA=Q".to_vec()), 0..40)), 0..8),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut input = vec![cut];
        for (kind, payload) in parts {
            input.extend(frame(kind, &payload));
        }
        input.extend(tail);
        exercise(&input);
    }
}

/// Found by a fuzzer.
#[test]
fn what_is_behind_the_padding_is_refused_however_it_is_cut() {
    let message = b"\x82\xfa\0\0\0\x000000=0\xc8\xfa";
    for piece in 1..=3 {
        super::exercise::exercise(&[&[piece], &message[..]].concat());
    }
}
