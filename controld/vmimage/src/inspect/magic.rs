//! Magic numbers of formats that are refused by name. QEMU's probing knows most of them, so such bytes must never pass
//! as raw: a tool that probes would open them as what they claim to be.

/// Volume descriptors of ISO 9660 and UDF begin at sector 16 of 2048 bytes; the mark is one byte into them.
const ISO_MARKS: [usize; 3] = [0x8001, 0x8801, 0x9001];
const ISO_KINDS: [&[u8]; 5] = [b"CD001", b"CDW02", b"BEA01", b"NSR02", b"NSR03"];
/// The end of a file where some formats have their mark: DMG's may be anywhere in it, VHD's is at one of two places.
pub(super) const FOOTER: usize = 1024;
const VHD_FOOTERS: [usize; 2] = [512, 511];

pub(super) const ISO: &str = "an ISO image";
const TAR: &str = "a tar archive";
const VDI: &str = "a VDI image";
const VMDK: &str = "a VMDK image";
const VHD: &str = "a VHD image";
const FIXED_VHD: &str = "a fixed VHD image";
const VHDX: &str = "a VHDX image";

/// A disk or archive format that is not taken, by its first bytes.
pub(super) fn foreign(head: &[u8]) -> Option<&'static str> {
    const AT_START: [(&[u8], &str); 15] = [
        (b"KDMV", VMDK),
        (b"COWD", "a VMDK (ESX sparse) image"),
        (b"\xbe\xba\xfe\xca\0\0\0\0", "a VMDK (SE sparse) image"),
        (b"conectix", VHD),
        (b"vhdxfile", VHDX),
        (b"QED\0", "a QED image"),
        (b"LUKS\xba\xbe", "a LUKS volume"),
        (b"SKUL\xba\xbe", "a LUKS volume"),
        (b"WithoutFreeSpace", "a Parallels image"),
        (b"WithouFreSpacExt", "a Parallels image"),
        (b"Bochs Virtual HD Image", "a Bochs image"),
        (b"#!/bin/sh\n#V2.0 Format\n", "a cloop image"),
        (b"OOOM", "a COW image"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    ];
    let at_start = AT_START.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, name)| *name);
    at_start
        .or_else(|| foreign_beside(head).filter(|&format| format != ISO))
        .or_else(|| is_vmdk_text(head).then_some("a VMDK descriptor"))
        .or_else(|| is_iso(head).then_some(ISO))
}

/// A format whose mark is not at the very beginning, so that the bytes may be another one at the same time.
pub(super) fn foreign_beside(head: &[u8]) -> Option<&'static str> {
    if head.get(0x40..0x44) == Some(b"\x7f\x10\xda\xbe") {
        Some(VDI)
    } else if head.get(257..262) == Some(b"ustar") {
        Some(TAR)
    } else {
        is_iso(head).then_some(ISO)
    }
}

/// A format whose mark is in the last [`FOOTER`] bytes.
pub(super) fn foreign_at_end(footer: &[u8]) -> Option<&'static str> {
    let vhd = |from_end| footer.len().checked_sub(from_end).is_some_and(|at| footer[at..].starts_with(b"conectix"));
    if VHD_FOOTERS.into_iter().any(vhd) {
        Some(FIXED_VHD)
    } else {
        footer.windows(4).any(|mark| mark == b"koly").then_some("a DMG image")
    }
}

/// Whether images can be made of a format, if it is declared.
pub(super) fn is_convertible(format: &str) -> bool {
    [VMDK, VHD, FIXED_VHD, VHDX, VDI].contains(&format)
}

/// A compressor's mark.
pub(super) fn compressed(head: &[u8]) -> Option<&'static str> {
    const MARKS: [(&[u8], &str); 6] = [
        (b"\x1f\x8b", "gzip"),
        (b"\xfd7zXZ\0", "xz"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"BZh", "bzip2"),
        (b"\x04\x22\x4d\x18", "lz4"),
        (b"\x5d\0\0", "lzma"),
    ];
    MARKS.iter().find(|(mark, _)| head.starts_with(mark)).map(|(_, name)| *name)
}

/// Whether an ISO 9660 or UDF file system begins within the bytes.
pub(super) fn is_iso(head: &[u8]) -> bool {
    let at = |at: usize| head.get(at..at + 5).is_some_and(|mark| ISO_KINDS.contains(&mark));
    ISO_MARKS.into_iter().any(at)
}

/// HTML, whatever the server calls it.
pub(super) fn is_web_page(head: &[u8]) -> bool {
    let text = after_blanks(head).to_ascii_lowercase_start();
    ["<!doctype html", "<html", "<head", "<?xml"].iter().any(|start| text.starts_with(start.as_bytes()))
}

/// A VMDK descriptor is text: comments, blank lines, then `version=`. QEMU opens what its extents name.
fn is_vmdk_text(head: &[u8]) -> bool {
    if head.get(..21).is_some_and(|start| start.eq_ignore_ascii_case(b"# Disk DescriptorFile")) {
        return true;
    }
    let mut lines = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    lines
        .find(|line| !line.is_empty() && !line.starts_with(b"#"))
        .is_some_and(|line| line.to_ascii_lowercase_start().starts_with(b"version="))
}

fn after_blanks(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start()
}

trait LowercaseStart {
    fn to_ascii_lowercase_start(&self) -> Vec<u8>;
}

impl LowercaseStart for [u8] {
    /// The first bytes in lower case: enough to compare with a mark.
    fn to_ascii_lowercase_start(&self) -> Vec<u8> {
        self.iter().take(32).map(u8::to_ascii_lowercase).collect()
    }
}
