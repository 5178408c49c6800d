//! Whether the partition table of a raw disk is a sound one.
//!
//! A raw disk needs no partition table. But a file with a boot record's signature and a table that makes no sense is
//! not a disk. The rules are those of OpenStack's image checks, which clouds hold images to.

/// Length of a boot record.
pub(super) const LENGTH: usize = 512;
const MARK_AT: usize = 510;
const TABLE_AT: usize = 446;
const ENTRY: usize = 16;

/// Kind of partition that stands for a GPT (UEFI specification, 5.2.3).
const PROTECTIVE: u8 = 0xee;
/// Where it begins, in CHS and in sectors.
const PROTECTIVE_START: ([u8; 3], [u8; 4]) = ([0, 2, 0], [1, 0, 0, 0]);

/// Media descriptor of a fixed disk, and the number of tables, in the boot sector of a FAT file system.
const FAT_MEDIA: (usize, u8) = (0x15, 0xf8);
const FAT_TABLES: (usize, u8) = (0x10, 2);
const NTFS_MARK: (usize, &[u8]) = (3, b"NTFS    ");

/// Whether there is the mark of a boot record.
pub(super) fn is_there(head: &[u8]) -> bool {
    head.get(MARK_AT..LENGTH) == Some(b"\x55\xaa")
}

/// What is wrong with the boot record, if there is one.
pub(super) fn fault(head: &[u8]) -> Option<&'static str> {
    if !is_there(head) || is_file_system(head) {
        return None;
    }
    let table = head.get(TABLE_AT..MARK_AT)?;
    let entries = || table.chunks_exact(ENTRY);
    if entries().any(|entry| !matches!(entry.first(), Some(0 | 0x80))) {
        return Some("a partition has an invalid boot flag");
    }
    let kind = |entry: &[u8]| entry.get(4).copied().unwrap_or_default();
    let used = entries().filter(|entry| kind(entry) != 0).count();
    if used == 0 {
        return Some("it has no partition");
    }
    let protective = |entry: &&[u8]| kind(entry) == PROTECTIVE;
    if let Some(entry) = entries().find(protective) {
        if used > 1 || entries().next().is_none_or(|first| !protective(&first)) {
            return Some("there are other partitions beside a GPT's");
        }
        if entry.get(1..4) != Some(&PROTECTIVE_START.0[..]) || entry.get(8..12) != Some(&PROTECTIVE_START.1[..]) {
            return Some("a GPT's partition begins at the wrong place");
        }
    }
    None
}

/// A file system without partitions has the same mark.
fn is_file_system(head: &[u8]) -> bool {
    let is = |(at, value): (usize, u8)| head.get(at) == Some(&value);
    is(FAT_MEDIA) && is(FAT_TABLES) || head.get(NTFS_MARK.0..).is_some_and(|rest| rest.starts_with(NTFS_MARK.1))
}
