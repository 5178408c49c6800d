//! For the fuzzer: the documents of a mirror.

use super::default_kinds;
use super::tree::{Dated as _, Index, Products};

/// Reads bytes as an index and as products.
///
/// # Panics
/// When a disk is above the mirror's root.
pub fn exercise(bytes: &[u8]) {
    if let Ok(index) = Index::parse(bytes) {
        assert!(index.files.values().all(|path| is_below(path)), "{:?}", index.files);
    }
    let Ok(products) = Products::parse(bytes) else { return };
    let kinds = default_kinds();
    for item in products.newest(&kinds) {
        for name in item.names() {
            assert!(products.named(name, &kinds).next().is_some(), "not found by its name `{name}`");
        }
        let _told = (item.platform(), item.format(), item.updated());
        if let Ok(disk) = item.checked() {
            assert!(is_below(&disk.path) && disk.hashes().next().is_some(), "{}", disk.path);
        }
    }
}

fn is_below(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|part| part != "..")
}
