//! What is no qcow2.

use super::*;

fn declared_as(format: DiskFormat, bytes: &[u8]) -> Result<DiskFormat, String> {
    let expected = Expected { declared: Some(format), ..WITH_RAW.into() };
    exercise(bytes);
    let found = examine(&bytes, bytes.len() as u64, expected).expect("read");
    found.map(|found| found.format).map_err(|error| error.to_string())
}

/// A disk with a boot record that has these partitions.
fn partitioned(partitions: &[[u8; 16]]) -> Vec<u8> {
    let mut disk = vec![0; 65_536];
    for (index, partition) in partitions.iter().enumerate() {
        put(&mut disk, 446 + 16 * index, partition);
    }
    put(&mut disk, 510, b"\x55\xaa");
    disk
}

const LINUX: [u8; 16] = [0x80, 0, 2, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0];
const GPT: [u8; 16] = [0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
const NONE: [u8; 16] = [0; 16];

#[test]
fn a_raw_disk_is_what_it_is_declared_as() {
    assert_eq!(declared_as(DiskFormat::Raw, &[7; 512]), Ok(DiskFormat::Raw));
    assert_eq!(declared_as(DiskFormat::Qcow2, &image()), Ok(DiskFormat::Qcow2));
    assert_eq!(
        declared_as(DiskFormat::Qcow2, &[7; 512]),
        Err("not a qcow2 image (it begins with `07 07 07 07 07 07 07 07`)".into())
    );
    assert_eq!(declared_as(DiskFormat::Raw, &image()), Err("declared as a raw disk, but it is a qcow2 image".into()));
    let not_allowed = Expected { declared: Some(DiskFormat::Raw), ..STRICT.into() };
    assert!(matches!(check_head(&[7; 512], None, false, false, not_allowed), Err(Refusal::RawNotAllowed)));
}

#[test]
fn a_disk_that_is_an_iso_too_must_be_declared_raw() {
    let mut iso = partitioned(&[LINUX]);
    put(&mut iso, 0x8001, b"CD001");
    assert_eq!(declared_as(DiskFormat::Raw, &iso), Ok(DiskFormat::Raw));
    assert!(verdict(&iso, WITH_RAW).is_err(), "nobody asked");
    iso[510] = 0;
    assert_eq!(declared_as(DiskFormat::Raw, &iso), Err("declared as a raw disk, but it is an ISO image".into()));
}

#[test]
fn a_boot_record_has_a_table_that_makes_sense() {
    for partitions in [&[LINUX][..], &[GPT], &[LINUX, LINUX], &[NONE, LINUX]] {
        assert_eq!(declared_as(DiskFormat::Raw, &partitioned(partitions)), Ok(DiskFormat::Raw), "{partitions:?}");
    }
    let with = |mut partition: [u8; 16], at: usize, byte: u8| {
        partition[at] = byte;
        partition
    };
    for (partitions, fault) in [
        (vec![], "it has no partition"),
        (vec![with(LINUX, 0, 1)], "a partition has an invalid boot flag"),
        (vec![LINUX, with(NONE, 0, 0x7f)], "a partition has an invalid boot flag"),
        (vec![GPT, LINUX], "there are other partitions beside a GPT's"),
        (vec![NONE, GPT], "there are other partitions beside a GPT's"),
        (vec![with(GPT, 8, 2)], "a GPT's partition begins at the wrong place"),
        (vec![with(GPT, 2, 1)], "a GPT's partition begins at the wrong place"),
    ] {
        let expected = format!("raw image with a broken partition table: {fault}");
        let disk = partitioned(&partitions);
        assert_eq!(declared_as(DiskFormat::Raw, &disk), Err(expected));
        assert!(check_head(&disk, None, false, false, WITH_RAW).is_err(), "seen early");
    }
    // File systems have the same mark, and code where the table would be.
    let mut fat = partitioned(&[with(NONE, 0, 0x7f)]);
    fat[0x10] = 2;
    fat[0x15] = 0xf8;
    let mut ntfs = partitioned(&[with(NONE, 0, 0x7f)]);
    put(&mut ntfs, 3, b"NTFS    ");
    for disk in [fat, ntfs] {
        assert_eq!(declared_as(DiskFormat::Raw, &disk), Ok(DiskFormat::Raw));
    }
}

#[test]
fn a_qcow2_image_that_ends_as_another_format_is_refused() {
    for (mark, format) in [(&b"conectix"[..], "it is a fixed VHD image too"), (b"koly", "it is a DMG image too")] {
        let mut image = image();
        put(&mut image, LENGTH - 512, mark);
        assert_eq!(qcow2_error(&image), format);
    }
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
        (at(65_536 - 511, b"conectix"), "a fixed VHD image"),
        (at(65_536 - 512, b"koly"), "a DMG image"),
        (at(65_536 - 1000, b"koly"), "a DMG image"),
        (sector(b"\xbe\xba\xfe\xca\0\0\0\0"), "a VMDK (SE sparse) image"),
        (sector(b"SKUL\xba\xbe\0\x02"), "a LUKS volume"),
        (sector(b"OOOM\0"), "a COW image"),
        (sector(b"version=1\nRW 1 FLAT \"/etc/passwd\" 0\n"), "a VMDK descriptor"),
        (sector(b"# x\r\n \r\nversion=3\r\n"), "a VMDK descriptor"),
        (at(0x8801, b"NSR02"), "an ISO image"),
        (at(0x9001, b"BEA01"), "an ISO image"),
        (at(0x40, b"\x7f\x10\xda\xbe"), "a VDI image"),
        (at(0x8001, b"CD001"), "an ISO image"),
        (at(257, b"ustar"), "a tar archive"),
        (sector(b"PK\x03\x04"), "a ZIP archive"),
        (sector(b"\x1f\x8b\x08"), "compressed by gzip"),
        (sector(b"\xfd7zXZ\0"), "compressed by xz"),
        (sector(b"\x28\xb5\x2f\xfd"), "compressed by zstd"),
        (sector(b"<!DOCTYPE html><html>"), "a web page"),
        (sector(b"\xef\xbb\xbf \r\n<HTML>"), "a web page"),
    ];
    for (bytes, expected) in cases {
        let error = verdict(&bytes, WITH_RAW).expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(verdict(&bytes, STRICT).is_err(), "{expected}");
        for declared in [DiskFormat::Raw, DiskFormat::Qcow2] {
            assert!(declared_as(declared, &bytes).is_err(), "{expected}, declared as {declared}");
        }
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
