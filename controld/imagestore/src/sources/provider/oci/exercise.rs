//! For the fuzzer: every text and archive of a registry.

use std::io::Read as _;

use super::challenge;
use super::layer::{DiskLayer, Scan};
use super::manifest::{Content, Document, MAX_LAYERS, config, document};
use super::reference::Reference;
use crate::sources::provider::Unpack as _;

/// Most bytes that are taken out of a layer: one file of holes may be any size.
const MOST: u64 = 1 << 20;

/// Reads bytes as a registry's index, manifest, configuration, challenge, reference and layer.
///
/// # Panics
/// When something is accepted that must not be.
pub fn exercise(bytes: &[u8]) {
    match document(bytes, None) {
        Ok(Document::Manifest(manifest)) => {
            if let Ok(content) = manifest.content() {
                assert!((1..=MAX_LAYERS).contains(&manifest.layers.len()));
                assert!(manifest.layers.iter().all(|layer| layer.urls.is_empty() && layer.hash().is_ok()));
                assert!(!matches!(content, Content::Disk) || manifest.layers.len() == 1);
            }
        }
        Ok(Document::Index(index)) => drop(index.check()),
        Err(_) => {}
    }
    if let Ok(config) = config(bytes) {
        drop(config.platform());
        assert!(config.diff_ids(1).is_ok_and(|ids| ids.len() == 1) || config.diff_ids(1).is_err());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        drop(challenge::parse(text));
        if let Ok(reference) = Reference::parse(text, None) {
            let shown = reference.to_string();
            let again = Reference::parse(&shown, None).map(|again| again.to_string());
            assert_eq!(again.ok(), Some(shown), "not what was read");
        }
    }
    layer(bytes);
}

/// What is taken out of a layer on the way is a file that a look through the whole layer found.
fn layer(bytes: &[u8]) {
    let scan = Scan::of(bytes);
    let mut archive = bytes;
    let Ok(mut disk) = DiskLayer::default().unpack(&mut archive) else { return };
    let mut out = Vec::new();
    let whole = disk.by_ref().take(MOST).read_to_end(&mut out);
    if whole.is_ok() && (out.len() as u64) < MOST {
        let scan = scan.expect("read on the way, but not as a whole");
        assert_eq!(scan.files.len(), 1, "not one file: {:?}", scan.files);
    }
}
