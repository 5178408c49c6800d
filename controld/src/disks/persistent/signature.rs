//! What a device holds that is no root disk of ours: told by a few signatures, for the error that refuses it. Whatever else is not all
//! zeros is `data`. Nothing here decides that a device is free: that it is all zeros where it is looked at does.

/// How much of a device is looked at from its beginning.
pub(super) const HEAD: usize = 1 << 20;
/// And to its end, where some write what they know a disk by.
pub(super) const TAIL: usize = 128 << 10;

/// A signature at a place from the beginning of the device.
struct Signature {
    at: usize,
    bytes: &'static [u8],
    name: &'static str,
}

const fn signature(at: usize, bytes: &'static [u8], name: &'static str) -> Signature {
    Signature { at, bytes, name }
}

/// In the order in which they are looked for: a partition table may be in the boot sector of a file system, and is last.
const SIGNATURES: &[Signature] = &[
    signature(0, b"LUKS\xba\xbe", "LUKS"),
    signature(0, b"XFSB", "xfs"),
    signature(0x10040, b"_BHRfS_M", "btrfs"),
    signature(512, b"LABELONE", "LVM2"),
    signature(0, b"LABELONE", "LVM2"),
    signature(1024, b"LABELONE", "LVM2"),
    signature(1536, b"LABELONE", "LVM2"),
    signature(4096, b"\xfc\x4e\x2b\xa9", "Linux RAID"),
    signature(0, b"\xfc\x4e\x2b\xa9", "Linux RAID"),
    signature(4086, b"SWAPSPACE2", "swap"),
    signature(65526, b"SWAPSPACE2", "swap"),
    signature(0, b"QFI\xfb", "a qcow2 image"),
    signature(512, b"EFI PART", "a GPT partition table"),
    signature(4096, b"EFI PART", "a GPT partition table"),
    signature(510, b"\x55\xaa", "an MBR partition table or a boot sector"),
];

/// What is on a device, by its beginning and its end; `None` if both are all zeros.
pub(super) fn of(head: &[u8], tail: &[u8]) -> Option<&'static str> {
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if is_blank(head) {
        return of_tail(tail);
    }
    let found = SIGNATURES.iter().find(|signature| has(head, signature.at, signature.bytes));
    ext(head).or(found.map(|signature| signature.name)).or_else(|| of_tail(tail)).or(Some("data"))
}

/// Only what is known by its signature: behind a disk that is blank where it begins, anything may be left.
fn of_tail(tail: &[u8]) -> Option<&'static str> {
    let from_end = |back: usize| tail.len().checked_sub(back);
    // The copy of the table is in the last sector.
    let gpt = [512, 4096].into_iter().filter_map(from_end).any(|at| has(tail, at, b"EFI PART"));
    // Superblock 1.0 is 8 to 12 KiB before the end, 0.90 in the last whole 64 KiB but one.
    let raid = (0..tail.len()).step_by(4096).any(|at| has(tail, at, b"\xfc\x4e\x2b\xa9"));
    match (gpt, raid) {
        (true, _) => Some("the backup of a GPT partition table"),
        (_, true) => Some("Linux RAID"),
        _ => None,
    }
}

/// The three that share a superblock, by their features (Linux, `fs/ext4/ext4.h`).
fn ext(head: &[u8]) -> Option<&'static str> {
    const SUPERBLOCK: usize = 1024;
    const HAS_JOURNAL: u32 = 4;
    /// Of `incompat`: what version 3 has, too.
    const OLD: u32 = 0x1 | 0x2 | 0x4 | 0x8 | 0x10;
    if !has(head, SUPERBLOCK + 0x38, b"\x53\xef") {
        return None;
    }
    let number = |at: usize| {
        let bytes = head.get(SUPERBLOCK + at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    let (compat, incompat) = (number(0x5c)?, number(0x60)?);
    Some(match (incompat & !OLD, compat & HAS_JOURNAL) {
        (1.., _) => "ext4",
        (_, HAS_JOURNAL) => "ext3",
        _ => "ext2",
    })
}

fn has(bytes: &[u8], at: usize, signature: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(signature))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(at: usize, bytes: &[u8]) -> Option<&'static str> {
        let mut head = vec![0; HEAD];
        head[at..at + bytes.len()].copy_from_slice(bytes);
        of(&head, &[0; TAIL])
    }

    #[test]
    fn a_blank_device_holds_nothing() {
        assert_eq!(of(&vec![0; HEAD], &[0; TAIL]), None);
        assert_eq!(of(&[], &[]), None);
    }

    #[test]
    fn each_signature_is_known_where_it_stands() {
        for signature in SIGNATURES {
            assert_eq!(holds(signature.at, signature.bytes), Some(signature.name));
            let elsewhere = holds(signature.at + 8 * 1024, signature.bytes);
            assert_eq!(elsewhere, Some("data"), "{}", signature.name);
        }
        assert_eq!(holds(HEAD - 1, b"\x01"), Some("data"));
    }

    #[test]
    fn the_three_of_one_superblock_are_told_apart() {
        let superblock = |compat: u8, incompat: u32| {
            let mut bytes = vec![0; 0x64];
            bytes[0x38..0x3a].copy_from_slice(b"\x53\xef");
            bytes[0x5c] = compat;
            bytes[0x60..].copy_from_slice(&incompat.to_le_bytes());
            bytes
        };
        assert_eq!(holds(1024, &superblock(0, 0x2)), Some("ext2"));
        assert_eq!(holds(1024, &superblock(4, 0x2)), Some("ext3"));
        assert_eq!(holds(1024, &superblock(4, 0x2c2)), Some("ext4"));
        assert_eq!(holds(1024, &superblock(0, 0x40)), Some("ext4"));
    }

    #[test]
    fn a_boot_sector_of_a_file_system_is_that_file_system() {
        let mut head = vec![0; HEAD];
        head[510..512].copy_from_slice(b"\x55\xaa");
        head[0x10040..0x10048].copy_from_slice(b"_BHRfS_M");
        assert_eq!(of(&head, &[]), Some("btrfs"));
    }

    #[test]
    fn what_is_known_by_its_end_is_seen_on_a_device_that_begins_blank() {
        let with = |back: usize, bytes: &[u8]| {
            let mut tail = vec![0; TAIL];
            let at = TAIL - back;
            tail[at..at + bytes.len()].copy_from_slice(bytes);
            of(&vec![0; HEAD], &tail)
        };
        assert_eq!(with(512, b"EFI PART"), Some("the backup of a GPT partition table"));
        assert_eq!(with(4096, b"EFI PART"), Some("the backup of a GPT partition table"));
        assert_eq!(with(8192, b"\xfc\x4e\x2b\xa9"), Some("Linux RAID"));
        assert_eq!(with(65536, b"\xfc\x4e\x2b\xa9"), Some("Linux RAID"));
        assert_eq!(with(700, b"left over"), None);
    }
}
