//! Images made byte by byte. [`real`] has those of `qemu-img`, [`tables`] what lies behind the header, [`raw`] what is
//! no qcow2.

mod property;
mod raw;
mod real;
mod tables;

use std::fs::File;
use std::io::Write;

use super::*;

const STRICT: Policy = Policy { allow_raw: false, max_virtual_size: 2 << 40 };
const WITH_RAW: Policy = Policy { allow_raw: true, max_virtual_size: 2 << 40 };
const LAYERED: Expected = Expected { policy: STRICT, declared: None, layered: true, written: false };
const CLUSTER: usize = 65_536;
/// The image below: header, refcount table, refcounts, L1, L2, data.
const LENGTH: usize = 6 * CLUSTER;
const REFCOUNTS: usize = 2 * CLUSTER;
const L1: usize = 3 * CLUSTER;
const L2: usize = 4 * CLUSTER;
const DATA: usize = 5 * CLUSTER;
const IN_USE: u64 = 1 << 63;

/// A sound version 3 image of 1 GiB, with one cluster of data. `qemu-img check` finds no fault in it.
fn image() -> Vec<u8> {
    let mut image = vec![0; LENGTH];
    image[..4].copy_from_slice(&qcow2::MAGIC);
    put(&mut image, 4, &3_u32.to_be_bytes());
    put(&mut image, 20, &16_u32.to_be_bytes());
    put(&mut image, 24, &(1_u64 << 30).to_be_bytes());
    put(&mut image, 36, &2_u32.to_be_bytes());
    put(&mut image, 40, &(L1 as u64).to_be_bytes());
    put(&mut image, 48, &(CLUSTER as u64).to_be_bytes());
    put(&mut image, 56, &1_u32.to_be_bytes());
    put(&mut image, 96, &4_u32.to_be_bytes());
    put(&mut image, 100, &112_u32.to_be_bytes());
    put(&mut image, CLUSTER, &(REFCOUNTS as u64).to_be_bytes());
    for cluster in 0..6 {
        put(&mut image, REFCOUNTS + 2 * cluster, &1_u16.to_be_bytes());
    }
    put(&mut image, L1, &(L2 as u64 | IN_USE).to_be_bytes());
    put(&mut image, L2, &(DATA as u64 | IN_USE).to_be_bytes());
    image[DATA..].fill(0x5a);
    image
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    image[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(at: usize, value: u32) -> impl Fn(&mut Vec<u8>) {
    move |image| put(image, at, &value.to_be_bytes())
}

fn u64_at(at: usize, value: u64) -> impl Fn(&mut Vec<u8>) {
    move |image| put(image, at, &value.to_be_bytes())
}

fn extension(kind: u32, length: u32) -> impl Fn(&mut Vec<u8>) {
    move |image| {
        put(image, 112, &kind.to_be_bytes());
        put(image, 116, &length.to_be_bytes());
    }
}

/// Last verdict, on the whole file.
fn check_file(file: &File, length: u64, policy: Policy) -> io::Result<Result<ImageInfo, Refusal>> {
    Ok(examine(file, length, policy)?.map(|summary| summary.info()))
}

fn verdict(bytes: &[u8], policy: Policy) -> Result<ImageInfo, Refusal> {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(bytes).expect("written");
    check_file(&file, bytes.len() as u64, policy).expect("read")
}

fn qcow2_error(bytes: &[u8]) -> String {
    match verdict(bytes, STRICT) {
        Ok(info) => format!("{info:?}"),
        Err(Refusal::Qcow2(error)) => error.to_string(),
        Err(other) => other.to_string(),
    }
}

type Change = Box<dyn Fn(&mut Vec<u8>)>;

fn changed(change: &Change) -> Vec<u8> {
    let mut image = image();
    change(&mut image);
    image
}

/// A header that names a backing file.
fn backed(name: &'static [u8]) -> Change {
    Box::new(move |image| {
        u64_at(8, 512)(image);
        u32_at(16, u32::try_from(name.len()).expect("short"))(image);
        put(image, 512, name);
    })
}

/// Sound images of 1 GiB.
fn sound() -> Vec<(&'static str, Change)> {
    vec![
        ("version 3", Box::new(|_| {})),
        (
            "version 2",
            Box::new(|image| {
                u32_at(4, 2)(image);
                put(image, 72, &[0; 40]);
            }),
        ),
        ("shortest header", Box::new(u32_at(100, 104))),
        ("longer header", Box::new(u32_at(100, 1024))),
        (
            "zstd",
            Box::new(|image| {
                u64_at(72, 8)(image);
                image[104] = 1;
            }),
        ),
        (
            "subclusters",
            Box::new(|image| {
                u64_at(72, 16)(image);
                u32_at(36, 4)(image);
                put(image, L2 + 8, &1_u64.to_be_bytes());
            }),
        ),
        (
            "unknown compatible and autoclear features",
            Box::new(|image| {
                u64_at(80, !0)(image);
                u64_at(88, !2)(image);
            }),
        ),
        ("feature names", Box::new(extension(0x6803_f857, 96))),
        ("unknown extension", Box::new(extension(0x1234_5678, 8))),
        ("backing format without a backing file", Box::new(extension(0xe279_2aca, 5))),
        ("more L1 entries than needed", Box::new(u32_at(36, 100))),
    ]
}

/// Headers that are refused, by what is said of them. The names behind are those of the corpus that this is made after.
fn hostile() -> Vec<(&'static str, Change)> {
    vec![
        ("version 1; 2 and 3 are known", Box::new(u32_at(4, 1))), // ver1
        ("version 4; 2 and 3 are known", Box::new(u32_at(4, 4))), // ver4
        ("clusters of 2^8 bytes", Box::new(u32_at(20, 8))),       // cb8
        ("clusters of 2^22 bytes", Box::new(u32_at(20, 22))),     // cb22
        ("clusters of 2^63 bytes", Box::new(u32_at(20, 63))),     // cb63
        ("clusters of 2^4294967295 bytes", Box::new(u32_at(20, !0))),
        ("header of 72 bytes", Box::new(u32_at(100, 72))), // hlen
        ("header of 0 bytes", Box::new(u32_at(100, 0))),
        ("header of 108 bytes", Box::new(u32_at(100, 108))),
        ("header of 65544 bytes", Box::new(u32_at(100, 65_544))),
        ("header of 4294967288 bytes", Box::new(u32_at(100, !7))),
        ("a disk of 0 bytes", Box::new(u64_at(24, 0))),
        ("a disk of 1073741825 bytes", Box::new(u64_at(24, (1 << 30) + 1))),
        (
            "disk of 2199023256064 bytes; at most 2199023255552", // huge
            Box::new(|image| {
                // As many L1 entries as the size needs, and room for them.
                u64_at(24, (2 << 40) + 512)(image);
                u32_at(36, 4097)(image);
            }),
        ),
        ("L1 table of 2 entries, but the disk's size needs 17179869184", Box::new(u64_at(24, 1 << 63))), // size63
        ("L1 table of 2 entries, but the disk's size needs 3", Box::new(u64_at(24, (1 << 30) + 512))),
        ("L1 table of 0 entries", Box::new(u32_at(36, 0))),
        ("L1 table of 4194305 entries", Box::new(u32_at(36, 4_194_305))),
        ("L1 table of 4294967295 entries", Box::new(u32_at(36, !0))), // l1huge
        ("L1 table at 0x0 is", Box::new(u64_at(40, 0))),
        ("L1 table at 0x200 is", Box::new(u64_at(40, 512))),
        ("L1 table at 0x10001 is", Box::new(u64_at(40, 65_537))),
        (
            "L1 table at 0xffffffffffff0000 is",
            Box::new(|image| {
                u64_at(40, !0xffff)(image);
                u32_at(36, 8192)(image);
            }),
        ),
        ("L1 table ends beyond", Box::new(u64_at(40, LENGTH as u64))),
        ("L1 table ends beyond", Box::new(u32_at(36, 3 * 8192 + 1))),
        ("L1 table and refcount table overlap", Box::new(u64_at(40, CLUSTER as u64))),
        ("it has no refcount table", Box::new(u32_at(56, 0))),
        ("refcount table of 129 entries", Box::new(u32_at(56, 129))),
        ("refcount table of 4294967295 entries", Box::new(u32_at(56, !0))), // rctbl
        ("refcount table at 0x0 is", Box::new(u64_at(48, 0))),
        ("refcount table at 0x10100 is", Box::new(u64_at(48, 65_792))),
        ("refcount table ends beyond", Box::new(u32_at(56, 128))),
        ("reference counts of 2^7 bits", Box::new(u32_at(96, 7))),
        ("reference counts of 2^4294967295 bits", Box::new(u32_at(96, !0))),
        ("snapshot table of 65537 entries", Box::new(u32_at(60, 65_537))),
        ("snapshot table of 4294967295 entries", Box::new(u32_at(60, !0))), // snaphuge
        ("snapshot table at 0x0 is", Box::new(u32_at(60, 1))),
        ("snapshot table at 0x1 is", Box::new(u64_at(64, 1))),
        (
            "snapshot table ends beyond",
            Box::new(|image| {
                u32_at(60, 65_536)(image);
                u64_at(64, CLUSTER as u64)(image);
            }),
        ),
        (
            "refcount table and snapshot table overlap",
            Box::new(|image| {
                u32_at(60, 1)(image);
                u64_at(64, CLUSTER as u64)(image);
            }),
        ),
        ("it has a backing file", Box::new(u64_at(8, 1024))),
        ("it has a backing file", Box::new(u32_at(16, 10))), // bfoff0
        ("it has a backing file", backed(b"/etc/passwd")),   // bk_abs
        ("it is encrypted with AES", Box::new(u32_at(32, 1))),
        ("it is encrypted with LUKS", Box::new(u32_at(32, 2))),
        ("it is encrypted", Box::new(u32_at(32, !0))),
        ("it is encrypted with LUKS", Box::new(extension(0x0537_be77, 16))),
        ("it is marked as in use", Box::new(u64_at(72, 1))),  // dirty
        ("it is marked as corrupt", Box::new(u64_at(72, 2))), // corrupt
        ("its data are in another file", Box::new(u64_at(72, 4))), // df_noext
        ("its data are in another file", Box::new(u64_at(88, 2))), // raw external
        ("its data are in another file", Box::new(extension(0x4441_5441, 11))), // the bit is clear
        (
            "its data are in another file", // df, df_abs, df_json, df_fifo: whatever it is called
            Box::new(|image| {
                u64_at(72, 4)(image);
                extension(0x4441_5441, 11)(image);
                put(image, 120, b"/etc/passwd");
            }),
        ),
        (
            "its data are in another file",
            Box::new(|image| {
                extension(0xe279_2aca, 5)(image);
                put(image, 128, &0x4441_5441_u32.to_be_bytes());
            }),
        ),
        ("incompatible features 0x20 ", Box::new(u64_at(72, 32))), // unk5
        ("incompatible features 0x8000000000000000 ", Box::new(u64_at(72, 1 << 63))), // unk63
        (
            "extended L2 entries with clusters of 2^13",
            Box::new(|image| {
                u64_at(72, 16)(image);
                u32_at(20, 13)(image);
            }),
        ),
        ("L1 table of 2 entries, but the disk's size needs 4", Box::new(u64_at(72, 16))),
        ("compression method 0 ", Box::new(u64_at(72, 8))),
        (
            "compression method 0 ",
            Box::new(|image| {
                u64_at(72, 8)(image);
                u32_at(100, 104)(image);
                image[104] = 1;
            }),
        ),
        ("compression method 1 ", Box::new(|image| image[104] = 1)),
        (
            "compression method 2 ",
            Box::new(|image| {
                u64_at(72, 8)(image);
                image[104] = 2;
            }),
        ),
        ("header extension 0x1234 at 0x70 ", Box::new(extension(0x1234, 65_536))),
        ("header extension 0x1234 at 0x70 ", Box::new(extension(0x1234, !0))),
        ("header extension 0x1234 at 0x70 ", Box::new(extension(0x1234, 65_417))),
        ("header extension 0xe2792aca at 0x70 ", Box::new(extension(0xe279_2aca, 16))),
        ("its bitmaps are broken: their extension", Box::new(extension(0x2385_2875, 23))),
        ("its bitmaps are broken: there are none", Box::new(extension(0x2385_2875, 24))),
        ("it is an ISO image too", Box::new(|image| put(image, 0x8001, b"CD001"))), // poly
        ("it is an ISO image too", Box::new(|image| put(image, 0x8801, b"NSR02"))),
        ("it is a disk with a boot record too", Box::new(|image| put(image, 510, b"\x55\xaa"))), // poly
        ("header extension 0x0 at 0x70 ", Box::new(extension(0, 65_417))),
        ("it is a tar archive too", Box::new(|image| put(image, 257, b"ustar"))),
    ]
}

#[test]
fn plain_images_are_taken() {
    let taken = ImageInfo { format: DiskFormat::Qcow2, virtual_size: 1 << 30 };
    for (what, change) in sound() {
        let image = changed(&change);
        assert_eq!(verdict(&image, STRICT).expect(what), taken, "{what}");
        assert!(check_head(&image[..HEAD], Some(LENGTH as u64), false, false, STRICT).is_ok(), "{what}");
        assert!(check_head(&image[..HEAD], None, false, true, STRICT).is_ok(), "{what}, called a web page");
        exercise(&image);
    }
}

#[test]
fn hostile_headers_are_refused() {
    for (expected, change) in hostile() {
        let image = changed(&change);
        let error = qcow2_error(&image);
        assert!(error.starts_with(expected), "expected `{expected}`, got `{error}`");
        // The beginning alone is enough to stop a download.
        let early = check_head(&image[..HEAD], Some(LENGTH as u64), false, false, STRICT);
        assert!(early.is_err(), "{expected}: not seen early");
        // Nor is it another thing.
        for expected in [WITH_RAW.into(), Expected { declared: Some(DiskFormat::Raw), ..WITH_RAW.into() }] {
            let early = check_head(&image[..HEAD], Some(LENGTH as u64), false, false, expected);
            assert!(early.is_err(), "{expected:?}: {error}");
        }
    }
}

#[test]
fn a_file_that_ends_early_is_refused() {
    let image = image();
    for length in [4, 5, 71, 72, 103, 104, 512, CLUSTER, L1, L1 + 15, L1 + 16] {
        assert!(verdict(&image[..length], STRICT).is_err(), "{length}"); // magic_only, trunc
        assert!(verdict(&image[..length], WITH_RAW).is_err(), "{length}: the mark of qcow2 is never raw");
        let head = &image[..length.min(HEAD)];
        assert!(check_head(head, None, length < HEAD, false, WITH_RAW).is_err() || length >= CLUSTER, "{length}");
    }
    assert!(verdict(&image[..DATA + 1], STRICT).is_ok(), "the last cluster need not be whole");
    assert!(verdict(&image[..DATA], STRICT).is_err(), "but there must be something of it");
}

#[test]
fn only_parents_by_hash_or_name_are_taken() {
    let hash = b"sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    let named = |name: &str, version: &str| ParentRef::Named { name: name.into(), version: version.into() };
    let taken: [(&[u8], ParentRef); 5] = [
        (hash, ParentRef::Hash(std::str::from_utf8(hash).expect("text").parse().expect("a hash"))),
        (b"./el7-base:v1", named("el7-base", "v1")),
        (b"el7-base:v1", named("el7-base", "v1")),
        (b"Fedora_40:2024.1", named("Fedora_40", "2024.1")),
        (b"a:b", named("a", "b")),
    ];
    for (name, reference) in taken {
        let found = examine(&&changed(&backed(name))[..], LENGTH as u64, LAYERED).expect("read").expect("taken");
        assert_eq!(found.parent(), Some(&Parent { reference, format: None }));
    }
    let refused: [&[u8]; 36] = [
        b"/etc/passwd",
        b"etc/passwd",
        b"../../etc/passwd",
        b"./base.qcow2",
        b"base.qcow2",
        b"json:{\"driver\":\"file\",\"filename\":\"/etc/passwd\"}",
        b"json:x",
        b"nbd:localhost",
        b"nbd:localhost:10809",
        b"NBD:localhost",
        b"nbd://127.0.0.1/x",
        b"nbd:unix:/run/x",
        b"http://127.0.0.1/x",
        b"https:x",
        b"file:passwd",
        b"./file:passwd",
        b"fat:rw",
        b"ssh:x",
        b"host_device:x",
        b"sha256:aaaa",
        b"sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        b"sha512:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"sha1:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"md5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"./sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        b"a:",
        b":b",
        b"a:b:c",
        b"a/b:c",
        b"a:../c",
        b".:x",
        b"..:x",
        b"-a:x",
        b"a:b\0",
        b"a:b c",
        b"\xff:\xfe",
    ];
    for name in refused {
        let image = changed(&backed(name));
        let refusal = examine(&&image[..], LENGTH as u64, LAYERED).expect("read").expect_err("refused");
        let foreign = matches!(refusal, Refusal::Qcow2(Qcow2Error::ForeignBackingFile(_)));
        assert!(foreign, "{}: {refusal:?}", name.escape_ascii());
        assert!(check_head(&image[..HEAD], None, false, false, LAYERED).is_err());
    }
}

#[test]
fn where_a_parents_name_is_and_its_format_are_checked() {
    let judged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut image = changed(&backed(b"base:v1"));
        change(&mut image);
        match examine(&&image[..], LENGTH as u64, LAYERED).expect("read") {
            Ok(found) => format!("{:?}", found.parent().map(|parent| parent.format)),
            Err(Refusal::Qcow2(error)) => error.to_string(),
            Err(other) => other.to_string(),
        }
    };
    let format = |name: &'static [u8]| {
        move |image: &mut Vec<u8>| {
            extension(0xe279_2aca, u32::try_from(name.len()).expect("short"))(image);
            put(image, 120, name);
        }
    };
    assert_eq!(judged(&format(b"qcow2")), "Some(Some(Qcow2))");
    assert_eq!(judged(&format(b"raw")), "Some(Some(Raw))");
    assert_eq!(judged(&format(b"")), "Some(None)");
    assert_eq!(judged(&format(b"vmdk")), "its backing file is of the format `vmdk`; raw and qcow2 are known");
    let no_name = "its header names no sound backing file: ";
    for (what, change) in [
        ("bf1024", Box::new(u32_at(16, 1024)) as Change),
        ("bfoffbig", Box::new(u64_at(8, CLUSTER as u64))),
        ("bfoffbig", Box::new(u64_at(8, !0))),
        ("leaves the cluster", Box::new(u64_at(8, CLUSTER as u64 - 6))),
        ("in the header", Box::new(u64_at(8, 104))),
        ("no offset", Box::new(u64_at(8, 0))),
        ("no length", Box::new(u32_at(16, 0))),
    ] {
        let error = judged(&change);
        assert!(error.starts_with(no_name), "{what}: {error}");
    }
    // Extensions end where the name begins, as for QEMU.
    let error = judged(&|image| extension(0x1234, 400)(image));
    assert!(error.starts_with("header extension 0x1234 at 0x70 "), "{error}");
}

#[test]
fn all_that_is_found_is_told() {
    let mut image = image();
    u64_at(80, 1)(&mut image);
    u64_at(72, 8)(&mut image);
    image[104] = 1;
    let found = examine(&&image[..], LENGTH as u64, STRICT).expect("read").expect("taken");
    insta::assert_debug_snapshot!(found);
}
