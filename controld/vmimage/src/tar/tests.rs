//! Archives, sound and hostile, entry by entry.

use std::io::Write as _;

use super::exercise::{Archive, SPARSE, sum};
use super::*;

/// Few bytes at a time, so that every state is gone through.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = room.len().min(97);
        self.0.read(&mut room[..most])
    }
}

/// Path and data of each file.
fn files(archive: impl Read) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut tar = Tar::new(archive);
    let mut files = Vec::new();
    while let Some(entry) = tar.next_entry()? {
        let (path, kind) = (String::from_utf8_lossy(&entry.path).into_owned(), entry.kind);
        let (mut data, mut all, mut room) = (Data::of(entry), Vec::new(), [0; 97]);
        loop {
            match data.read(&mut tar, &mut room)? {
                0 => break,
                count => all.extend(&room[..count]),
            }
        }
        if kind == Kind::Regular {
            files.push((path, all));
        }
    }
    Ok(files)
}

/// The one file of an archive, or why that is refused.
fn one(archive: &[u8]) -> Result<(String, Vec<u8>), String> {
    let mut files = files(Slow(archive)).map_err(|error| error.to_string())?;
    assert_eq!(files.len(), 1, "{files:?}");
    Ok(files.remove(0))
}

fn file(path: &str, data: &[u8]) -> Result<(String, Vec<u8>), String> {
    Ok((path.to_owned(), data.to_vec()))
}

#[test]
fn names_may_be_long() {
    let long = format!("disk/{}", "n".repeat(200));
    let by_pax = Archive::default().pax(&[("mtime", "1.5"), ("path", &long)]).file("short", b"p").end();
    assert_eq!(one(&by_pax), file(&long, b"p"));
    let by_gnu = Archive::default().entry(b'L', "././@LongLink", format!("{long}\0").as_bytes());
    assert_eq!(one(&by_gnu.file("short", b"g").end()), file(&long, b"g"));
    let by_prefix = Archive::default().header(b'0', "disk.img", 1, |block| block[345..349].copy_from_slice(b"disk"));
    assert_eq!(one(&by_prefix.data(b"u").end()), file("disk/disk.img", b"u"));
    // A size that is only in the extended header.
    let large = Archive::default().pax(&[("size", "3")]).header(b'0', "x", 0, |_| {});
    assert_eq!(one(&large.data(b"abc").end()), file("x", b"abc"));
}

#[test]
fn sparse_files_have_their_holes() {
    let mut expected = vec![0; 300 * 1024];
    expected[..3].copy_from_slice(b"QFI");
    for piece in 1..=5 {
        let at = piece * 49152;
        (&mut expected[at..]).write_all(format!("piece{piece}").as_bytes()).expect("room");
    }
    for (form, archive) in SPARSE {
        let (path, data) = one(archive).expect(form);
        assert!(path.trim_start_matches("./") == "disk/disk.img" && data == expected, "{form}: {path}");
        for cut in [600, 1100, 1600, archive.len() / 2] {
            assert!(one(&archive[..cut]).is_err(), "{form} cut at {cut}");
        }
    }
}

#[test]
fn maps_that_make_no_sense_are_refused() {
    let sparse = |map: &str, size: &str, stored: usize| {
        let records = [("GNU.sparse.map", map), ("GNU.sparse.size", size), ("GNU.sparse.name", "disk/x")];
        Archive::default().pax(&records).file("GNUSparseFile.1/x", &vec![1; stored]).end()
    };
    assert_eq!(one(&sparse("1,2,4,1", "6", 3)), file("disk/x", &[0, 1, 1, 0, 1, 0]));
    assert_eq!(one(&sparse("", "2", 0)), file("disk/x", &[0, 0]));
    for (map, size, stored, expected) in [
        ("4,1,1,2", "6", 3, "out of order"),
        ("0,2,1,1", "6", 3, "out of order"),
        ("4,3", "6", 3, "beyond the end"),
        ("18446744073709551615,3", "6", 3, "beyond the end"),
        ("0,2", "6", 3, "other length"),
        ("0,4", "6", 3, "other length"),
        ("0", "6", 3, "no number"),
        ("0,x", "6", 3, "no number"),
        ("-1,2", "6", 3, "no number"),
    ] {
        let error = one(&sparse(map, size, stored)).expect_err("refused");
        assert!(error.contains(expected), "{map}: {error}");
    }
    for records in [
        &[("GNU.sparse.map", "0,1"), ("GNU.sparse.name", "disk/x")][..],
        &[("GNU.sparse.offset", "0"), ("GNU.sparse.size", "1")],
        &[("GNU.sparse.numbytes", "1"), ("GNU.sparse.size", "1")],
        &[("GNU.sparse.major", "2"), ("GNU.sparse.realsize", "1"), ("GNU.sparse.name", "disk/x")],
        &[("GNU.sparse.other", "2")],
    ] {
        let archive = Archive::default().pax(records).file("disk/x", b"1").end();
        assert!(one(&archive).is_err(), "{records:?}");
    }
}

