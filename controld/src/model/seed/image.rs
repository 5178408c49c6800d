//! Files to an ISO 9660 image as cloud-init's NoCloud looks for it.

use std::io::Cursor;
use std::sync::Arc;

use hadris_iso::read::PathSeparator;
use hadris_iso::write::options::{CreationFeatures, IsoFormatOptions};
use hadris_iso::write::{InputEntry, InputEntryKind, InputMetadata, InputTree, IsoCreationError, IsoImageWriter};

pub(super) const META_DATA: &str = "meta-data";
pub(super) const USER_DATA: &str = "user-data";
pub(super) const NETWORK_CONFIG: &str = "network-config";
pub(super) const VENDOR_DATA: &str = "vendor-data";
pub(super) const AGENT: &str = "virtlet-agent";

/// Volume label that makes a disk NoCloud's.
const LABEL: &str = "cidata";
/// The only sector size that the writer knows, and that of a CD.
const SECTOR: usize = 2048;
/// busybox' `findfs` was seen not to find the label of an image of 57 KB, and to find that of one of 96 KB. This is the
/// size of the smallest image of xorriso.
const MIN_SIZE: usize = 384 << 10;

/// The image. Names are kept by Rock Ridge and, for guests that read nothing else, by Joliet.
pub(super) fn iso(files: &[(&'static str, &[u8])]) -> Result<Vec<u8>, IsoCreationError> {
    let entry = |(name, bytes): &(&'static str, &[u8])| InputEntry {
        name: Arc::new((*name).to_owned()),
        kind: InputEntryKind::File(bytes.to_vec()),
        // Only the guest's root: user-data may hold passwords.
        metadata: InputMetadata { mode: Some(0o400), uid: Some(0), gid: Some(0), ..InputMetadata::default() },
    };
    let tree = InputTree { path_separator: PathSeparator::ForwardSlash, entries: files.iter().map(entry).collect() };
    let options = IsoFormatOptions {
        volume_name: LABEL.to_owned(),
        system_id: None,
        volume_set_id: None,
        publisher_id: None,
        preparer_id: None,
        application_id: None,
        sector_size: SECTOR,
        features: CreationFeatures::extensions(),
        path_separator: PathSeparator::ForwardSlash,
        strict_charset: false,
    };
    let mut image = IsoImageWriter::create(Cursor::new(Vec::new()), tree, options)?.into_inner();
    let size = image.len().next_multiple_of(SECTOR).max(MIN_SIZE);
    image.resize(size, 0);
    Ok(image)
}
