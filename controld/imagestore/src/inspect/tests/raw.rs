//! What is no qcow2.

use super::*;

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
