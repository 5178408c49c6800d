//! What lies behind the header.

use super::*;

const OUTSIDE: &str = "points beyond the file's end; the file is cut off or its tables lie";
const COMPRESSED: u64 = 1 << 62;

fn judged(change: impl Fn(&mut Vec<u8>)) -> String {
    let mut image = image();
    change(&mut image);
    exercise(&image);
    qcow2_error(&image)
}

#[test]
fn what_qemu_writes_to_may_be_as_it_was_when_that_was_killed() {
    let written = Expected { written: true, ..STRICT.into() };
    let judged = |expected: Expected, change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = image();
        change(&mut image);
        examine(&image.as_slice(), image.len() as u64, expected).expect("read").map(|summary| summary.virtual_size)
    };
    let end = LENGTH as u64;
    for change in [u64_at(72, 1), u64_at(CLUSTER + 8, end + 65_536), u64_at(L1 + 8, end + 65_536), u64_at(L2 + 8, end)]
    {
        judged(STRICT.into(), &change).expect_err("an image");
        assert_eq!(judged(written, &change).expect("repaired by QEMU"), 1 << 30);
    }
    let footer: &dyn Fn(&mut Vec<u8>) = &|image| put(image, LENGTH - 512, b"conectix");
    judged(STRICT.into(), footer).expect_err("two formats");
    judged(written, footer).expect("its guest's");
    for change in [u64_at(8, 1024), u64_at(72, 2), u64_at(72, 4), u64_at(88, 2), u64_at(L1, 0x40200)] {
        judged(written, &change).expect_err("refused");
    }
    judged(written, &u32_at(32, 2)).expect_err("encrypted");
}

#[test]
fn entries_stay_in_the_file() {
    let end = LENGTH as u64;
    let taken = format!("{:?}", ImageInfo { format: DiskFormat::Qcow2, virtual_size: 1 << 30 });
    // A compressed cluster of `sectors` more sectors than one: with clusters of 2^16 bytes, 8 bits say how many.
    let compressed = |offset: u64, sectors: u64| COMPRESSED | sectors << 54 | offset;
    let cases = [
        ("refcount table", CLUSTER, end + 65_536, OUTSIDE),
        ("refcount table", CLUSTER + 8, 0x20200, "is not aligned to clusters"),
        ("refcount table", CLUSTER, 0x20001, "has reserved bits set"),
        ("L1 table", L1 + 8, end, OUTSIDE),
        ("L1 table", L1, 0x00ff_ffff_ffff_0000, OUTSIDE),
        ("L1 table", L1, 0x40200, "is not aligned to clusters"),
        ("L1 table", L1, 0x40001, "has reserved bits set"),
        ("L1 table", L1, 1 << 62 | 0x40000, "has reserved bits set"),
        ("L2 table", L2, end, OUTSIDE),
        ("L2 table", L2, 0x50200, "is not aligned to clusters"),
        ("L2 table", L2, 0x50002, "has reserved bits set"),
        ("L2 table", L2, 1 << 61 | 0x50000, "has reserved bits set"),
        ("L2 table", L2, compressed(0x50000, 0) | IN_USE, "is compressed and marked as unshared"),
        ("L2 table", L2, compressed(0x0200, 0), "points into the header"),
        ("L2 table", L2, compressed(end, 127), OUTSIDE),
        ("L2 table", L2, compressed((1 << 54) - 1, 255), OUTSIDE),
    ];
    for (table, at, entry, fault) in cases {
        let error = judged(|image| put(image, at, &entry.to_be_bytes()));
        let index = at % CLUSTER / 8;
        assert_eq!(error, format!("entry {index} of the {table}, {entry:#x}, {fault}"));
    }
    for (at, entry) in [
        (L1, 0),
        (L1, L2 as u64),
        (L2, 0),
        (L2, 1),
        (L2, DATA as u64 | 1),
        (L2, compressed(0x5_0123, 127)),
        (L2, compressed(0x5_fe00, 127)),
        (L2 + CLUSTER - 8, DATA as u64),
    ] {
        assert_eq!(judged(|image| put(image, at, &entry.to_be_bytes())), taken, "{entry:#x}");
    }
}

#[test]
fn version_2_and_subclusters_have_no_zero_bit() {
    for change in [u64_at(72, 16), u64_at(0, 0x5146_49fb_0000_0002)] {
        let error = judged(|image| {
            u32_at(36, 4)(image);
            change(image);
            put(image, L2, &(DATA as u64 | 1).to_be_bytes());
        });
        assert_eq!(error, "entry 0 of the L2 table, 0x50001, has reserved bits set");
    }
}

#[test]
fn subclusters_are_there_or_zeros() {
    let subclusters = |entry: u64, bitmap: u64| {
        judged(|image| {
            u64_at(72, 16)(image);
            u32_at(36, 4)(image);
            put(image, L2, &entry.to_be_bytes());
            put(image, L2 + 8, &bitmap.to_be_bytes());
        })
    };
    assert!(subclusters(DATA as u64, 0x0000_0002_0000_0001).starts_with("ImageInfo"));
    assert!(subclusters(0, 0xffff_ffff_0000_0000).starts_with("ImageInfo"));
    assert!(subclusters(DATA as u64, 0x0000_0001_0000_0001).ends_with("has subclusters that are both there and zeros"));
    assert!(subclusters(COMPRESSED | DATA as u64, 1).ends_with("is compressed and has subclusters"));
}

