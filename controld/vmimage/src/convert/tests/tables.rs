//! Entries that point where they must not.

use super::*;

const OUTSIDE: &str = "its tables point beyond the file's end; it was cut off, or they lie";
const TAKEN: &str = "its tables point into its header or into tables";
const SHARED: &str = "its tables point at the same bytes twice";
const SOUND: &str = "sound";

fn le32(image: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes"))
}

fn le64(image: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"))
}

/// What is said of an image with other bytes in some places.
fn judged(format: ForeignFormat, image: &[u8], changes: &[(usize, &[u8])]) -> String {
    let mut image = image.to_vec();
    for (at, bytes) in changes {
        image[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    match format.check(&&image[..], image.len() as u64, 4 << 40) {
        Ok(_) => SOUND.to_owned(),
        Err(ConvertError::Refused { fault, .. }) => fault.to_string(),
        Err(other) => panic!("{other:?}"),
    }
}

/// Two tables, each with a grain.
fn two_tables(options: &str) -> Vec<u8> {
    let mut disk = vec![0; 40 << 20];
    disk[1 << 20..(1 << 20) + 100].fill(1);
    disk[36 << 20..(36 << 20) + 100].fill(1);
    made_of(&disk, ForeignFormat::Vmdk, options).1
}

#[test]
fn tables_of_a_vmdk_stay_in_the_file() {
    let image = two_tables("");
    let end = u32::try_from(image.len() / 512).expect("small");
    let directory = usize::try_from(le64(&image, 56)).expect("small");
    let at = directory * 512;
    let (first, second) = (le32(&image, at), le32(&image, at + 4));
    let table = |sector: u32| sector as usize * 512;
    let grain = table(first) + 16 * 4;
    let place = le32(&image, grain);
    assert!(first != 0 && second != 0 && place != 0, "{first} {second} {place}");
    for (place, entry, expected) in [
        (at, first, SOUND),
        (at, 0, SOUND),
        (at, end - 3, OUTSIDE),
        (at, end, OUTSIDE),
        (at, !0, OUTSIDE),
        (at, 1, TAKEN),
        (at, u32::try_from(directory).expect("small"), TAKEN),
        (at, u32::try_from(directory).expect("small") - 3, TAKEN),
        (at, second, SHARED),
        (at, second - 3, SHARED),
        (grain, 0, SOUND),
        (grain, end - 128, SOUND),
        (grain, end - 127, OUTSIDE),
        (grain, end, OUTSIDE),
        (grain, !0, OUTSIDE),
        (grain, 1, TAKEN),
        (grain, 20, TAKEN),
        // Behind the header, but not before the directory.
        (grain, 21, TAKEN),
    ] {
        assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(place, &entry.to_le_bytes())]), expected, "{place} {entry}");
    }
    let all = place.to_le_bytes().repeat(512);
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(table(first), &all)]), SHARED, "a disk from one grain");
    // What is behind the end of the disk is not looked at: 40 MiB are a table and a quarter.
    let beyond = table(second) + 128 * 4;
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(beyond, &[0xff; 4])]), SOUND);
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(beyond - 4, &[0xff; 4])]), OUTSIDE);
    let header = |changes: &[(usize, &[u8])]| judged(ForeignFormat::Vmdk, &image, changes);
    assert_eq!(header(&[(56, &1_u64.to_le_bytes())]), "its directory is in its header");
    assert_eq!(header(&[(56, &u64::from(end).to_le_bytes())]), "its directory is outside of the file");
    // 4 TiB in grains of 4 KiB, and then in those that are usual.
    assert_eq!(header(&[(12, &(1_u64 << 33).to_le_bytes()), (20, &[8])]), "its directory is too large");
    assert_eq!(header(&[(12, &(1_u64 << 33).to_le_bytes())]), "its directory is outside of the file");
}

#[test]
fn a_grain_of_zeros_is_nowhere_if_the_header_says_so() {
    let image = two_tables("zeroed_grain=on");
    let table = le32(&image, usize::try_from(le64(&image, 56)).expect("small") * 512) as usize * 512;
    let one = 1_u32.to_le_bytes();
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(table, &one)]), SOUND);
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(table, &one), (8, &[3])]), TAKEN);
}

