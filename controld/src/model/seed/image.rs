//! Files to an ISO 9660 image as cloud-init looks for it.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use hadris_iso::read::PathSeparator;
use hadris_iso::write::options::{CreationFeatures, IsoFormatOptions};
use hadris_iso::write::{InputEntry, InputEntryKind, InputMetadata, InputTree, IsoCreationError, IsoImageWriter};

/// The only sector size that the writer knows, and that of a CD.
const SECTOR: usize = 2048;
/// busybox' `findfs` was seen not to find the label of an image of 57 KB, and to find that of one of 96 KB. This is the
/// size of the smallest image of xorriso.
const MIN_SIZE: usize = 384 << 10;

/// The image with this label. Names are kept by Rock Ridge and, for guests that read nothing else, by Joliet; those with slashes are in
/// directories.
pub(super) fn iso(label: &str, files: &[(&str, &[u8])]) -> Result<Vec<u8>, IsoCreationError> {
    let tree = InputTree { path_separator: PathSeparator::ForwardSlash, entries: entries(files) };
    let options = IsoFormatOptions {
        volume_name: label.to_owned(),
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

fn entries(files: &[(&str, &[u8])]) -> Vec<InputEntry> {
    let mut dirs: BTreeMap<&str, Vec<(&str, &[u8])>> = BTreeMap::new();
    let mut all = Vec::new();
    for (name, bytes) in files {
        match name.split_once('/') {
            Some((dir, rest)) => dirs.entry(dir).or_default().push((rest, bytes)),
            None => all.push(entry(name, InputEntryKind::File(bytes.to_vec()), 0o400)),
        }
    }
    all.extend(dirs.into_iter().map(|(dir, files)| entry(dir, InputEntryKind::Directory(entries(&files)), 0o500)));
    all
}

/// Only the guest's root may read it: user-data may hold passwords.
fn entry(name: &str, kind: InputEntryKind, mode: u32) -> InputEntry {
    let metadata = InputMetadata { mode: Some(mode), uid: Some(0), gid: Some(0), ..InputMetadata::default() };
    InputEntry { name: Arc::new(name.to_owned()), kind, metadata }
}
