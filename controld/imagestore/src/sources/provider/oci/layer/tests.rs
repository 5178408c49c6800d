//! Layers, sound and hostile, and the disk in them.

use std::io::Write as _;

use super::*;

/// Makes archives, entry by entry.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn entry(mut self, kind: u8, path: &str, data: &[u8]) -> Self {
        self.header(kind, path.as_bytes(), data.len() as u64);
        self.data(data)
    }

    fn file(self, path: &str, data: &[u8]) -> Self {
        self.entry(b'0', path, data)
    }

    fn dir(self, path: &str) -> Self {
        self.entry(b'5', path, b"")
    }

    fn pax(self, records: &[(&str, &str)]) -> Self {
        let mut text = String::new();
        for (key, value) in records {
            let rest = format!(" {key}={value}\n");
            let digits = (rest.len() + 2).to_string().len();
            let digits = (rest.len() + digits).to_string().len();
            text += &format!("{}{rest}", rest.len() + digits);
        }
        self.entry(b'x', "pax", text.as_bytes())
    }

    fn header(&mut self, kind: u8, path: &[u8], size: u64) {
        let mut block = [0_u8; 512];
        block[..path.len()].copy_from_slice(path);
        block[100..108].copy_from_slice(b"0000644\0");
        block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        block[156] = kind;
        block[257..265].copy_from_slice(b"ustar\x0000");
        self.put(block);
    }

    /// A header with its sum.
    fn put(&mut self, mut block: [u8; 512]) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(block);
    }

    fn data(mut self, data: &[u8]) -> Self {
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn unpack(layer: &DiskLayer, archive: &[u8]) -> Result<Vec<u8>, String> {
    /// Few bytes at a time, so that every state is gone through.
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            let most = room.len().min(97);
            self.0.read(&mut room[..most])
        }
    }
    let mut archive = Slow(archive);
    let mut disk = Vec::new();
    layer
        .unpack(&mut archive)
        .and_then(|mut reader| reader.read_to_end(&mut disk))
        .map(|_| disk)
        .map_err(|error| error.to_string())
}

fn alone(archive: &[u8]) -> Result<Vec<u8>, String> {
    unpack(&DiskLayer::default(), archive)
}

#[test]
fn the_one_file_in_disk_is_the_disk() {
    for path in ["disk/disk.img", "./disk/disk.img", "/disk/disk.img", "disk//disk.qcow2", "./disk/./x"] {
        let archive =
            Archive::default().dir("./").dir("disk/").file(path, b"content").file("etc/passwd", b"root").end();
        assert_eq!(alone(&archive).as_deref(), Ok(&b"content"[..]), "{path}");
    }
    // Sizes around a block, and other things around it.
    for size in [0, 1, 511, 512, 513, 5000] {
        let data: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        let archive = Archive::default()
            .file("other", b"x")
            .entry(b'2', "usr/link", b"")
            .entry(b'3', "dev/null", b"")
            .entry(b'7', "disk/x", &data)
            .file("later", &[7; 700])
            .entry(b'1', "hard", b"")
            .end();
        assert_eq!(alone(&archive), Ok(data), "{size}");
    }
    // Some writers leave out the end.
    assert_eq!(alone(&Archive::default().file("disk/x", b"y").0).as_deref(), Ok(&b"y"[..]));
}

#[test]
fn names_may_be_long() {
    let long = format!("disk/{}", "n".repeat(200));
    let by_pax = Archive::default().pax(&[("mtime", "1.5"), ("path", &long)]).file("short", b"p").end();
    assert_eq!(alone(&by_pax).as_deref(), Ok(&b"p"[..]));
    let by_gnu =
        Archive::default().entry(b'L', "././@LongLink", format!("{long}\0").as_bytes()).file("short", b"g").end();
    assert_eq!(alone(&by_gnu).as_deref(), Ok(&b"g"[..]));
    let mut by_prefix = Archive::default();
    by_prefix.header(b'0', b"disk.img", 1);
    let mut block: [u8; 512] = by_prefix.0[..].try_into().expect("a block");
    block[345..349].copy_from_slice(b"disk");
    by_prefix.0.clear();
    by_prefix.put(block);
    assert_eq!(alone(&by_prefix.data(b"u").end()).as_deref(), Ok(&b"u"[..]));
    // A size that is only in the extended header.
    let mut large = Archive::default().pax(&[("size", "3")]);
    large.header(b'0', b"disk/x", 0);
    assert_eq!(alone(&large.data(b"abc").end()).as_deref(), Ok(&b"abc"[..]));
}