#[test]
fn compressed_grains_stay_in_the_file() {
    let unknown = "it is compressed in an unknown way";
    let impossible = "a compressed grain has an impossible length";
    for image in [two_tables("subformat=streamOptimized"), cut::stream(&disk())] {
        let directory = match le64(&image, 56) {
            u64::MAX => le64(&image, image.len() - 1024 + 56),
            directory => directory,
        };
        let table = le32(&image, usize::try_from(directory).expect("small") * 512) as usize * 512;
        let entry = (table..).step_by(4).find(|at| le32(&image, *at) != 0).expect("a grain");
        let marker = le32(&image, entry) as usize * 512;
        let end = u32::try_from(image.len() / 512).expect("small");
        for (place, value, expected) in [
            (marker + 8, 0, impossible),
            (marker + 8, 0x2_0000 - 11, impossible),
            (marker + 8, !0, impossible),
            (entry, end, OUTSIDE),
            (entry, 1, TAKEN),
            (entry, !0, OUTSIDE),
        ] {
            assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(place, &u32::to_le_bytes(value))]), expected);
        }
        // A marker in the last sector, with more behind it than there is.
        let mut longer = image.clone();
        longer.truncate(longer.len() - 512);
        longer.extend_from_slice(&[0; 8]);
        longer.extend_from_slice(&501_u32.to_le_bytes());
        longer.extend_from_slice(&[1; 500]);
        if le64(&image, 56) != u64::MAX {
            let last = (end - 1).to_le_bytes();
            assert_eq!(judged(ForeignFormat::Vmdk, &longer, &[(entry, &last)]), OUTSIDE);
            longer.push(1);
            assert_eq!(judged(ForeignFormat::Vmdk, &longer, &[(entry, &last)]), SOUND);
        }
    }
    let image = two_tables("subformat=streamOptimized");
    assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(20, &[64])]), "its compressed grains are too small");
    // Without markers, without compression that is said twice, of another kind.
    for change in [(10, [1, 0]), (10, [2, 0]), (10, [0, 0]), (77, [0, 0]), (77, [2, 0])] {
        assert_eq!(judged(ForeignFormat::Vmdk, &image, &[(change.0, &change.1)]), unknown);
    }
    assert_eq!(judged(ForeignFormat::Vmdk, &two_tables(""), &[(77, &[1, 0])]), unknown);
}

#[test]
fn blocks_of_a_vhd_stay_in_the_file() {
    let (_dir, image) = made_of(&[1; 8 << 20], ForeignFormat::Vhd, "force_size=on");
    let entry = |image: &[u8], at: usize| u32::from_be_bytes(image[at..at + 4].try_into().expect("four bytes"));
    let table = entry(&image, 512 + 20) as usize;
    let first = entry(&image, table);
    let last = (table..table + 16).step_by(4).map(|at| entry(&image, at)).max().expect("some");
    let header = 1;
    for (value, expected) in [
        (first, SOUND),
        (!0, SOUND),
        // Into the footer.
        (last + 1, OUTSIDE),
        (!1, OUTSIDE),
        (0, TAKEN),
        (header, TAKEN),
        (u32::try_from(table / 512).expect("small"), TAKEN),
        (last, SHARED),
        (last - 1, SHARED),
    ] {
        let expected = if first == last && expected == SHARED { SOUND } else { expected };
        assert_eq!(judged(ForeignFormat::Vhd, &image, &[(table, &value.to_be_bytes())]), expected, "{value:#x}");
    }
    assert_ne!(first, last);
}

#[test]
fn blocks_of_a_vdi_stay_in_the_file() {
    // The last block is a part of one.
    let (_dir, image) = made_of(&[1; (3 << 20) + 512], ForeignFormat::Vdi, "");
    let map = le32(&image, 0x154) as usize;
    for (changes, expected) in [
        (vec![(map, 3)], SHARED),
        (vec![(map, 2), (map + 8, 0)], SOUND),
        (vec![(map, !0)], SOUND),
        (vec![(map, !1)], SOUND),
        (vec![(map, 4)], OUTSIDE),
        (vec![(map, !2)], OUTSIDE),
        (vec![(0x158, 0)], TAKEN),
        (vec![(0x158, u32::try_from(map).expect("small"))], TAKEN),
    ] {
        let bytes: Vec<_> = changes.iter().map(|(at, value)| (*at, u32::to_le_bytes(*value))).collect();
        let changes: Vec<_> = bytes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        assert_eq!(judged(ForeignFormat::Vdi, &image, &changes), expected, "{changes:?}");
    }
    // More of the map than the disk has is not looked at.
    assert_eq!(judged(ForeignFormat::Vdi, &image, &[(0x180, &[5]), (map + 16, &[9; 4])]), SOUND);
    let part = &image[..image.len() - (1 << 20) + 512];
    assert_eq!(judged(ForeignFormat::Vdi, part, &[]), SOUND, "no more than the disk has of its last block");
    assert_eq!(judged(ForeignFormat::Vdi, &part[..part.len() - 1], &[]), OUTSIDE);
}

