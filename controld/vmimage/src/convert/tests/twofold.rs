//! Files that QEMU would read in another way than a parser that looks at them less closely, so that what is checked would
//! not be what is converted.

use super::*;

/// The checksums of a VHD made right: of its footer at the end, and of its copy and its header if it grows.
pub(super) fn seal_vhd(image: &mut [u8]) {
    let end = image.len() - 512;
    let places = [(end, 512, 64), (0, 512, 64), (512, 1024, 36)];
    let grows = image.starts_with(b"conectix");
    for (start, length, place) in places.into_iter().take(if grows { 3 } else { 1 }) {
        image[start + place..start + place + 4].fill(0);
        let sum = image[start..start + length].iter().fold(0_u32, |sum, byte| sum + u32::from(*byte));
        image[start + place..start + place + 4].copy_from_slice(&(!sum).to_be_bytes());
    }
}

/// QEMU counts from the end of the last sector, and we from that of the file: there are two footers in one another.
#[tokio::test]
async fn a_footer_between_sectors_is_refused() {
    const SHIFT: usize = 256;
    let mut image = cut::stream(&disk());
    let length = image.len();
    let directory = image[length - 1024 + 56..length - 1024 + 64].to_vec();
    let mut other = image[..512].to_vec();
    // A disk of twice the size, of which nobody has seen any table.
    other[12..20].copy_from_slice(&(2 * DISK / 512).to_le_bytes());
    other[56..64].copy_from_slice(&directory);
    image[SHIFT..SHIFT + 80].copy_from_slice(&other[..80]);
    let mut footer = image[length - 1536..].to_vec();
    footer[512..1024].copy_from_slice(&image[..512]);
    footer[512 + 56..512 + 64].copy_from_slice(&directory);
    footer[SHIFT + 12] = 3;
    image.truncate(length - 1536);
    image.resize(length - 1536 + 512 - SHIFT, 0);
    image.extend_from_slice(&footer);
    let refused = fault(ForeignFormat::Vmdk, &image).await;
    assert_eq!(refused, "declared as a VMDK image, but it does not end where a sector ends");
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("image"), &image).expect("written");
    qemu_img(dir.path(), &["convert", "-f", "vmdk", "-O", "raw", "image", "disk"]);
    let size = std::fs::metadata(dir.path().join("disk")).expect("made").len();
    assert_eq!(size, 2 * DISK, "QEMU reads the other footer; else this test shows nothing");
}

/// QEMU asks the beginning what kind it is, and only then the end.
#[tokio::test]
async fn a_vhd_of_two_kinds_is_refused() {
    let (_dir, mut image) = made(ForeignFormat::Vhd, "force_size=on");
    let mut footer = image[..512].to_vec();
    footer[48..56].copy_from_slice(&(image.len() as u64).to_be_bytes());
    footer[63] = 2;
    image.extend_from_slice(&footer);
    seal_vhd(&mut image);
    let refused = fault(ForeignFormat::Vhd, &image).await;
    let kinds = "it begins like one that grows, and ends like one of a fixed size";
    assert_eq!(refused, format!("declared as a VHD image, but {kinds}"));
    // Where it begins with anything else it is what it says.
    image[0] = b'x';
    seal_vhd(&mut image);
    ForeignFormat::Vhd.check(&&image[..], image.len() as u64, 2 << 40).expect("of a fixed size");
}

/// How large the disk of a VHD is by its own word.
fn told_by_vhd(image: &[u8]) -> u64 {
    u64::from_be_bytes(image[image.len() - 512 + 48..][..8].try_into().expect("eight bytes"))
}

/// Makers of whom QEMU believes cylinders, heads and sectors may be lying with them.
#[tokio::test]
async fn a_vhd_is_as_large_as_it_says_and_not_as_its_geometry() {
    for options in ["", "subformat=fixed"] {
        let (_dir, mut image) = made(ForeignFormat::Vhd, options);
        let size = told_by_vhd(&image);
        let geometry = [0, 10, 4, 17];
        let end = image.len() - 512;
        for footer in [0, end].into_iter().filter(|at| image[*at..].starts_with(b"conectix")).collect::<Vec<_>>() {
            image[footer + 56..footer + 60].copy_from_slice(&geometry);
        }
        seal_vhd(&mut image);
        let converted = convert(QEMU_IMG, ForeignFormat::Vhd, &image).await.1.expect("converted");
        assert_eq!(converted.info().virtual_size, size, "{options}");
    }
}

#[tokio::test]
async fn what_comes_out_is_as_large_as_what_was_checked() {
    for (format, options) in [
        (ForeignFormat::Vmdk, ""),
        (ForeignFormat::Vmdk, "subformat=streamOptimized"),
        (ForeignFormat::Vhd, ""),
        (ForeignFormat::Vhd, "force_size=on"),
        (ForeignFormat::Vhd, "subformat=fixed"),
        (ForeignFormat::Vhd, "force_size=on,subformat=fixed"),
        (ForeignFormat::Vhdx, ""),
        (ForeignFormat::Vdi, ""),
    ] {
        for sectors in [1, 2049, 16384, 20_001] {
            let (_dir, image) = made_of(&vec![1; sectors * 512], format, options);
            let told = format.check(&&image[..], image.len() as u64, 2 << 40).expect("sound");
            let converted = convert(QEMU_IMG, format, &image).await.1;
            let size = converted.unwrap_or_else(|error| panic!("{format} {options}: {error:?}")).info().virtual_size;
            assert_eq!(size, told, "{format} {options}");
        }
    }
    let (_dir, mut image) = made(ForeignFormat::Vdi, "");
    // As VirtualBox makes them of files with a part of a sector.
    image[0x170..0x178].copy_from_slice(&(DISK - 100).to_le_bytes());
    assert_eq!(convert(QEMU_IMG, ForeignFormat::Vdi, &image).await.1.expect("converted").info().virtual_size, DISK);
    let other = check_same_size(ForeignFormat::Vhd, 1024, 512).expect_err("another disk");
    assert_eq!(other.kind(), ErrorKind::Refused);
    assert_eq!(
        other.to_string(),
        "declared as a VHD image, and its disk is of 1024 bytes, but `qemu-img` made one of 512 bytes"
    );
    check_same_size(ForeignFormat::Vhd, 512, 512).expect("the same");
}

#[tokio::test]
async fn a_vhd_with_a_part_of_a_sector_is_refused() {
    let (_dir, mut image) = made(ForeignFormat::Vhd, "force_size=on");
    let end = image.len() - 512;
    for at in [55, end + 55] {
        image[at] = 1;
    }
    seal_vhd(&mut image);
    let refused = fault(ForeignFormat::Vhd, &image).await;
    assert_eq!(refused, "declared as a VHD image, but its disk has a part of a sector");
}