#[test]
fn sparse_files_have_their_holes() {
    let mut expected = vec![0; 300 * 1024];
    expected[..3].copy_from_slice(b"QFI");
    for piece in 1..=5 {
        let at = piece * 49152;
        (&mut expected[at..]).write_all(format!("piece{piece}").as_bytes()).expect("room");
    }
    // By GNU tar, in each of its forms.
    for (form, archive) in [
        ("gnu", &include_bytes!("fixtures/gnu.tar")[..]),
        ("pax 1.0", include_bytes!("fixtures/posix.tar")),
        ("pax 0.1", include_bytes!("fixtures/posix-0.1.tar")),
        ("pax 0.0", include_bytes!("fixtures/posix-0.0.tar")),
    ] {
        assert!(alone(archive).as_ref() == Ok(&expected), "{form}");
        for cut in [600, 1100, 1600, archive.len() / 2] {
            assert!(alone(&archive[..cut]).is_err(), "{form} cut at {cut}");
        }
    }
}

#[test]
fn maps_that_make_no_sense_are_refused() {
    let sparse = |map: &str, size: &str, stored: usize| {
        let records = [("GNU.sparse.map", map), ("GNU.sparse.size", size), ("GNU.sparse.name", "disk/x")];
        Archive::default().pax(&records).file("GNUSparseFile.1/x", &vec![1; stored]).end()
    };
    assert_eq!(alone(&sparse("1,2,4,1", "6", 3)), Ok(vec![0, 1, 1, 0, 1, 0]));
    assert_eq!(alone(&sparse("", "2", 0)), Ok(vec![0, 0]));
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
        let error = alone(&sparse(map, size, stored)).expect_err("refused");
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
        assert!(alone(&archive).is_err(), "{records:?}");
    }
}

fn long_name(length: usize) -> Archive {
    Archive::default().pax(&[("path", &format!("disk/{}", "n".repeat(length)))]).file("short", b"1")
}

#[test]
fn anything_else_in_disk_is_refused() {
    let file = || Archive::default().dir("disk");
    for (case, archive, expected) in [
        ("nothing", Archive::default().end(), "no file in `/disk`"),
        ("elsewhere", Archive::default().file("disks/x", b"1").file("a/disk/x", b"1").end(), "no file in `/disk`"),
        ("two", file().file("disk/a", b"1").file("disk/b", b"2").end(), "more than one file in `/disk` (a, b)"),
        ("twice the same", file().file("disk/a", b"1").file("./disk/a", b"2").end(), "more than one file"),
        ("symlink", file().entry(b'2', "disk/a", b"").end(), "is a symbolic link"),
        ("hard link", file().entry(b'1', "disk/a", b"").end(), "is a hard link"),
        ("device", file().entry(b'4', "disk/a", b"").end(), "is a device"),
        ("character device", file().entry(b'3', "disk/a", b"").end(), "is a device"),
        ("fifo", file().entry(b'6', "disk/a", b"").end(), "is a FIFO"),
        ("directory", file().dir("disk/a").end(), "is a directory"),
        ("unknown", file().entry(b'Z', "disk/a", b"").end(), "unknown type"),
        ("nested", file().file("disk/a/b", b"1").end(), "directory of its own"),
        (
            "disk is a link",
            Archive::default().entry(b'2', "disk", b"").file("disk/a", b"1").end(),
            "is a symbolic link",
        ),
        ("disk is a file", Archive::default().file("disk", b"1").end(), "is a regular file"),
        ("symlink after the disk", file().file("disk/a", b"1").entry(b'2', "disk/b", b"").end(), "is a symbolic link"),
        ("parent", file().file("disk/../disk/a", b"1").end(), "a path with `..`"),
        ("parent elsewhere", file().file("disk/a", b"1").file("x/../disk/b", b"1").end(), "a path with `..`"),
        ("removed here alone", file().file("disk/.wh.a", b"").end(), "no file in `/disk`"),
        ("a long name", long_name(256).end(), "a name of over 255 bytes"),
        ("many", (0..=1000).fold(file(), |all, n| all.file(&format!("disk/.wh.{n}"), b"")).end(), "over 1000 files"),
    ] {
        let error = alone(&archive).expect_err(case);
        assert!(error.contains(expected), "{case}: {error}");
    }
}