#[test]
fn blocks_of_a_vhdx_stay_in_the_file() {
    let (_dir, image) = made_of(&[1; 5 << 20], ForeignFormat::Vhdx, "block_size=1M");
    let regions = (192 << 10) + 16;
    let is_map = |at: &usize| le32(&image, *at) == 0x2dc2_7766;
    let region = [regions, regions + 32].into_iter().find(is_map).expect("a map");
    let (map, other) = (le64(&image, region + 16), 2 * regions + 32 - region);
    let metadata = le64(&image, other + 16);
    let at = usize::try_from(map).expect("small");
    let block = |number: usize| le64(&image, at + 8 * number);
    let end = image.len() as u64;
    assert!((0..5).all(|number| block(number) & 7 == 6), "{:x}", block(0));
    let unknown = "a block is in an unknown state";
    for (entry, expected) in [
        (0, SOUND),
        (1, SOUND),
        (2, SOUND),
        (3, SOUND),
        (5, SOUND),
        (4, unknown),
        (7, unknown),
        (end | 6, OUTSIDE),
        (!7 | 6, OUTSIDE),
        (6, TAKEN),
        (map | 6, TAKEN),
        (metadata | 6, TAKEN),
        (block(4), SHARED),
    ] {
        assert_eq!(judged(ForeignFormat::Vhdx, &image, &[(at, &u64::to_le_bytes(entry))]), expected, "{entry:#x}");
    }
    assert_eq!(
        judged(ForeignFormat::Vhdx, &image, &[(region + 24, &39_u32.to_le_bytes())]),
        "its table is too short for its disk"
    );
    // The entry behind the blocks of a chunk is of no block: chunks are of 4 GiB.
    let dir = tempfile::tempdir().expect("directory");
    qemu_img(dir.path(), &["create", "-q", "-f", "vhdx", "-o", "block_size=256M", "image", "5G"]);
    let image = std::fs::read(dir.path().join("image")).expect("made");
    let at = usize::try_from(map).expect("small");
    assert_eq!(judged(ForeignFormat::Vhdx, &image, &[(at + 16 * 8, &[7])]), SOUND);
    for entry in [15, 17, 20] {
        assert_eq!(judged(ForeignFormat::Vhdx, &image, &[(at + entry * 8, &[7])]), unknown, "{entry}");
    }
    assert_eq!(judged(ForeignFormat::Vhdx, &image, &[(at + 21 * 8, &[7])]), SOUND);
}

#[test]
fn a_vhdx_with_other_sectors_is_refused() {
    let (_dir, image) = made(ForeignFormat::Vhdx, "");
    let item = [0x1d, 0xbf, 0x41, 0x81];
    let entry = image.windows(4).position(|window| window == item).expect("there");
    let metadata = image.windows(8).position(|window| window == b"metadata").expect("there");
    let at = metadata + le32(&image, entry + 16) as usize;
    let other = "its sectors are not of 512 bytes";
    assert_eq!(judged(ForeignFormat::Vhdx, &image, &[(at, &4096_u32.to_le_bytes())]), other);
}

#[test]
fn blocks_that_cannot_fit_are_not_even_remembered() {
    let layout = layout::Layout { end: 1 << 20, taken: Vec::new() };
    let mut blocks = layout.blocks(0, 512, 2048);
    let added = (0..10_000).take_while(|_| blocks.add(7, 2048).is_ok()).count();
    assert_eq!(added, 513);
    assert!(blocks.check_apart().is_err());
    let mut blocks = layout.blocks(4096, 2048, 2048);
    for number in [1, 3, 2, 0] {
        blocks.add(number, 2048).expect("apart");
    }
    assert!(blocks.check_apart().is_ok());
    assert!(layout.blocks(0, 1 << 20, 1 << 20).add(u64::MAX, 1).is_err());
}
