//! For the fuzzer: a repository's document, and the one beside a disk.

use super::repo::{Metadata, Repo};

/// Reads bytes as both.
///
/// # Panics
/// When a handle is above its source.
pub fn exercise(bytes: &[u8]) {
    if let Ok(repo) = Repo::parse(bytes) {
        for image in repo.search("").flatten() {
            let is_below = !image.handle.starts_with('/') && image.handle.split('/').all(|part| part != "..");
            assert!(is_below, "`{}`", image.handle);
            drop(repo.find(&image.name()));
        }
    }
    if let Ok(metadata) = Metadata::parse(bytes) {
        let _told = (metadata.promises(None), metadata.platform());
    }
}
