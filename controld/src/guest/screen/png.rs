//! A picture as a file that everybody can open: PNG (ISO/IEC 15948), without any of its refinements.

use std::io::{self, Write};

use flate2::Compression;
use flate2::Crc;
use flate2::write::ZlibEncoder;

use super::rfb::Picture;

const SIGNATURE: &[u8; 8] = b"\x89PNG\r\n\x1a\n";
/// 8 bits each of red, green and blue; compressed, filtered and not interlaced as all PNG are.
const KIND: [u8; 5] = [8, 2, 0, 0, 0];

/// Writes a picture.
pub(super) fn write(picture: &Picture, mut to: impl Write) -> io::Result<()> {
    let head = [&u32::from(picture.width).to_be_bytes()[..], &u32::from(picture.height).to_be_bytes(), &KIND].concat();
    let mut data = ZlibEncoder::new(Vec::new(), Compression::fast());
    for line in picture.rgb.chunks_exact(usize::from(picture.width).max(1) * 3) {
        // A line as it is, and not as what differs from the one above.
        data.write_all(&[0])?;
        data.write_all(line)?;
    }
    to.write_all(SIGNATURE)?;
    for (name, bytes) in [(b"IHDR", head), (b"IDAT", data.finish()?), (b"IEND", Vec::new())] {
        chunk(*name, &bytes, &mut to)?;
    }
    to.flush()
}

fn chunk(name: [u8; 4], bytes: &[u8], mut to: impl Write) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).map_err(|_| io::Error::other("the picture is too large for PNG"))?;
    let mut sum = Crc::new();
    sum.update(&name);
    sum.update(bytes);
    to.write_all(&length.to_be_bytes())?;
    to.write_all(&name)?;
    to.write_all(bytes)?;
    to.write_all(&sum.sum().to_be_bytes())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn a_picture_has_its_size_and_its_pixels() {
        let picture = Picture { width: 2, height: 2, rgb: (0..12).collect() };
        let mut file = Vec::new();
        write(&picture, &mut file).expect("written");
        assert!(file.starts_with(SIGNATURE));
        assert_eq!(file[8..33], *b"\0\0\0\x0dIHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0\xfd\xd4\x9a\x73");
        // The sum of an empty chunk of that name is always the same.
        assert!(file.ends_with(b"\0\0\0\0IEND\xaeB`\x82"));
        let length = u32::from_be_bytes(file[33..37].try_into().expect("four")) as usize;
        let mut lines = Vec::new();
        ZlibDecoder::new(&file[41..41 + length]).read_to_end(&mut lines).expect("data");
        assert_eq!(lines, [0, 0, 1, 2, 3, 4, 5, 0, 6, 7, 8, 9, 10, 11]);
    }
}
