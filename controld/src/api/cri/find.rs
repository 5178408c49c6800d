//! Ids as callers write them: whole, or the beginning of one, since crictl prints 13 characters and people paste them.

use vmspec::error::{Error, Kind, Result};

/// The one id that is `text` or begins with it.
///
/// # Errors
/// When there is none, or more than one.
pub(super) fn by_prefix<T>(what: &str, text: &str, all: impl Iterator<Item = (String, T)>) -> Result<T> {
    if text.is_empty() {
        return Err(Error::new(Kind::Invalid, format!("no {what} id given")));
    }
    let mut found: Option<T> = None;
    let mut several = false;
    for (id, item) in all {
        if id == text {
            return Ok(item);
        }
        if id.starts_with(text) {
            several |= found.is_some();
            found = Some(item);
        }
    }
    let shown = common::shown(text, 64);
    match found {
        Some(_) if several => {
            Err(Error::new(Kind::Invalid, format!("{what} id `{shown}` is ambiguous; write more of it")))
        }
        Some(item) => Ok(item),
        None => Err(Error::new(Kind::NotFound, format!("no {what} `{shown}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<usize> {
        by_prefix(
            "sandbox",
            text,
            ["ab", "abc", "abd", "xyz"].into_iter().enumerate().map(|(n, id)| (id.to_owned(), n)),
        )
    }

    #[test]
    fn whole_ids_win_and_prefixes_must_be_unique() {
        assert_eq!(find("ab").ok(), Some(0), "a whole id is never ambiguous");
        assert_eq!(find("x").ok(), Some(3));
        assert_eq!(find("a").expect_err("three").kind(), Kind::Invalid);
        assert_eq!(find("q").expect_err("none").kind(), Kind::NotFound);
        assert_eq!(find("").expect_err("nothing").kind(), Kind::Invalid);
    }
}
