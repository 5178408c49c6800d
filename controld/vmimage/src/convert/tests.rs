//! Images made by `qemu-img`, and hostile ones made of them. [`tables`] has what lies behind the header, [`cut`] what is
//! not all there, [`twofold`] what could
//! be read in two ways, [`time`] who does not wait.

mod cut;
mod tables;
mod time;
mod twofold;

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use tempfile::{NamedTempFile, TempDir, tempfile};

use super::*;
use crate::inspect::ImageInfo;

const DISK: u64 = 8 << 20;
const QEMU_IMG: &str = "/usr/bin/qemu-img";
/// Has to be there, for what is refused must be refused before anything is run.
const NO_PROGRAM: &str = "/nowhere/qemu-img";

fn qemu_img(dir: &Path, arguments: &[&str]) {
    let done = Command::new(QEMU_IMG).args(arguments).current_dir(dir).output();
    let done = done.expect("qemu-img; install the package `qemu-utils`");
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A disk with something in it, in a format and with options.
fn made(format: ForeignFormat, options: &str) -> (TempDir, Vec<u8>) {
    made_of(&disk(), format, options)
}

fn made_of(disk: &[u8], format: ForeignFormat, options: &str) -> (TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("disk"), disk).expect("written");
    let mut arguments = vec!["convert", "-f", "raw", "-O", format.driver(), "disk", "image"];
    if !options.is_empty() {
        arguments.extend(["-o", options]);
    }
    qemu_img(dir.path(), &arguments);
    let image = std::fs::read(dir.path().join("image")).expect("made");
    (dir, image)
}

fn disk() -> Vec<u8> {
    let mut disk = vec![0; usize::try_from(DISK).expect("small")];
    disk[3 << 20..4 << 20].fill(0x5a);
    disk
}

async fn convert(program: &str, format: ForeignFormat, image: &[u8]) -> (File, Result<Summary, ConvertError>) {
    let mut input = tempfile().expect("a file");
    input.write_all(image).expect("written");
    let output = NamedTempFile::new().expect("a file").into_file();
    let limits = ConvertLimits { time: Duration::from_secs(120), ..ConvertLimits::default() };
    let converted = Converter::new(program, limits).convert(format, &input, &output).await;
    (output, converted)
}

#[tokio::test]
async fn every_format_is_converted() {
    for (format, options) in [
        (ForeignFormat::Vmdk, ""),
        (ForeignFormat::Vmdk, "subformat=streamOptimized"),
        (ForeignFormat::Vhd, "force_size=on"),
        (ForeignFormat::Vhd, "force_size=on,subformat=fixed"),
        (ForeignFormat::Vhdx, ""),
        (ForeignFormat::Vhdx, "subformat=fixed"),
        (ForeignFormat::Vdi, ""),
        (ForeignFormat::Vdi, "static=on"),
    ] {
        let (dir, image) = made(format, options);
        let (output, converted) = convert(QEMU_IMG, format, &image).await;
        let summary = converted.unwrap_or_else(|error| panic!("{format} {options}: {error:?}"));
        assert_eq!(summary.info(), ImageInfo { format: DiskFormat::Qcow2, virtual_size: DISK }, "{format} {options}");
        let mut result = vec![0; usize::try_from(output.metadata().expect("there").len()).expect("small")];
        output.read_exact_at(&mut result, 0).expect("read");
        std::fs::write(dir.path().join("result"), result).expect("written");
        qemu_img(dir.path(), &["compare", "-f", "qcow2", "-F", "raw", "result", "disk"]);
    }
}

async fn fault(format: ForeignFormat, image: &[u8]) -> String {
    match convert(NO_PROGRAM, format, image).await.1 {
        Err(error @ ConvertError::Refused { .. }) => {
            assert_eq!(error.kind(), ErrorKind::Refused);
            error.to_string()
        }
        other => panic!("{format}: not refused before anything is run: {other:?}"),
    }
}

