//! The commands and files that a document shows, for cases that do as it says.

use anyhow::{Context as _, Result};

/// The fenced block of `document` that has `mark` in it.
///
/// # Errors
/// When there is none.
pub fn block<'a>(document: &'a str, mark: &str) -> Result<&'a str> {
    let fenced = document.split("\n```").skip(1).step_by(2);
    // What stands behind the fence is the language.
    let blocks = fenced.filter_map(|block| Some(block.split_once('\n')?.1));
    let mut blocks = blocks.filter(|block| block.contains(mark));
    blocks.next().with_context(|| format!("no block of the document has `{mark}`"))
}
