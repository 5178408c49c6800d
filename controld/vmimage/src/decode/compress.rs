//! For tests, here and in other crates: compresses what is decompressed again.

use std::io::Write as _;

use bzip2::write::BzEncoder;
use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;

use super::Compression;

/// One stream with a checksum.
///
/// # Panics
/// If an encoder fails.
pub fn compress(by: Compression, bytes: &[u8]) -> Vec<u8> {
    let out = Vec::new();
    match by {
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(out, flate2::Compression::fast());
            encoder.write_all(bytes).expect("written");
            encoder.finish()
        }
        Compression::Xz => {
            let mut encoder = XzEncoder::new(out, 1);
            encoder.write_all(bytes).expect("written");
            encoder.finish()
        }
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(out, 1).expect("an encoder");
            encoder.include_checksum(true).expect("set");
            encoder.write_all(bytes).expect("written");
            encoder.finish()
        }
        Compression::Bzip2 => {
            let mut encoder = BzEncoder::new(out, bzip2::Compression::fast());
            encoder.write_all(bytes).expect("written");
            encoder.finish()
        }
    }
    .expect("finished")
}