/// Each change alone makes an image that is refused, with this reason.
async fn refused(format: ForeignFormat, options: &str, changes: &[(usize, &[u8], &str)]) {
    let (_dir, image) = made(format, options);
    format.check(&&image[..], image.len() as u64, 2 << 40).expect("sound as it was made");
    for (at, bytes, expected) in changes {
        let mut image = image.clone();
        image[*at..at + bytes.len()].copy_from_slice(bytes);
        let fault = fault(format, &image).await;
        assert_eq!(fault, format!("declared as a {format} image, but {expected}"));
    }
    for length in [0, 1, 64, 511, 512] {
        let cut = &image[..length];
        assert!(format.check(&cut, length as u64, 2 << 40).is_err(), "{format} {options}: cut at {length}");
    }
}

#[tokio::test]
async fn what_is_no_sparse_vmdk_is_refused() {
    let no_file = "it is not a single sparse file; descriptors that name other files are not taken";
    refused(
        ForeignFormat::Vmdk,
        "",
        &[
            (0, b"COWD", no_file),
            (0, b"QFI\xfb", no_file),
            (4, &[4], "it is of an unknown version"),
            (12, &[0; 8], "its disk has no bytes"),
            (12, &[0x80, 0, 0, 0, 1], "its disk of 2199023321088 bytes is too large"),
            (12, &[0xff; 8], "its disk is too large"),
            (20, &[3], "its grains have an impossible size"),
            (28, &[2], "its descriptor is in an impossible place"),
            (36, &[0], "its descriptor is in an impossible place"),
            (36, &[0xff; 8], "its descriptor is in an impossible place"),
            (44, &[0xff; 4], "its tables have an impossible size"),
            (56, &[0xff; 7], "its directory is outside of the file"),
            (56, &[0xff; 8], "its footer is broken"),
            (73, b"\r", "it was damaged by a transfer as text"),
        ],
    )
    .await;
    for descriptor in [
        "# Disk DescriptorFile\nversion=1\ncreateType=\"monolithicFlat\"\nRW 1 FLAT \"/etc/passwd\" 0\n",
        "version=1\nRW 1 FLAT \"fifo\" 0\n",
    ] {
        assert!(fault(ForeignFormat::Vmdk, descriptor.as_bytes()).await.ends_with(no_file));
    }
    for options in ["subformat=monolithicFlat", "subformat=twoGbMaxExtentSparse", "subformat=twoGbMaxExtentFlat"] {
        let (_dir, image) = made(ForeignFormat::Vmdk, options);
        assert!(fault(ForeignFormat::Vmdk, &image).await.ends_with(no_file), "{options}");
    }
}

const EXTENT: &str = "RW 16384 SPARSE \"image\"";

