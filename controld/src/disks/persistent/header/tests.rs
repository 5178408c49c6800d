//! Vectors, and what a hostile device may have.

use proptest::prelude::*;

use super::*;

fn sector(start: &[u8]) -> [u8; SECTOR] {
    let mut sector = [0; SECTOR];
    sector[..start.len()].copy_from_slice(start);
    sector
}

fn written() -> Written {
    Written {
        state: State::Ready,
        image: [0xab; 32],
        offset: DATA,
        uuid: Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff),
        virtual_size: 0x4000_0000,
        written_by: "virtlet-rs 1.2.3".into(),
    }
}

/// A header of ours with these bytes at this place, and a checksum that is right.
fn with(at: usize, bytes: &[u8]) -> [u8; SECTOR] {
    let mut sector = written().sector();
    sector[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c(&sector[..CRC_AT]).to_be_bytes();
    sector[CRC_AT..].copy_from_slice(&crc);
    sector
}

fn damaged(sector: &[u8; SECTOR]) -> String {
    Header::read(sector).expect_err("refused").to_string()
}

#[test]
fn the_checksum_is_that_of_the_rfc() {
    assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}

#[test]
fn a_header_of_virtlets_is_read() {
    let mut start = vec![0x26, 0x3d, 0xbe, 0x52, 0xba, 0x57, 0x67, 0x02, 0, 1];
    start.extend(0..32);
    let read = Header::read(&sector(&start)).expect("sound");
    assert_eq!(read, Some(Header::V1 { image: std::array::from_fn(|n| n as u8) }));
}

#[test]
fn a_header_of_ours_is_byte_by_byte_as_released() {
    let sector = written().sector();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let expected = [
        "263dbe52ba576702",
        "0002",
        "02",
        &"ab".repeat(32),
        "0000000000100000",
        "00112233445566778899aabbccddeeff",
        "0000000040000000",
        "766972746c65742d727320312e322e3300000000000000000000000000000000",
    ];
    assert_eq!(hex(&sector[..107]), expected.concat());
    assert!(sector[107..CRC_AT].iter().all(|byte| *byte == 0));
    assert_eq!(hex(&sector[CRC_AT..]), CRC_OF_WRITTEN);
    assert_eq!(Header::read(&sector).expect("sound"), Some(Header::V2(written())));
}

/// Computed by another program.
const CRC_OF_WRITTEN: &str = "1afc5442";

#[test]
fn what_does_not_begin_as_a_header_is_none() {
    for start in [&[0; 16][..], b"\x26\x3d\xbe\x52\xba\x57\x67\x03\0\x01", b"LABELONE"] {
        assert_eq!(Header::read(&sector(start)).expect("no header"), None);
    }
}

#[test]
fn a_newer_header_is_told_from_a_damaged_one() {
    let version = |version: u16| sector(&[&MAGIC[..], &version.to_be_bytes()].concat());
    assert_eq!(Header::read(&version(3)), Err(HeaderError::Newer(3)));
    assert_eq!(Header::read(&version(u16::MAX)), Err(HeaderError::Newer(u16::MAX)));
    assert!(damaged(&version(0)).contains("no version 0"));
    assert!(damaged(&version(2)).contains("checksum"));
    let mut flipped = written().sector();
    flipped[300] ^= 1;
    assert!(damaged(&flipped).contains("checksum"));
}

#[test]
fn what_no_release_writes_is_damaged_though_its_checksum_is_right() {
    assert!(damaged(&with(10, &[0])).contains("state"));
    assert!(damaged(&with(10, &[3])).contains("state"));
    for offset in [0_u64, 512, 1, u64::MAX, DATA + 512] {
        assert!(damaged(&with(43, &offset.to_be_bytes())).contains("begin"), "{offset}");
    }
    assert!(damaged(&with(51, &[0; 16])).contains("UUID"));
    assert!(damaged(&with(75, b"\x1b[2J")).contains("who wrote"), "nothing that a terminal obeys");
    assert!(damaged(&with(75, b"\xff")).contains("who wrote"));
}

proptest! {
    #[test]
    fn whatever_is_on_a_device_is_judged(bytes in proptest::collection::vec(any::<u8>(), SECTOR - 10), version in 0_u16..4) {
        let start = [&MAGIC[..], &version.to_be_bytes(), &bytes].concat();
        let _ = Header::read(&sector(&start));
    }

    #[test]
    fn a_header_is_read_as_it_was_written(image: [u8; 32], uuid in 1_u128.., virtual_size: u64, pages in 1_u64..1 << 40, ready: bool) {
        let state = if ready { State::Ready } else { State::Writing };
        let written = Written { state, image, offset: pages * ALIGNMENT, uuid: Uuid::from_u128(uuid), virtual_size, ..written() };
        prop_assert_eq!(Header::read(&written.sector()), Ok(Some(Header::V2(written))));
    }
}
