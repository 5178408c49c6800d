//! Mirrors: trees of files behind a URL, with documents in them that name others by their paths.
//!
//! Used by the providers whose source is no more than a web server.

use bytes::Bytes;
use hyper::StatusCode;
use url::Url;

use crate::sources::net::{Client, FetchError, Request, Validators, decoded};

/// Longest path in a document.
const PATH: usize = 4096;

/// What came of asking for a document.
#[derive(Debug)]
pub(crate) enum Fetched {
    /// It is the one that is known.
    Unchanged,
    /// There is none.
    Missing,
    /// Here it is.
    Document {
        bytes: Bytes,
        /// What to recognise it by.
        validators: Validators,
    },
}

/// Whether a path, joined to any root, stays below it, for every server and parser on the way.
pub(crate) fn stays_below(path: &str) -> bool {
    path.len() <= PATH
        && path.split('/').all(|part| !part.is_empty() && !matches!(part, "." | ".."))
        // `%2e` is a dot to a server; `\` is a slash to parsers of URLs; `?` and `#` end a path.
        && !path.contains(['%', '\\', '?', '#'])
        && !path.chars().any(char::is_control)
}

/// The URL of a path that [`stays_below`], below `root`. Never parsed as a URL: a path may begin as one does, with a
/// word and a colon.
pub(crate) fn join(root: &Url, path: &str) -> Url {
    let mut url = root.clone();
    url.set_query(None);
    url.set_fragment(None);
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path.split('/'));
    }
    url
}

/// The name in the path of a rule's URL.
pub(crate) fn name_in(path: &str) -> String {
    decoded(path.strip_prefix('/').unwrap_or(path))
}

/// Asks for a document.
pub(crate) async fn fetch(
    client: &Client,
    request: &Request,
    limit: usize,
    known: Option<&Validators>,
) -> Result<Fetched, FetchError> {
    let answer = client.small(request, limit, known).await?;
    match answer.status {
        StatusCode::OK => Ok(Fetched::Document { bytes: answer.body, validators: answer.validators }),
        StatusCode::NOT_MODIFIED if known.is_some() => Ok(Fetched::Unchanged),
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(Fetched::Missing),
        _ => Err(answer.refusal()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_told() {
        for path in ["a", "a/b.c", "streams/v1/com.example:released:download.json", "a b", "ü", "..a", "a..", "~"] {
            assert!(stays_below(path), "{path}");
        }
        for path in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "./a",
            "%2e%2e/a",
            "..\\a",
            "a?b",
            "a#b",
            "a\0b",
            "a\nb",
            "//host/a",
            "http://host/a",
            "\u{85}",
        ] {
            assert!(!stays_below(path), "{path}");
        }
        assert!(!stays_below(&"a".repeat(5000)));
    }

    #[test]
    fn a_path_is_never_taken_for_a_url() {
        let root = Url::parse("https://host/root/").expect("a URL");
        assert_eq!(join(&root, "com.example:a/b c").as_str(), "https://host/root/com.example:a/b%20c");
        let root = Url::parse("https://host/root?x#y").expect("a URL");
        assert_eq!(join(&root, "a").as_str(), "https://host/root/a");
        assert_eq!(join(&Url::parse("https://host").expect("a URL"), "a").as_str(), "https://host/a");
    }

    proptest! {
        #[test]
        fn what_stays_below_does(path in "[a-c./\\\\:%?#~ ]{0,12}") {
            let root = Url::parse("http://host/root/").expect("a URL");
            if stays_below(&path) {
                let url = join(&root, &path);
                prop_assert!(url.as_str().starts_with("http://host/root/") && url.as_str().len() > 17);
                // Whoever reads it again reads the same.
                prop_assert_eq!(Url::parse(url.as_str()).expect("a URL"), url);
            }
        }
    }
}
