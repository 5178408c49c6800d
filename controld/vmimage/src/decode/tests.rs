use std::io::{BufReader, Cursor, Write};

use liblzma::stream::{Check, Filters, LzmaOptions, MtStreamBuilder, Stream};
use liblzma::write::XzEncoder;
use proptest::prelude::*;

use super::*;

/// So many bytes tell the compression.
const MARK: usize = 6;

const ALL: [Compression; 4] = Compression::ALL;

/// Decompresses, the input coming in pieces of `piece` bytes.
fn decompress(by: Compression, input: &[u8], piece: usize) -> Result<Vec<u8>, DecodeError> {
    let mut decoder = Decoder::new(by, BufReader::with_capacity(piece, input)).expect("begun");
    let mut out = Vec::new();
    match decoder.read_to_end(&mut out) {
        Ok(_) => Ok(out),
        Err(cause) => Err(cause.downcast::<DecodeError>().expect("an error of the stream")),
    }
}

fn sample(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * at / 7 % 251) as u8).collect()
}

#[test]
fn streams_are_told_by_their_marks() {
    for by in ALL {
        let stream = compress(by, b"x");
        assert_eq!(Compression::of(&stream), Some(by));
        assert_eq!(Compression::of(&stream[..MARK]), Some(by));
    }
    for other in [&b""[..], b"QFI\xfb\0\0", b"\x1f", b"BZh0xx", b"BZ", b"\xfd7zXZ", b"\0\0\0\0\0\0"] {
        assert_eq!(Compression::of(other), None, "{other:?}");
    }
}

#[test]
fn what_was_compressed_comes_out() {
    for by in ALL {
        for length in [0, 1, 100, 300_000] {
            let bytes = sample(length);
            let stream = compress(by, &bytes);
            for piece in [1, 7, 65_536] {
                assert!(decompress(by, &stream, piece).expect("decompressed") == bytes, "{by} {length} {piece}");
            }
        }
    }
}

#[test]
fn streams_one_behind_the_other_are_one() {
    for by in ALL {
        let mut streams = compress(by, b"one ");
        streams.extend(compress(by, b""));
        streams.extend(compress(by, b"two"));
        for piece in [1, 5, 4096] {
            assert_eq!(decompress(by, &streams, piece).expect("decompressed"), b"one two", "{by}");
        }
    }
}

#[test]
fn a_stream_that_is_cut_off_is_told_wherever_it_is_cut() {
    for by in ALL {
        let stream = compress(by, &sample(20_000));
        for cut in (MARK..stream.len()).step_by(1 + stream.len() / 400).chain(stream.len() - 16..stream.len()) {
            let error = decompress(by, &stream[..cut], 4096).expect_err("cut off");
            assert!(matches!(error, DecodeError::Truncated { .. }), "{by} cut at {cut}: {error:?}");
        }
        // The second of two.
        let two = [stream.clone(), stream[..stream.len() / 2].to_vec()].concat();
        assert!(matches!(decompress(by, &two, 4096), Err(DecodeError::Truncated { .. })), "{by}");
    }
}

#[test]
fn nothing_may_follow_a_stream() {
    for by in ALL {
        let stream = compress(by, &sample(5000));
        for junk in [&b"junk that is no stream"[..], b"x", b"\0", b"\0\0\0\0\0", b"BZhx"] {
            let with = [&stream, junk].concat();
            for piece in [1, 4096] {
                assert!(decompress(by, &with, piece).is_err(), "{by} followed by {junk:?}");
            }
        }
        let other = ALL[(ALL.iter().position(|&other| other == by).expect("one of them") + 1) % ALL.len()];
        assert!(decompress(by, &[stream, compress(other, b"y")].concat(), 4096).is_err(), "{by} then {other}");
    }
}

#[test]
fn padding_between_xz_streams_is_in_fours() {
    let (one, two) = (compress(Compression::Xz, b"one"), compress(Compression::Xz, b"two"));
    for (zeros, sound) in [(4, true), (8, true), (1, false), (6, false)] {
        let padding = vec![0; zeros];
        for streams in [[&one[..], &padding, &two].concat(), [&one[..], &padding].concat()] {
            assert_eq!(decompress(Compression::Xz, &streams, 3).is_ok(), sound, "{zeros}");
        }
    }
}

#[test]
fn frames_to_be_skipped_are_skipped() {
    let frame = b"\x50\x2a\x4d\x18\x03\0\0\0abc";
    let stream = compress(Compression::Zstd, b"data");
    let all = [&stream[..], frame, &stream].concat();
    assert_eq!(decompress(Compression::Zstd, &all, 5).expect("decompressed"), b"datadata");
}