#[tokio::test]
async fn a_descriptor_that_names_another_file_is_refused() {
    let (_dir, image) = made(ForeignFormat::Vmdk, "");
    let room = 512..21 * 512;
    let text = std::str::from_utf8(&image[room.clone()]).expect("text").trim_end_matches('\0').to_owned();
    let with = |text: String| {
        let mut image = image.clone();
        image[room.clone()].fill(0);
        image[512..512 + text.len()].copy_from_slice(text.as_bytes());
        image
    };
    let other_file = "its descriptor names another file";
    let path = "its descriptor names its extent with a path; \
                make it anew without, or convert it with qemu-img if it is your own";
    let ascii = "its descriptor has more than ASCII outside of comments and quotes";
    for (was, is, expected) in [
        (EXTENT, "RW 16384 FLAT \"/etc/passwd\" 0", other_file),
        (EXTENT, "RW 16384 SPARSE \"/etc/passwd\"", path),
        (EXTENT, "RW 16384 SPARSE \"..\\x\"", path),
        (EXTENT, "RW 16384 SPARSE \"nbd:x\"", path),
        (EXTENT, "RW 16384 SPARSE \"\u{e4}/x\"", path),
        (EXTENT, "RW 16384 SPARSE \"a\" \"b\"", other_file),
        (EXTENT, "\u{a0}RW 16384 FLAT \"fifo\" 0", ascii),
        (EXTENT, "RW 16384 SPARSE image\u{e4}", ascii),
        ("#DDB", "\u{a0}#DDB", ascii),
        ("#DDB", "ddb.\u{e4} = \"1\"", ascii),
        ("#DDB", "#\u{e4}parentFileNameHint=\"/etc/passwd\"", "its descriptor names a parent"),
        (EXTENT, "RW 16384 SPARSE \"\"", other_file),
        (EXTENT, "RW 16384 VMFS \"image\"", other_file),
        (EXTENT, "RW 16384 ZERO", other_file),
        (EXTENT, "rdonly 16384 FLAT \"fifo\" 0", other_file),
        (EXTENT, "RW  16384 SPARSE \"image\"", other_file),
        (EXTENT, "RW\t16384 FLAT \"fifo\" 0", "its descriptor is not understood"),
        (EXTENT, "", "its descriptor names no extent"),
        (EXTENT, "RW 1 SPARSE \"a\"\nRW 1 SPARSE \"b\"", "its descriptor names more than one extent"),
        ("monolithicSparse", "monolithicFlat", "it is not a single sparse file"),
        ("monolithicSparse", "custom", "it is not a single sparse file"),
        ("createType", "createtypo", "its descriptor is not understood"),
        ("parentCID=ffffffff", "parentCID=00000000", "it stands on another image"),
        ("parentCID=ffffffff", "", "its descriptor does not say that it has no parent"),
        ("parentCID=ffffffff", "parentCID=ffffffff\nparentCID=ffffffff", "its descriptor says something twice"),
        ("#DDB", "parentFileNameHint=\"/etc/passwd\"", "its descriptor names a parent"),
        ("#DDB", "#parentFileNameHint=\"/etc/passwd\"", "its descriptor names a parent"),
        ("#DDB", "changeTrackPath=\"/etc/passwd\"", other_file),
        ("#DDB", "\u{1}", "its descriptor is no text"),
        ("#DDB", "junk", "its descriptor is not understood"),
    ] {
        let changed = with(text.replacen(was, is, 1));
        let fault = fault(ForeignFormat::Vmdk, &changed).await;
        assert_eq!(fault, format!("declared as a VMDK image, but {expected}"), "{is}");
    }
    // In any encoding.
    for name in [&b"\xc3\xa4"[..], b"\xe4", b"\xff\xfe\x80"] {
        let mut named = with(text.replacen(EXTENT, "RW 16384 SPARSE \"???\"\n#???\nddb.comment = \"???\"", 1));
        while let Some(at) = named[room.clone()].windows(3).position(|window| window == b"???") {
            named[512 + at..512 + at + 3].fill(b'x');
            named[512 + at..512 + at + name.len()].copy_from_slice(name);
        }
        convert(QEMU_IMG, ForeignFormat::Vmdk, &named).await.1.expect("converted");
    }
    // A descriptor that says it is shorter than what QEMU reads of it.
    let mut longer = with(text.replacen("#DDB", &"#".repeat(600), 1));
    longer[36] = 1;
    assert!(fault(ForeignFormat::Vmdk, &longer).await.ends_with("its descriptor is longer than it says"));
}

/// As VMware writes streams: the directory is behind the data, and a footer says where.
#[tokio::test]
async fn a_footer_must_agree_with_the_header() {
    let (_dir, mut image) = made(ForeignFormat::Vmdk, "subformat=streamOptimized");
    let mut footer = vec![0; 3 * 512];
    footer[12] = 3;
    footer[512..1024].copy_from_slice(&image[..512]);
    image[56..64].fill(0xff);
    let at = image.len();
    image.extend_from_slice(&footer);
    ForeignFormat::Vmdk.check(&&image[..], image.len() as u64, 2 << 40).expect("sound");
    let broken = "its footer is broken";
    let contradict = "its header and its footer contradict each other";
    for (place, byte, expected) in [
        (8, 1, broken),
        (12, 2, broken),
        (16, 1, broken),
        (511, 1, broken),
        (512, 0, contradict),
        (516, 2, contradict),
        (512 + 12, 7, contradict),
        (512 + 13, 0, contradict),
        (512 + 28, 2, contradict),
        (512 + 36, 1, contradict),
        (512 + 63, 0xff, "its directory is outside of the file"),
        (1024, 1, "its end is broken"),
        (1024 + 12, 1, "its end is broken"),
        (1535, 1, "its end is broken"),
    ] {
        let mut image = image.clone();
        image[at + place] = byte;
        let fault = fault(ForeignFormat::Vmdk, &image).await;
        assert_eq!(fault, format!("declared as a VMDK image, but {expected}"), "{place}");
    }
}