/// The header's own name is made up by GNU tar, and `path` is that name once more if it is long.
#[test]
fn a_sparse_file_is_called_what_its_own_word_says() {
    let made_up = "GNUSparseFile.1/disk.img";
    let own = [("GNU.sparse.name", "disk/disk.img"), ("GNU.sparse.size", "2"), ("GNU.sparse.map", "0,1")];
    let beside = [&[("path", made_up)][..], &own].concat();
    let behind = [&own[..], &[("path", made_up)]].concat();
    let long = Archive::default().entry(b'L', "l", format!("{made_up}\0").as_bytes());
    for archive in [
        Archive::default().pax(&own),
        Archive::default().pax(&beside),
        Archive::default().pax(&behind),
        long.clone().pax(&own),
        long.pax(&beside),
    ] {
        assert_eq!(one(&archive.file(made_up, b"1").end()), file("disk/disk.img", b"1\0"));
    }
}

#[test]
fn broken_archives_are_refused() {
    let sound = Archive::default().file("x", b"1").file("disk/a", &[9; 1000]).file("y", b"2").end();
    assert_eq!(files(Slow(&sound)).expect("sound").len(), 3);
    for cut in [1, 511, 513, 1023, 1030, 1600, 2047, 2049, 2559, 2561, 3000] {
        assert!(files(Slow(&sound[..cut])).is_err(), "cut at {cut}");
    }
    for at in [0, 124, 148, 156, 257, 1024, 1024 + 130] {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        assert!(files(Slow(&flipped)).is_err(), "flipped at {at}");
    }
    for size in [&[0xff; 12], b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b"99999999999\0", b"-0000000001\0"] {
        let archive = Archive::default().header(b'0', "disk/a", 0, |block| block[124..136].copy_from_slice(size));
        assert!(one(&archive.end()).is_err(), "{size:?}");
    }
    for (case, archive) in [
        ("global path", Archive::default().entry(b'g', "g", b"15 path=disk/x\n").file("disk/a", b"1").end()),
        ("pax without an entry", Archive::default().file("disk/a", b"1").pax(&[("a", "b")]).end()),
        ("pax length", Archive::default().entry(b'x', "x", b"99 a=b\n").file("disk/a", b"1").end()),
        ("pax no length", Archive::default().entry(b'x', "x", b"a=b\n").file("disk/a", b"1").end()),
        ("pax no end", Archive::default().entry(b'x', "x", b"6 a=bc").file("disk/a", b"1").end()),
        ("pax NUL in the name", Archive::default().pax(&[("path", "disk/a\0b")]).file("disk/a", b"1").end()),
        ("pax long", Archive::default().header(b'x', "x", 2 << 20, |_| {}).cut()),
        ("no name", Archive::default().file("", b"1").end()),
    ] {
        assert!(one(&archive).is_err(), "{case}");
    }
    let many = (0..100_001).fold(Archive::default(), |all, _| all.header(b'0', "x", 0, |_| {}));
    assert!(one(&many.cut()).expect_err("refused").contains("more than 100000 entries"));
}

/// Readers differ over which of two counts.
#[test]
fn what_is_said_of_an_entry_in_two_ways_is_refused() {
    let long = |kind: u8, text: &str| Archive::default().entry(kind, "l", format!("{text}\0").as_bytes());
    let map =
        [("GNU.sparse.name", "x"), ("GNU.sparse.size", "1"), ("GNU.sparse.offset", "0"), ("GNU.sparse.numbytes", "1")];
    for (case, archive) in [
        ("two long names", long(b'L', "b").entry(b'L', "l", b"c\0")),
        ("two long targets", long(b'K', "b").entry(b'K', "l", b"c\0")),
        ("two pax", Archive::default().pax(&[("path", "b")]).pax(&[("path", "c")])),
        ("two halves", Archive::default().pax(&[("path", "b")]).pax(&[("linkpath", "c")])),
        ("a map twice", Archive::default().pax(&map).pax(&map)),
        ("names of two kinds", long(b'L', "b").pax(&[("path", "c")])),
        ("targets of two kinds", Archive::default().pax(&[("linkpath", "b")]).entry(b'K', "l", b"c\0")),
    ] {
        let error = one(&archive.file("a", b"1").end()).expect_err(case);
        assert!(error.contains("two things"), "{case}: {error}");
    }
    for (case, archive, path) in [
        ("one long name twice", long(b'L', "b").entry(b'L', "l", b"b\0"), "b"),
        ("pax twice", Archive::default().pax(&[("path", "b")]).pax(&[("path", "b")]), "b"),
        ("a name of two kinds", long(b'L', "b").pax(&[("path", "b")]), "b"),
        ("a target of two kinds", long(b'K', "b").pax(&[("linkpath", "b")]), "a"),
        // POSIX: of records of one header the last counts.
        ("two records", Archive::default().pax(&[("path", "b"), ("path", "c")]), "c"),
    ] {
        assert_eq!(one(&archive.file("a", b"1").end()), file(path, b"1"), "{case}");
    }
}