#[test]
fn broken_archives_are_refused() {
    let sound = Archive::default().file("x", b"1").file("disk/a", &[9; 1000]).file("y", b"2").end();
    assert!(alone(&sound).is_ok());
    for cut in [1, 511, 513, 1023, 1030, 1600, 2047, 2049, 2559, 2561, 3000] {
        assert!(alone(&sound[..cut]).is_err(), "cut at {cut}");
    }
    for at in [0, 124, 148, 156, 257, 1024, 1024 + 130] {
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        assert!(alone(&flipped).is_err(), "flipped at {at}");
    }
    let mut negative = Archive::default();
    negative.header(b'0', b"disk/a", 0);
    let mut block: [u8; 512] = negative.0[..].try_into().expect("a block");
    for size in [&[0xff; 12], b"\x80\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", b"99999999999\0", b"-0000000001\0"] {
        block[124..136].copy_from_slice(size);
        let mut archive = Archive::default();
        archive.put(block);
        assert!(alone(&archive.end()).is_err(), "{size:?}");
    }
    for (case, archive) in [
        ("global path", Archive::default().entry(b'g', "g", b"15 path=disk/x\n").file("disk/a", b"1").end()),
        ("pax without an entry", Archive::default().file("disk/a", b"1").pax(&[("a", "b")]).end()),
        ("pax length", Archive::default().entry(b'x', "x", b"99 a=b\n").file("disk/a", b"1").end()),
        ("pax no length", Archive::default().entry(b'x', "x", b"a=b\n").file("disk/a", b"1").end()),
        ("pax no end", Archive::default().entry(b'x', "x", b"6 a=bc").file("disk/a", b"1").end()),
        ("pax NUL in the name", Archive::default().pax(&[("path", "disk/a\0b")]).file("disk/a", b"1").end()),
        ("pax long", {
            let mut archive = Archive::default();
            archive.header(b'x', b"x", 2 << 20);
            archive.0
        }),
        ("no name", Archive::default().file("", b"1").end()),
        (
            "two long names",
            Archive::default().entry(b'L', "l", b"disk/b\0").entry(b'L', "l", b"disk/c\0").file("disk/a", b"1").end(),
        ),
        ("two pax", Archive::default().pax(&[("a", "b")]).pax(&[("a", "b")]).file("disk/a", b"1").end()),
        (
            "names of two kinds",
            Archive::default().entry(b'L', "l", b"disk/b\0").pax(&[("path", "disk/c")]).file("disk/a", b"1").end(),
        ),
        (
            "targets of two kinds",
            Archive::default().pax(&[("linkpath", "b")]).entry(b'K', "l", b"c\0").file("disk/a", b"1").end(),
        ),
        (
            "two global",
            Archive::default().entry(b'g', "g", b"6 a=b\n").entry(b'g', "g", b"6 a=b\n").file("disk/a", b"1").end(),
        ),
    ] {
        assert!(alone(&archive).is_err(), "{case}");
    }
    assert_eq!(
        alone(&Archive::default().entry(b'g', "g", b"11 c=hello\n").file("disk/a", b"1").end()).as_deref(),
        Ok(&b"1"[..])
    );
    let mut many = Archive::default();
    for _ in 0..100_001 {
        many.header(b'0', b"x", 0);
    }
    assert!(alone(&many.0).expect_err("refused").contains("more than 100000 entries"));
}