#[tokio::test]
async fn a_vhd_that_stands_on_another_or_lies_is_refused() {
    let (_dir, image) = made(ForeignFormat::Vhd, "force_size=on");
    let end = image.len() - 512;
    // With checksums that are right: footer, its copy, header.
    let sealed = |at: usize, bytes: &[u8], both: bool| {
        let mut image = image.clone();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        if both {
            image[end + at..end + at + bytes.len()].copy_from_slice(bytes);
        }
        twofold::seal_vhd(&mut image);
        image
    };
    ForeignFormat::Vhd.check(&&sealed(0, b"c", true)[..], image.len() as u64, 2 << 40).expect("sound");
    let parent = "it names a parent";
    let kind = "it stands on another image, or is of an unknown kind";
    for (at, bytes, both, expected) in [
        (0, &b"x"[..], true, "it has not the mark of one"),
        (12, &[2], true, "it is of an unknown version"),
        (63, &[4], true, kind),
        (63, &[0], true, kind),
        (63, &[2], true, "it begins like one that grows, and ends like one of a fixed size"),
        (48, &[0, 0, 1], true, "its table is too short for its disk"),
        (48, &[0, 0, 4], true, "its disk of 4398054899712 bytes is too large"),
        (48, &[0; 8], true, "its disk has no bytes"),
        (48, &[1], false, "its beginning and its end contradict each other"),
        (16, &[0xff; 8], true, "its header is outside of the file"),
        (512, b"x", false, "its header has not the mark of one"),
        (512 + 24, &[9], false, "its header is of an unknown version"),
        (512 + 40, &[1], false, parent),
        (512 + 64, &[0, b'/'], false, parent),
        (512 + 576, b"W2ku", false, parent),
        (512 + 767, &[1], false, parent),
        (512 + 32, &[0, 0, 0, 3], false, "its blocks have an impossible size"),
        (512 + 28, &[0xff; 4], false, "its table is too large"),
        (512 + 28, &[0, 0, 0, 1], false, "its table is too short for its disk"),
        (512 + 16, &[0, 0, 0, 1], false, "its table is outside of the file"),
    ] {
        let fault = fault(ForeignFormat::Vhd, &sealed(at, bytes, both)).await;
        assert_eq!(fault, format!("declared as a VHD image, but {expected}"), "{at}");
    }
    refused(
        ForeignFormat::Vhd,
        "force_size=on",
        &[
            (end + 8, &[1], "the checksum of its footer is wrong"),
            (512 + 1000, &[1], "the checksum of its header is wrong"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_vhdx_that_stands_on_another_or_lies_is_refused() {
    let (_dir, image) = made(ForeignFormat::Vhdx, "");
    let find = |bytes: &[u8]| image.windows(bytes.len()).position(|window| window == bytes).expect("there");
    let metadata = find(b"metadata");
    let parameters = find(&[0x37, 0x67, 0xa1, 0xca]);
    let size = find(&[0x24, 0x42, 0xa5, 0x2f]);
    let page = find(&[0xab, 0x12, 0xca, 0xbe]);
    let item = |entry: usize| {
        let offset = image[entry + 16..entry + 20].try_into().expect("four bytes");
        metadata + usize::try_from(u32::from_le_bytes(offset)).expect("small")
    };
    let (regions, first) = (192 << 10, (192 << 10) + 16);
    let mut needed = [0; 29];
    needed[28] = 1;
    refused(
        ForeignFormat::Vhdx,
        "",
        &[
            (0, b"x", "it has not the mark of one"),
            (regions, b"x", "it has no table of regions"),
            (regions + 8, &[0xff; 4], "its table of regions is too large"),
            (regions + 8, &[1], "it lacks a region"),
            (first, &[0], "it lacks a region"),
            (first, &needed, "it needs a region that is unknown"),
            (first + 16, &[0xff; 8], "a region is outside of the file"),
            (first + 32, &image[first..first + 16], "a region is there twice"),
            (metadata, b"x", "it has no metadata"),
            (metadata + 10, &[0xff; 2], "its metadata are too many"),
            (metadata + 10, &[0; 2], "its blocks have an impossible size"),
            (item(parameters) + 4, &[2], "it stands on another image"),
            (item(parameters), &[3], "its blocks have an impossible size"),
            (item(size), &[0; 8], "its disk has no bytes"),
            (item(size), &[0, 0, 0, 0, 0, 0, 1], "its disk of 281474976710656 bytes is too large"),
            (
                page,
                &[0x2d, 0x5f, 0xd3, 0xa8, 0x0b, 0xb3, 0x4d, 0x45, 0xab, 0xf7, 0xd3, 0xd8, 0x48, 0x34, 0xab, 0x0c],
                "it names a parent",
            ),
            (page, &[1], "it needs metadata that are unknown"),
            (page, &image[size..size + 16], "its metadata say something twice"),
            (page + 16, &[0xff; 4], "its metadata are outside of their region"),
            (size, &[1], "it needs metadata that are unknown"),
        ],
    )
    .await;
    let mut dirty = image.clone();
    for header in [64 << 10, 128 << 10] {
        dirty[header + 48] = 1;
    }
    assert!(fault(ForeignFormat::Vhdx, &dirty).await.contains("its log was not replayed"));
    for header in [64 << 10, 128 << 10] {
        dirty[header] = 0;
    }
    assert!(fault(ForeignFormat::Vhdx, &dirty).await.ends_with("it has no header"));
}

#[tokio::test]
async fn a_vdi_that_stands_on_another_or_lies_is_refused() {
    let kind = "it stands on another image, or is of an unknown kind";
    refused(
        ForeignFormat::Vdi,
        "",
        &[
            (0x40, &[0], "it has not the mark of one"),
            (0x44, &[0], "it is of an unknown version"),
            (0x4c, &[3], kind),
            (0x4c, &[4], kind),
            (0x1a8, &[1], "it names a parent"),
            (0x1b8, &[1], "it names a parent"),
            (0x168, &[1], "its sectors are not of 512 bytes"),
            (0x178, &[1], "its blocks are not of 1 MiB"),
            (0x170, &[0; 8], "its disk has no bytes"),
            (0x170, &[0, 0, 0, 0, 1], "its map is too short for its disk"),
            (0x170, &[0xff; 8], "its disk of 18446744073709551615 bytes is too large"),
            (0x180, &[0xff; 4], "its map is outside of the file"),
            (0x154, &[0xff; 4], "its map is outside of the file"),
            (0x158, &[0xff; 4], "its data are outside of the file"),
        ],
    )
    .await;
}

#[tokio::test]
async fn what_qemu_img_cannot_convert_is_told_with_its_words() {
    let (_dir, mut image) = made(ForeignFormat::Vhdx, "");
    // A checksum that we leave to it: of the first and only header that is sound.
    image[(64 << 10) + 4] ^= 1;
    image[(128 << 10) + 4] ^= 1;
    let error = convert(QEMU_IMG, ForeignFormat::Vhdx, &image).await.1.expect_err("broken");
    let ConvertError::Run { cause: SandboxError::Failed { message, .. }, .. } = &error else { panic!("{error:?}") };
    assert!(message.contains("qemu-img: Could not open"), "{message}");
    assert_eq!(error.kind(), ErrorKind::Refused);
}

#[test]
fn any_bytes_are_checked_without_panic() {
    use proptest::prelude::*;
    let images: Vec<(ForeignFormat, Vec<u8>)> =
        [(ForeignFormat::Vmdk, ""), (ForeignFormat::Vhd, ""), (ForeignFormat::Vhdx, ""), (ForeignFormat::Vdi, "")]
            .map(|(format, options)| (format, made(format, options).1))
            .into();
    let places = prop_oneof![0_usize..2048, (64_usize << 10)..(72 << 10), (192_usize << 10)..(193 << 10)];
    proptest!(ProptestConfig::with_cases(64), |(which in 0_usize..4, changes in prop::collection::vec((places, any::<u64>()), 1..4))| {
        let (format, image) = &images[which];
        let mut image = image.clone();
        image.truncate(1 << 20);
        for (at, number) in changes {
            if let Some(room) = image.get_mut(at..at + 8) {
                room.copy_from_slice(&number.to_le_bytes());
            }
        }
        let _ = format.check(&&image[..], image.len() as u64, 2 << 40);
    });
}
