//! For the fuzzer: an index.

use super::index::parse;

/// Reads bytes as an index, strictly and leniently.
///
/// # Panics
/// When both differ in what both take, or a file is above the index.
pub fn exercise(bytes: &[u8]) {
    let lenient = parse(bytes, true);
    if let Ok(index) = &lenient {
        for entry in &index.entries {
            let is_below = !entry.file.is_empty() && !entry.file.starts_with('/') && !entry.file.contains("://");
            assert!(is_below && entry.file.split('/').all(|part| part != ".."), "`{}`", entry.file);
        }
    }
    if let Ok(index) = parse(bytes, false) {
        assert_eq!(Some(index), lenient.ok(), "leniently it is another");
    }
}