/// One bit wrong anywhere: an error, unless it is a bit that means nothing (a name or a time in a gzip header).
#[test]
fn a_flipped_bit_never_gives_other_bytes() {
    let bytes = sample(3000);
    for by in ALL {
        let stream = compress(by, &bytes);
        for at in MARK..stream.len() {
            let mut wrong = stream.clone();
            wrong[at] ^= 1 << (at % 8);
            if let Ok(out) = decompress(by, &wrong, 4096) {
                assert!(out == bytes, "{by} with byte {at} flipped");
            }
        }
    }
}

#[test]
fn blocks_of_one_file_are_put_together_in_order() {
    let bytes = sample(3_000_000);
    let stream = MtStreamBuilder::new().threads(2).block_size(100_000).preset(0).check(Check::Crc64).encoder();
    let mut encoder = XzEncoder::new_stream(Vec::new(), stream.expect("an encoder"));
    encoder.write_all(&bytes).expect("written");
    let file = encoder.finish().expect("finished");
    assert!(decompress(Compression::Xz, &file, 10_000).expect("decompressed") == bytes);
    assert!(matches!(decompress(Compression::Xz, &file[..file.len() / 2], 999), Err(DecodeError::Truncated { .. })));
}

/// An xz stream whose header asks for a dictionary of 1.5 GiB, as `xz --lzma2=dict=1536MiB` makes it.
fn large_dictionary() -> Vec<u8> {
    let mut options = LzmaOptions::new_preset(0).expect("options");
    options.dict_size(4096);
    let encoder = Stream::new_stream_encoder(Filters::new().lzma2(&options), Check::Crc32).expect("an encoder");
    let mut encoder = XzEncoder::new_stream(Vec::new(), encoder);
    encoder.write_all(b"tiny").expect("written");
    let mut stream = encoder.finish().expect("finished");
    // Stream header 12 bytes; block header: size, flags, filter 0x21, size of its properties, dictionary, padding, CRC.
    assert_eq!(stream[14..16], [0x21, 1]);
    let end = 12 + (usize::from(stream[12]) + 1) * 4;
    // 3 << (37 / 2 + 11)
    stream[16] = 37;
    let mut sum = flate2::Crc::new();
    sum.update(&stream[12..end - 4]);
    stream[end - 4..end].copy_from_slice(&sum.sum().to_le_bytes());
    stream
}

/// A Zstandard frame with a window of 2 GiB, as `zstd --long=31` makes it.
fn large_window() -> Vec<u8> {
    // Descriptor without a content size; window 2^(10 + 21); one last raw block of 4 bytes.
    [&b"\x28\xb5\x2f\xfd"[..], &[0, 21 << 3], &[0x21, 0, 0], b"tiny"].concat()
}

#[test]
fn what_asks_for_too_much_memory_gets_none() {
    let error = decompress(Compression::Xz, &large_dictionary(), 4096).expect_err("too much");
    assert!(matches!(error, DecodeError::Memory { .. }), "{error:?}");
    let error = decompress(Compression::Zstd, &large_window(), 4096).expect_err("too much");
    assert!(matches!(error, DecodeError::Memory { .. }), "{error:?}");
    assert!(error.to_string().contains("more than 128 MiB of memory"), "{error}");
    // 128 MiB is fine.
    let mut fine = large_window();
    fine[5] = 17 << 3;
    assert_eq!(decompress(Compression::Zstd, &fine, 4096).expect("decompressed"), b"tiny");
}

#[test]
fn an_error_of_the_input_comes_through_as_it_is() {
    struct Broken(Cursor<Vec<u8>>);
    impl Read for Broken {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            match self.0.read(room)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                count => Ok(count),
            }
        }
    }
    for by in ALL {
        let stream = compress(by, &sample(100_000));
        let half = Broken(Cursor::new(stream[..stream.len() / 2].to_vec()));
        let error = Decoder::new(by, BufReader::with_capacity(100, half)).expect("begun").read_to_end(&mut Vec::new());
        let error = error.expect_err("broken");
        assert!(error.kind() == io::ErrorKind::UnexpectedEof && error.get_ref().is_none(), "{by}: {error:?}");
    }
}

proptest! {
    #[test]
    fn junk_behind_a_mark_does_no_harm(by in 0..4_usize, junk in prop::collection::vec(any::<u8>(), 0..2000)) {
        let mark = &compress(ALL[by], b"")[..4];
        let mut decoder = Decoder::new(ALL[by], BufReader::new(Cursor::new([mark, &junk].concat()))).expect("begun");
        let mut out = Vec::new();
        let _ = Read::by_ref(&mut decoder).take(1 << 20).read_to_end(&mut out);
    }
}
