//! Layers, sound and hostile, and the disk in them.

use vmimage::tar::exercise::{Archive, SPARSE, sum};

use super::*;

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
    for (form, archive) in SPARSE {
        let disk = alone(archive).expect(form);
        assert!(disk.len() == 300 << 10 && disk.starts_with(b"QFI\0"), "{form}: {} bytes", disk.len());
    }
    // Some writers leave out the end.
    assert_eq!(alone(&Archive::default().file("disk/x", b"y").cut()).as_deref(), Ok(&b"y"[..]));
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

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0_usize..4096, put: u8, form in 0_usize..4) {
        let _ = alone(&bytes);
        let (_, sparse) = SPARSE[form];
        let mut archive = sparse.to_vec();
        let at = at % archive.len();
        archive[at] = put;
        // With the sum made right again, so that more than the sum is tried.
        let block = at / 512 * 512;
        sum(&mut archive[block..block + 512]);
        let mut archive = &archive[..];
        if let Ok(disk) = DiskLayer::default().unpack(&mut archive) {
            let _ = io::copy(&mut disk.take(1 << 20), &mut io::sink());
        }
    }
}
