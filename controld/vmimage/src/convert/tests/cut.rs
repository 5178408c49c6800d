//! Images that somebody made, or hosted, only in part. Their length and digest are right, as far as anybody can tell.

use std::io::Read;

use proptest::prelude::*;

use super::*;

/// All kinds that `qemu-img` makes.
const KINDS: [(ForeignFormat, &str); 9] = [
    (ForeignFormat::Vmdk, ""),
    (ForeignFormat::Vmdk, "zeroed_grain=on"),
    (ForeignFormat::Vmdk, "subformat=streamOptimized"),
    (ForeignFormat::Vhd, "force_size=on"),
    (ForeignFormat::Vhd, "force_size=on,subformat=fixed"),
    // Of their usual blocks a small disk needs a small part.
    (ForeignFormat::Vhdx, "block_size=1M"),
    (ForeignFormat::Vhdx, "block_size=1M,subformat=fixed"),
    (ForeignFormat::Vdi, ""),
    (ForeignFormat::Vdi, "static=on"),
];

/// A disk whose last grain is a part of one, with bytes that do not compress, and zeros, in it.
fn full_disk() -> Vec<u8> {
    let mut disk = vec![0; (5 << 20) + 3 * 512];
    let mut state = 1_u64;
    let length = disk.len();
    for (at, byte) in disk.iter_mut().enumerate() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        if !(1 << 20..3 << 20).contains(&at) || (2 << 20..(2 << 20) + 700).contains(&at) || at + 100 > length {
            *byte = (state >> 56) as u8;
        }
    }
    disk
}

/// An image of each kind.
fn images(disk: &[u8]) -> Vec<(ForeignFormat, &'static str, Vec<u8>)> {
    let mut images: Vec<_> = KINDS.map(|(format, options)| (format, options, made_of(disk, format, options).1)).into();
    images.push((ForeignFormat::Vmdk, "a stream", stream(disk)));
    images
}

/// The disk that comes out of an image.
async fn comes_out(format: ForeignFormat, image: &[u8]) -> Result<Vec<u8>, ConvertError> {
    let dir = tempfile::tempdir().expect("directory");
    let (mut output, converted) = convert(QEMU_IMG, format, image).await;
    converted?;
    let mut result = Vec::new();
    std::io::Seek::rewind(&mut output).expect("rewound");
    output.read_to_end(&mut result).expect("read");
    std::fs::write(dir.path().join("result"), result).expect("written");
    qemu_img(dir.path(), &["convert", "-f", "qcow2", "-O", "raw", "result", "disk"]);
    Ok(std::fs::read(dir.path().join("disk")).expect("read"))
}

/// Whether a part is refused; what is not must still be the whole disk.
async fn is_refused(disk: &[u8], format: ForeignFormat, image: &[u8], length: usize) -> bool {
    let cut = &image[..length];
    if format.check(&cut, length as u64, 2 << 40).is_err() {
        return true;
    }
    match comes_out(format, cut).await {
        Err(error) => assert!(matches!(error, ConvertError::Run { .. }), "{format} at {length}: {error:?}"),
        Ok(other) => assert!(other == disk, "{format}: cut at {length} of {}, and another disk", image.len()),
    }
    false
}

#[tokio::test]
async fn what_is_whole_is_taken() {
    let disk = full_disk();
    for (format, options, image) in images(&disk) {
        let out = comes_out(format, &image).await.unwrap_or_else(|error| panic!("{format} {options}: {error:?}"));
        assert!(out == disk, "{format} {options}");
    }
}

#[tokio::test]
async fn what_lacks_its_end_is_refused() {
    let disk = full_disk();
    for (format, options, image) in images(&disk) {
        let whole = image.len();
        // The last block may have no more than the last sectors of the disk.
        let largest = whole - (1 << 20);
        for length in (0..largest).step_by(400_009).chain([512, 1024, 65_536, 1 << 20, largest]) {
            let refused = is_refused(&disk, format, &image, length).await;
            assert!(refused, "{format} {options}: {length} of {whole} bytes were taken");
        }
        for lacking in [1, 100, 511, 512, 513, 4096, 65_535, 65_536, 500_000] {
            is_refused(&disk, format, &image, whole - lacking).await;
        }
    }
}

