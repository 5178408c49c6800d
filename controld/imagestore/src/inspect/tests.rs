use std::io::Write;
use std::process::Command;

use proptest::prelude::*;

use super::*;

const STRICT: Policy = Policy { allow_raw: false, max_virtual_size: 2 << 40 };
const WITH_RAW: Policy = Policy { allow_raw: true, max_virtual_size: 2 << 40 };
const CLUSTER: usize = 65_536;
/// Length of the image below: header, refcount table, refcounts, L1.
const LENGTH: usize = 4 * CLUSTER;

/// A sound version 3 image of 1 GiB, with no data.
fn image() -> Vec<u8> {
    let mut image = vec![0; LENGTH];
    image[..4].copy_from_slice(&qcow2::MAGIC);
    put(&mut image, 4, &3_u32.to_be_bytes());
    put(&mut image, 20, &16_u32.to_be_bytes());
    put(&mut image, 24, &(1_u64 << 30).to_be_bytes());
    put(&mut image, 36, &2_u32.to_be_bytes());
    put(&mut image, 40, &(3 * CLUSTER as u64).to_be_bytes());
    put(&mut image, 48, &(CLUSTER as u64).to_be_bytes());
    put(&mut image, 56, &1_u32.to_be_bytes());
    put(&mut image, 96, &4_u32.to_be_bytes());
    put(&mut image, 100, &112_u32.to_be_bytes());
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

#[test]
fn plain_images_are_taken() {
    let taken = ImageInfo { format: DiskFormat::Qcow2, virtual_size: 1 << 30 };
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let changes: [(&str, Change); 9] = [
        ("version 3", Box::new(|_| {})),
        (
            "version 2",
            Box::new(|image| {
                u32_at(4, 2)(image);
                put(image, 72, &[0; 40]);
            }),
        ),
        ("shortest header", Box::new(u32_at(100, 104))),
        (
            "zstd",
            Box::new(|image| {
                u64_at(72, 8)(image);
                image[104] = 1;
            }),
        ),
        (
            "unknown compatible and autoclear features",
            Box::new(|image| {
                u64_at(80, !0)(image);
                u64_at(88, !2)(image);
            }),
        ),
        ("feature names", Box::new(extension(0x6803_f857, 100))),
        ("unknown extension", Box::new(extension(0x1234_5678, 8))),
        (
            "snapshots",
            Box::new(|image| {
                u32_at(60, 2)(image);
                u64_at(64, CLUSTER as u64)(image);
            }),
        ),
        ("partition table in the header", Box::new(|image| put(image, 510, b"\x55\xaa"))),
    ];
    for (what, change) in changes {
        let mut image = image();
        change(&mut image);
        assert_eq!(verdict(&image, STRICT).expect(what), taken, "{what}");
        assert!(check_head(&image[..HEAD], Some(LENGTH as u64), false, false, STRICT).is_ok(), "{what}");
        assert!(check_head(&image[..HEAD], None, false, true, STRICT).is_ok(), "{what}, called a web page");
    }
}

#[test]
fn hostile_headers_are_refused() {
    type Change = Box<dyn Fn(&mut Vec<u8>)>;
    let cases: Vec<(&str, Change)> = vec![
        ("version 1; 2 and 3 are known", Box::new(u32_at(4, 1))),
        ("version 4; 2 and 3 are known", Box::new(u32_at(4, 4))),
        ("clusters of 2^8 bytes", Box::new(u32_at(20, 8))),
        ("clusters of 2^22 bytes", Box::new(u32_at(20, 22))),
        ("clusters of 2^4294967295 bytes", Box::new(u32_at(20, !0))),
        ("header of 72 bytes", Box::new(u32_at(100, 72))),
        ("header of 108 bytes", Box::new(u32_at(100, 108))),
        ("header of 65544 bytes", Box::new(u32_at(100, 65_544))),
        ("header of 4294967288 bytes", Box::new(u32_at(100, !7))),
        ("a disk of no bytes", Box::new(u64_at(24, 0))),
        (
            "disk of 2199023255553 bytes; at most 2199023255552",
            Box::new(|image| {
                // As many L1 entries as the size needs, and room for them.
                u64_at(24, (2 << 40) + 1)(image);
                u32_at(36, 4097)(image);
            }),
        ),
        ("L1 table of 2 entries, but the disk's size needs 17179869184", Box::new(u64_at(24, 1 << 63))),
        ("L1 table of 2 entries, but the disk's size needs 3", Box::new(u64_at(24, (1 << 30) + 1))),
        ("L1 table of 0 entries", Box::new(u32_at(36, 0))),
        ("L1 table of 4194305 entries", Box::new(u32_at(36, 4_194_305))),
        ("L1 table of 4294967295 entries", Box::new(u32_at(36, !0))),
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
        ("L1 table ends beyond", Box::new(u32_at(36, 8193))),
        ("it has no refcount table", Box::new(u32_at(56, 0))),
        ("refcount table of 129 entries", Box::new(u32_at(56, 129))),
        ("refcount table of 4294967295 entries", Box::new(u32_at(56, !0))),
        ("refcount table at 0x0 is", Box::new(u64_at(48, 0))),
        ("refcount table at 0x10100 is", Box::new(u64_at(48, 65_792))),
        ("refcount table ends beyond", Box::new(u32_at(56, 128))),
        ("reference counts of 2^7 bits", Box::new(u32_at(96, 7))),
        ("snapshot table of 65537 entries", Box::new(u32_at(60, 65_537))),
        ("snapshot table at 0x0 is", Box::new(u32_at(60, 1))),
        (
            "snapshot table ends beyond",
            Box::new(|image| {
                u32_at(60, 65_536)(image);
                u64_at(64, CLUSTER as u64)(image);
            }),
        ),
        ("it has a backing file", Box::new(u64_at(8, 1024))),
        ("it has a backing file", Box::new(u32_at(16, 10))),
        (
            "it has a backing file",
            Box::new(|image| {
                u64_at(8, 512)(image);
                u32_at(16, 11)(image);
                put(image, 512, b"/etc/passwd");
            }),
        ),
        ("it is encrypted", Box::new(u32_at(32, 1))),
        ("it is encrypted", Box::new(u32_at(32, 2))),
        ("it is encrypted", Box::new(extension(0x0537_be77, 16))),
        ("it is marked as in use", Box::new(u64_at(72, 1))),
        ("it is marked as corrupt", Box::new(u64_at(72, 2))),
        ("its data are in another file", Box::new(u64_at(72, 4))),
        ("its data are in another file", Box::new(u64_at(88, 2))),
        ("its data are in another file", Box::new(extension(0x4441_5441, 11))),
        (
            "its data are in another file",
            Box::new(|image| {
                extension(0xe279_2aca, 5)(image);
                put(image, 128, &0x4441_5441_u32.to_be_bytes());
            }),
        ),
        ("incompatible features 0x10 ", Box::new(u64_at(72, 16))),
        ("incompatible features 0x20 ", Box::new(u64_at(72, 32))),
        ("incompatible features 0x8000000000000000 ", Box::new(u64_at(72, 1 << 63))),
        ("compression method 0 ", Box::new(u64_at(72, 8))),
        (
            "compression method 0 ",
            Box::new(|image| {
                u64_at(72, 8)(image);
                u32_at(100, 104)(image);
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
        ("it is an ISO image too", Box::new(|image| put(image, 0x8001, b"CD001"))),
    ];
    for (expected, change) in cases {
        let mut image = image();
        change(&mut image);
        let error = qcow2_error(&image);
        assert!(error.starts_with(expected), "expected `{expected}`, got `{error}`");
        // The beginning alone is enough to stop a download.
        let early = check_head(&image[..HEAD], Some(LENGTH as u64), false, false, STRICT);
        assert!(early.is_err(), "{expected}: not seen early");
    }
}

#[test]
fn a_file_that_ends_early_is_refused() {
    let image = image();
    for length in [4, 5, 71, 72, 103, 104, 512, CLUSTER, CLUSTER + 1, 3 * CLUSTER, 3 * CLUSTER + 15] {
        assert!(verdict(&image[..length], STRICT).is_err(), "{length}");
        assert!(verdict(&image[..length], WITH_RAW).is_err(), "{length}: the mark of qcow2 is never raw");
        let head = &image[..length.min(HEAD)];
        assert!(check_head(head, None, length < HEAD, false, WITH_RAW).is_err() || length >= CLUSTER, "{length}");
    }
    assert!(verdict(&image[..3 * CLUSTER + 16], STRICT).is_ok(), "the L1 table just ends with the file");
}

#[test]
fn other_formats_are_refused_by_name() {
    let sector = |start: &[u8]| {
        let mut bytes = start.to_vec();
        bytes.resize(64 * 1024, 0);
        bytes
    };
    let at = |place: usize, mark: &[u8]| {
        let mut bytes = sector(b"");
        put(&mut bytes, place, mark);
        bytes
    };
    let cases = [
        (sector(b"KDMV\x01"), "a VMDK image"),
        (sector(b"COWD"), "a VMDK (ESX sparse) image"),
        (sector(b"# Disk DescriptorFile\nversion=1\n"), "a VMDK descriptor"),
        (sector(b"\n# x\n  version=1\nRW 63 FLAT \"/etc/passwd\" 0\n"), "a VMDK descriptor"),
        (sector(b"conectix"), "a VHD image"),
        (at(65_536 - 512, b"conectix"), "a fixed VHD image"),
        (sector(b"vhdxfile"), "a VHDX image"),
        (sector(b"QED\0"), "a QED image"),
        (sector(b"LUKS\xba\xbe\0\x02"), "a LUKS volume"),
        (sector(b"WithoutFreeSpace"), "a Parallels image"),
        (sector(b"WithouFreSpacExt"), "a Parallels image"),
        (sector(b"Bochs Virtual HD Image"), "a Bochs image"),
        (sector(b"#!/bin/sh\n#V2.0 Format\n"), "a cloop image"),
        (at(65_536 - 512, b"koly"), "a DMG image"),
        (at(0x40, b"\x7f\x10\xda\xbe"), "a VDI image"),
        (at(0x8001, b"CD001"), "an ISO image"),
        (at(257, b"ustar"), "a tar archive"),
        (sector(b"PK\x03\x04"), "a ZIP archive"),
        (sector(b"\x1f\x8b\x08"), "image is compressed by gzip"),
        (sector(b"\xfd7zXZ\0"), "image is compressed by xz"),
        (sector(b"\x28\xb5\x2f\xfd"), "image is compressed by zstd"),
        (sector(b"<!DOCTYPE html><html>"), "server sent a web page"),
        (sector(b"\xef\xbb\xbf \r\n<HTML>"), "server sent a web page"),
    ];
    for (bytes, expected) in cases {
        let error = verdict(&bytes, WITH_RAW).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(verdict(&bytes, STRICT).is_err(), "{expected}");
    }
}

#[test]
fn raw_needs_leave_and_whole_sectors() {
    let bytes = vec![7; 8 * 512];
    assert_eq!(
        verdict(&bytes, STRICT).expect_err("refused").to_string(),
        "not a qcow2 image (it begins with `07 07 07 07 07 07 07 07`); raw images are taken only if `allow_raw` is set"
    );
    assert_eq!(verdict(&bytes, WITH_RAW).expect("taken"), ImageInfo { format: DiskFormat::Raw, virtual_size: 4096 });
    assert!(matches!(verdict(&bytes[1..], WITH_RAW), Err(Refusal::Sectors { length: 4095 })));
    assert!(matches!(verdict(&[], WITH_RAW), Err(Refusal::Empty)));
    let small = Policy { max_virtual_size: 4095, ..WITH_RAW };
    assert!(matches!(verdict(&bytes, small), Err(Refusal::TooLarge { size: 4096, limit: 4095 })));
    assert!(matches!(check_head(&bytes, None, false, true, WITH_RAW), Err(Refusal::WebPage)), "called a web page");
}

/// Everything that `qemu-img` makes as plain images must pass, and what stands on other files must not.
#[test]
fn real_images_are_judged_right() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| {
        let done = Command::new("qemu-img").args(arguments).current_dir(dir.path()).output();
        let done = done.expect("qemu-img; install the package `qemu-utils`");
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    let judged = |name: &str| {
        let file = File::open(dir.path().join(name)).expect("made");
        let length = file.metadata().expect("there").len();
        let mut head = vec![0; HEAD.min(usize::try_from(length).expect("small"))];
        file.read_exact_at(&mut head, 0).expect("read");
        let early = check_head(&head, Some(length), false, false, STRICT).map_err(|error| format!("{error:?}"));
        let late = check_file(&file, length, STRICT).expect("read").map_err(|error| format!("{error:?}"));
        assert_eq!(early.is_ok(), late.is_ok(), "{name}: {early:?} {late:?}");
        late
    };
    for (number, options) in [
        "compat=0.10",
        "compat=1.1",
        "cluster_size=512",
        "cluster_size=2M",
        "compression_type=zstd",
        "lazy_refcounts=on",
        "refcount_bits=1",
        "refcount_bits=64",
        "preallocation=metadata",
    ]
    .iter()
    .enumerate()
    {
        let name = format!("plain{number}.qcow2");
        run(&["create", "-q", "-f", "qcow2", "-o", options, &name, "1G"]);
        assert_eq!(judged(&name), Ok(ImageInfo { format: DiskFormat::Qcow2, virtual_size: 1 << 30 }), "{options}");
    }
    run(&["snapshot", "-c", "one", "plain1.qcow2"]);
    run(&["bitmap", "--add", "plain1.qcow2", "b"]);
    assert!(judged("plain1.qcow2").is_ok(), "snapshots and bitmaps");

    run(&["create", "-q", "-f", "qcow2", "-b", "plain0.qcow2", "-F", "qcow2", "backed.qcow2"]);
    assert!(judged("backed.qcow2").is_err_and(|error| error.contains("BackingFile")));
    run(&["create", "-q", "-f", "qcow2", "-o", "data_file=data.raw", "datafile.qcow2", "1M"]);
    assert!(judged("datafile.qcow2").is_err_and(|error| error.contains("DataFile")));
    run(&["create", "-q", "-f", "qcow2", "-o", "extended_l2=on", "extl2.qcow2", "1M"]);
    assert!(judged("extl2.qcow2").is_err_and(|error| error.contains("Features(16)")));
    run(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "--object",
        "secret,id=s,data=x",
        "-o",
        "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10",
        "luks.qcow2",
        "1M",
    ]);
    assert!(judged("luks.qcow2").is_err_and(|error| error.contains("Encrypted")));
    for format in ["vmdk", "vhdx", "vdi", "qed", "parallels"] {
        run(&["create", "-q", "-f", format, format, "16M"]);
        assert!(judged(format).is_err_and(|error| error.contains("Format {")), "{format}");
    }
}

proptest! {
    #[test]
    fn any_header_is_judged_without_panic(
        changes in prop::collection::vec((0_usize..600, prop::collection::vec(any::<u8>(), 1..9)), 0..6),
        length in 0_usize..LENGTH,
    ) {
        let mut image = image();
        for (at, bytes) in changes {
            put(&mut image, at, &bytes);
        }
        image.truncate(length.max(8));
        let _ = check_head(&image, None, false, false, WITH_RAW);
        let footer = &image[image.len() - image.len().min(FOOTER)..];
        if let Ok(info) = judge(&image, footer, image.len() as u64, WITH_RAW) {
            prop_assert!(info.virtual_size > 0 && info.virtual_size <= WITH_RAW.max_virtual_size);
        }
    }
}