/// As archives have them that are joined of others, and `git archive` of nothing.
#[test]
fn headers_for_all_entries_may_be_several() {
    let of_all = |archive: Archive| archive.entry(b'g', "pax_global_header", b"11 c=hello\n");
    let none = Archive::default;
    assert_eq!(one(&of_all(none()).file("a", b"1").end()), file("a", b"1"));
    assert_eq!(one(&of_all(of_all(none())).file("a", b"1").end()), file("a", b"1"));
    assert_eq!(one(&of_all(none().file("a", b"1")).end()), file("a", b"1"), "behind the last entry");
    assert!(files(&of_all(none()).end()[..]).expect("sound").is_empty());
    let ahead = |count: usize| (0..count).fold(none(), |all, _| of_all(all)).file("a", b"1").end();
    assert_eq!(one(&ahead(16)), file("a", b"1"));
    assert!(one(&ahead(17)).expect_err("refused").contains("too many"), "what is read for one entry has a bound");
    let names = (0..17).fold(none(), |all, _| all.entry(b'L', "l", b"b\0")).file("a", b"1").end();
    assert!(one(&names).expect_err("refused").contains("too many"));
}

/// GNU's old form: a header says that there is more of the map, and so does each block that follows, none of which has a piece.
#[test]
fn a_map_ends_though_it_says_that_it_goes_on() {
    struct Endless(usize);
    impl Read for Endless {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.0 += room.len();
            assert!(self.0 < 100 << 20, "read without end");
            room.fill(0);
            if let Some(more) = room.get_mut(504) {
                *more = 1;
            }
            Ok(room.len())
        }
    }
    let archive = Archive::default().header(b'S', "disk/x", 0, |block| {
        block[482] = 1;
        block[483..495].copy_from_slice(b"00000000001\0");
    });
    let error = files(archive.cut().chain(Endless(0))).expect_err("refused");
    assert!(error.to_string().contains("too many pieces"), "{error}");
}

/// An input that fails is not one that is cut off, which would be the image's fault.
#[test]
fn an_input_that_fails_amid_a_map_is_told_as_it_is() {
    struct Fails;
    impl Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::ErrorKind::TimedOut.into())
        }
    }
    let (_, gnu) = SPARSE[0];
    let header = gnu.chunks(BLOCK).position(|block| block[156] == b'S').expect("a sparse file");
    let upto = &gnu[..(header + 1) * BLOCK];
    assert!(upto[header * BLOCK + 482] != 0, "more of the map follows");
    let error = files(upto.chain(Fails)).expect_err("fails");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_hole_of_any_size_costs_no_memory() {
    let records = [("GNU.sparse.map", ""), ("GNU.sparse.size", "9223372036854775807"), ("GNU.sparse.name", "disk/x")];
    let archive = Archive::default().pax(&records).file("x", b"").end();
    let mut tar = Tar::new(&archive[..]);
    let mut data = Data::of(tar.next_entry().expect("sound").expect("an entry"));
    let mut room = [1; 4096];
    assert_eq!(data.read(&mut tar, &mut room).expect("read"), 4096);
    assert_eq!(room, [0; 4096]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0_usize..4096, put: u8, form in 0_usize..4) {
        let _ = files(&bytes[..]);
        let (_, sparse) = SPARSE[form];
        let mut archive = sparse.to_vec();
        let at = at % archive.len();
        archive[at] = put;
        // With the sum made right again, so that more than the sum is tried.
        let block = at / BLOCK * BLOCK;
        sum(&mut archive[block..block + BLOCK]);
        let mut tar = Tar::new(&archive[..]);
        while let Ok(Some(entry)) = tar.next_entry() {
            let (mut data, mut room) = (Data::of(entry), [0; 4096]);
            // A hole may be of any size.
            for _ in 0..256 {
                if !matches!(data.read(&mut tar, &mut room), Ok(1..)) {
                    break;
                }
            }
        }
    }
}