/// Of a disk that is a whole number of blocks nothing can be spared.
#[tokio::test]
async fn what_lacks_a_byte_of_its_last_grain_is_refused() {
    let disk = full_disk()[3 << 20..5 << 20].to_vec();
    for (format, options, image) in images(&disk) {
        // Compressed grains are padded to sectors.
        let lacking = if options == "subformat=streamOptimized" { 512 } else { 1 };
        let refused = is_refused(&disk, format, &image, image.len() - lacking).await;
        assert!(refused, "{format} {options}");
    }
}

#[test]
fn a_part_is_refused_or_is_the_same_disk() {
    let disk = full_disk();
    let images = images(&disk);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let kinds = 0..images.len();
    proptest!(ProptestConfig::with_cases(96), |(kind in kinds, place in any::<prop::sample::Index>(), near in any::<bool>())| {
        let (format, _, image) = &images[kind];
        // The end is where it is close.
        let length = if near { image.len() - 1 - place.index(4096) } else { place.index(image.len()) };
        runtime.block_on(is_refused(&disk, *format, image, length));
    });
}

/// A disk as VMware streams it: compressed grains with markers, then tables, directory and footer, each with a marker
/// before it ("Virtual Disk Format 1.1", "Stream-Optimized Compressed Sparse Extents").
pub(super) fn stream(disk: &[u8]) -> Vec<u8> {
    const GRAIN: usize = 64 << 10;
    let capacity = disk.len() / 512;
    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"streamOptimized\"\n\
         RW {capacity} SPARSE \"disk.vmdk\"\nddb.adapterType = \"lsilogic\"\n"
    );
    let mut header = vec![0; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"KDMV\x03\0\0\0\x01\0\x03\0");
    put(12, &(capacity as u64).to_le_bytes());
    put(20, &128_u64.to_le_bytes());
    put(28, &1_u64.to_le_bytes());
    put(36, &20_u64.to_le_bytes());
    put(44, &512_u32.to_le_bytes());
    put(56, &[0xff; 8]);
    put(64, &128_u64.to_le_bytes());
    put(73, b"\n \r\n\x01");
    let mut image = header.clone();
    image.extend_from_slice(descriptor.as_bytes());
    image.resize(128 * 512, 0);
    let sector = |image: &Vec<u8>| u32::try_from(image.len() / 512).expect("small");
    let pad = |image: &mut Vec<u8>| image.resize(image.len().next_multiple_of(512), 0);
    let marker = |image: &mut Vec<u8>, sectors: u64, kind: u32| {
        image.extend_from_slice(&sectors.to_le_bytes());
        image.extend_from_slice(&[0; 4]);
        image.extend_from_slice(&kind.to_le_bytes());
        pad(image);
    };
    let mut table = vec![0; 512];
    for (index, grain) in disk.chunks(GRAIN).enumerate().filter(|(_, grain)| grain.iter().any(|byte| *byte != 0)) {
        table[index] = sector(&image);
        let mut whole = grain.to_vec();
        whole.resize(GRAIN, 0);
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&whole).expect("compressed");
        let compressed = encoder.finish().expect("compressed");
        image.extend_from_slice(&(index as u64 * 128).to_le_bytes());
        image.extend_from_slice(&u32::try_from(compressed.len()).expect("small").to_le_bytes());
        image.extend_from_slice(&compressed);
        pad(&mut image);
    }
    marker(&mut image, 4, 1);
    let tables = sector(&image);
    image.extend(table.iter().flat_map(|entry| entry.to_le_bytes()));
    marker(&mut image, 1, 2);
    let directory = sector(&image);
    image.extend_from_slice(&tables.to_le_bytes());
    pad(&mut image);
    marker(&mut image, 1, 3);
    header[56..64].copy_from_slice(&u64::from(directory).to_le_bytes());
    image.extend_from_slice(&header);
    marker(&mut image, 0, 0);
    image
}