#[test]
fn layers_above_and_below_count() {
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let above = |files: &[&str], removed: &[&str], opaque| Scan { files: set(files), removed: set(removed), opaque };
    let one = Archive::default().file("disk/a", b"1").end();
    let removes = Archive::default().file("disk/.wh.old", b"").file("disk/a", b"1").end();
    let opaque = Archive::default().file("disk/.wh..wh..opq", b"").file("disk/a", b"1").end();
    let root_opaque = Archive::default().file("disk/a", b"1").file(".wh..wh..opq", b"").end();
    let no_dir = Archive::default().file("disk/a", b"1").file(".wh.disk", b"").end();
    let two = Archive::default().file("disk/a", b"1").file("disk/b", b"2").end();
    let none = || Scan::default();
    for (case, archive, below, above, named, expected) in [
        ("nothing below", &one, set(&[]), none(), None, Ok("1")),
        ("another below", &one, set(&["old"]), none(), None, Err("more than one")),
        ("the same below", &one, set(&["a"]), none(), None, Ok("1")),
        ("removed here", &removes, set(&["old"]), none(), None, Ok("1")),
        ("not all removed here", &removes, set(&["old", "older"]), none(), None, Err("more than one")),
        ("opaque here", &opaque, set(&["old", "older"]), none(), None, Ok("1")),
        ("opaque root here", &root_opaque, set(&["old"]), none(), None, Ok("1")),
        ("directory removed here", &no_dir, set(&["old"]), none(), None, Ok("1")),
        ("removed above", &one, set(&["old"]), above(&[], &["old"], false), None, Ok("1")),
        ("this removed above", &one, set(&[]), above(&[], &["a"], false), None, Err("no file")),
        ("opaque above", &one, set(&[]), above(&[], &[], true), None, Err("no file")),
        ("one of two removed above", &two, set(&[]), above(&[], &["a"], false), None, Ok("2")),
        ("the other of two removed above", &two, set(&[]), above(&[], &["b"], false), None, Ok("1")),
        ("replaced above", &one, set(&[]), above(&["a"], &[], false), None, Err("no file")),
        ("another above", &one, set(&[]), above(&["b"], &[], false), None, Err("more than one")),
        ("named", &two, set(&[]), none(), Some("b"), Ok("2")),
        ("named, others below", &one, set(&["old"]), none(), Some("a"), Ok("1")),
        ("named and not there", &one, set(&[]), none(), Some("b"), Err("no `/disk/b`")),
    ] {
        let layer = DiskLayer { below, above, named: named.map(str::to_owned) };
        match (unpack(&layer, archive), expected) {
            (Ok(disk), Ok(wanted)) => assert_eq!(disk, wanted.as_bytes(), "{case}"),
            (Err(error), Err(part)) => assert!(error.contains(part), "{case}: {error}"),
            (got, wanted) => panic!("{case}: {got:?}, not {wanted:?}"),
        }
    }
    assert_eq!(Scan::of(&removes[..]).expect("read"), above(&["a"], &["old"], false));
    assert_eq!(Scan::of(&opaque[..]).expect("read"), above(&["a"], &[], true));
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
    let mut archive = Archive::default();
    archive.header(b'S', b"disk/x", 0);
    let mut block: [u8; 512] = archive.0[..].try_into().expect("a block");
    block[482] = 1;
    block[483..495].copy_from_slice(b"00000000001\0");
    archive.0.clear();
    archive.put(block);
    let error = Scan::of(archive.0.chain(Endless(0))).expect_err("refused");
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
    let gnu = &include_bytes!("fixtures/gnu.tar")[..];
    let header = gnu.chunks(512).position(|block| block[156] == b'S').expect("a sparse file");
    let upto = &gnu[..(header + 1) * 512];
    assert!(upto[header * 512 + 482] != 0, "more of the map follows");
    let error = Scan::of(upto.chain(Fails)).expect_err("fails");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

#[test]
fn a_hole_of_any_size_costs_no_memory() {
    let records = [("GNU.sparse.map", ""), ("GNU.sparse.size", "9223372036854775807"), ("GNU.sparse.name", "disk/x")];
    let archive = Archive::default().pax(&records).file("x", b"").end();
    let mut archive = &archive[..];
    let mut disk = DiskLayer::default().unpack(&mut archive).expect("unpacked");
    let mut room = [1; 4096];
    assert_eq!(disk.read(&mut room).expect("read"), 4096);
    assert_eq!(room, [0; 4096]);
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0_usize..4096, put: u8, form in 0_usize..4) {
        let _ = alone(&bytes);
        let forms = [
            &include_bytes!("fixtures/gnu.tar")[..],
            include_bytes!("fixtures/posix.tar"),
            include_bytes!("fixtures/posix-0.1.tar"),
            include_bytes!("fixtures/posix-0.0.tar"),
        ];
        let mut archive = forms[form].to_vec();
        let at = at % archive.len();
        archive[at] = put;
        // With the sum made right again, so that more than the sum is tried.
        let block = at / 512 * 512;
        let header = &mut archive[block..block + 512];
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let mut archive = &archive[..];
        if let Ok(disk) = DiskLayer::default().unpack(&mut archive) {
            let _ = io::copy(&mut disk.take(1 << 20), &mut io::sink());
        }
    }
}