/// The table of 32 MiB that the header may have is walked, but what it points at is not read again and again.
#[test]
fn tables_that_overlap_are_not_read_for_ever() {
    let mut image = image();
    u64_at(40, LENGTH as u64)(&mut image);
    u32_at(36, 8192)(&mut image);
    for _ in 0..8192 {
        image.extend_from_slice(&(L2 as u64).to_be_bytes());
    }
    assert_eq!(qcow2_error(&image), "its L2 tables have more than 458752 bytes: they overlap, or there are too many");
}

#[test]
fn snapshots_are_walked() {
    /// Offset of the L1 table, its entries, length of the name, of extra data.
    fn snapshot(l1: u64, entries: u32, name: u16, extra: u32) -> Vec<u8> {
        let mut entry = vec![0; 40];
        put(&mut entry, 0, &l1.to_be_bytes());
        put(&mut entry, 8, &entries.to_be_bytes());
        put(&mut entry, 14, &name.to_be_bytes());
        put(&mut entry, 36, &extra.to_be_bytes());
        // As long as it says, or long enough that only its words can be what is wrong.
        let length = 40 + usize::from(name) + extra.min(2000) as usize;
        entry.resize(length.next_multiple_of(8).min(2000), 0);
        entry
    }
    let l1 = L1 as u64;
    let sound = snapshot(l1, 2, 3, 24);
    let cases = [
        (sound.clone(), "ImageInfo"),
        (snapshot(l1, 2, 65_535, 1024), "snapshot table ends beyond"),
        (snapshot(l1, 2, 3, 1025), "snapshot 1 is broken: it has too much extra data"),
        (snapshot(l1, 2, 3, !0 - 100), "snapshot 1 is broken: it has too much extra data"),
        (snapshot(0, 2, 3, 24), "snapshot 1 is broken: its L1 table is too large or in an impossible place"),
        (snapshot(l1 + 512, 2, 3, 24), "snapshot 1 is broken: its L1 table is too large or in an impossible place"),
        (snapshot(l1, !0, 3, 24), "snapshot 1 is broken: its L1 table is too large or in an impossible place"),
        (snapshot(l1, 1 << 20, 3, 24), "snapshot 1 is broken: its L1 table ends beyond the file"),
        (snapshot(!0xffff, 2, 3, 24), "snapshot 1 is broken: its L1 table ends beyond the file"),
    ];
    for (second, expected) in cases {
        let error = judged(|image| {
            u32_at(60, 2)(image);
            u64_at(64, LENGTH as u64)(image);
            image.extend_from_slice(&sound);
            image.extend_from_slice(&second);
        });
        assert!(error.starts_with(expected), "expected `{expected}`, got `{error}`");
    }
}

#[test]
fn bitmaps_are_walked() {
    fn bitmap(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
        let mut entry = vec![0; 32];
        put(&mut entry, 0, &(DATA as u64).to_be_bytes());
        put(&mut entry, 8, &1_u32.to_be_bytes());
        entry[16] = 1;
        entry[17] = 16;
        entry[19] = 3;
        change(&mut entry);
        entry
    }
    let directory = |count: u32, entry: Vec<u8>, bytes: u64, offset: u64| {
        judged(move |image| {
            extension(0x2385_2875, 24)(image);
            put(image, 120, &count.to_be_bytes());
            put(image, 128, &bytes.to_be_bytes());
            put(image, 136, &offset.to_be_bytes());
            image.extend_from_slice(&entry);
        })
    };
    let end = LENGTH as u64;
    assert!(directory(1, bitmap(|_| {}), 32, end).starts_with("ImageInfo"));
    let senseless = "its bitmaps are broken: an entry of the directory makes no sense";
    let misplaced = "its bitmaps are broken: a table is too large or in an impossible place";
    for (expected, error) in [
        ("bitmap directory of 0 entries", directory(1, bitmap(|_| {}), 0, end)),
        ("bitmap directory of 67107841 entries", directory(1, bitmap(|_| {}), 67_107_841, end)),
        ("bitmap directory at 0x60200", directory(1, bitmap(|_| {}), 32, end + 512)),
        ("bitmap directory ends beyond", directory(1, bitmap(|_| {}), 33, end)),
        ("L1 table and bitmap directory overlap", directory(1, bitmap(|_| {}), 32, L1 as u64)),
        ("its bitmaps are broken: there are none, or too many", directory(65_536, bitmap(|_| {}), 32, end)),
        ("its bitmaps are broken: an entry leaves", directory(1, bitmap(|_| {}), 24, end)),
        (senseless, directory(2, bitmap(|_| {}), 32, end)),
        (senseless, directory(1, bitmap(|entry| entry[16] = 2), 32, end)),
        (senseless, directory(1, bitmap(|entry| entry[17] = 8), 32, end)),
        (senseless, directory(1, bitmap(|entry| entry[19] = 0), 32, end)),
        (senseless, directory(1, bitmap(|entry| entry[15] = 4), 32, end)),
        (senseless, directory(1, bitmap(|entry| entry[23] = 4), 32, end)),
        (misplaced, directory(1, bitmap(|entry| entry[7] = 1), 32, end)),
        (misplaced, directory(1, bitmap(|entry| entry[8] = 255), 32, end)),
        ("its bitmaps are broken: a table ends beyond", directory(1, bitmap(|entry| entry[8] = 1), 32, end)),
    ] {
        assert!(error.starts_with(expected), "expected `{expected}`, got `{error}`");
    }
    let error = directory(1, [bitmap(|_| {}), vec![0; 8]].concat(), 40, end);
    assert_eq!(error, "its bitmaps are broken: the directory is longer than its entries");
    let reserved = judged(|image| {
        extension(0x2385_2875, 24)(image);
        put(image, 120, &[0, 0, 0, 1, 0, 0, 0, 1]);
    });
    assert_eq!(reserved, "its bitmaps are broken: a reserved field is set");
}
