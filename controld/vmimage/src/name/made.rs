//! Names for images that a person brings by hand: made of the URL or of the file that the image comes from.
//!
//! What a URL has and a name cannot have (upper case, a query) is in the tag, as a digest: two URLs never get one name. A registry's URL has
//! a name in it already.

use common::Reason;
use percent_encoding::percent_decode_str;
use sha2::{Digest as _, Sha256};
use url::Url;

use super::{ImageRef, MAX_NAME};
use crate::digest::hex;
use crate::error::printable;

/// The provider of an image that a person sent, in records and in the lists of providers that handlers may be served by.
pub const IMPORT: &str = "import";
/// Where images are that came from no server.
const LOCAL: &str = "localhost/";
/// What an image is called whose file has no name to speak of.
const NAMELESS: &str = "disk";
/// Characters of a URL's digest in a tag: enough that nobody makes another URL of the same name for a while.
const TAG_DIGITS: usize = 24;
/// Schemes of places that a person may name. Files of the node are none: who has a file sends it.
const GIVEN: [&str; 4] = ["https", "http", "oci", "docker"];

/// A place that a person names, in place of rules and providers.
///
/// # Errors
/// If the text is no URL, or one of another scheme.
pub fn given_url(text: &str) -> Result<Url, Reason> {
    let url = Url::parse(text).map_err(Reason::because("not a URL"))?;
    match url.scheme() {
        scheme if GIVEN.contains(&scheme) => Ok(url),
        scheme => {
            let scheme = printable(scheme);
            Err(Reason::new(format!("scheme `{scheme}` is not one of {}", GIVEN.join(", "))))
        }
    }
}

impl ImageRef {
    /// The name for what is behind a URL: the one that a registry's URL has in it, and of any other its host and its path as far as a
    /// name can have them, and a tag that is of this very URL. A login in the URL is no part of it.
    ///
    /// # Errors
    /// If the URL has no host, or one that no name can have; if a registry's URL has no name in it.
    pub fn of_url(url: &Url) -> Result<Self, Reason> {
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(Reason::new("the URL names no host"))?;
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        if matches!(url.scheme(), "oci" | "docker") {
            let path = Some(url.path()).filter(|path| path.len() > 1).ok_or(Reason::new("the URL names no image"))?;
            return format!("{host}{path}").parse();
        }
        let mut plain = url.clone();
        plain.set_fragment(None);
        // Every URL with a host takes these.
        let _ = plain.set_username("").and_then(|()| plain.set_password(None));
        let digest = hex(&Sha256::digest(plain.as_str()));
        let segments = url.path_segments().into_iter().flatten();
        let parts =
            segments.filter_map(|segment| component(&percent_decode_str(segment).decode_utf8_lossy())).collect();
        format!("{host}/{}:url-{}", path(parts, MAX_NAME.saturating_sub(host.len() + 1)), &digest[..TAG_DIGITS]).parse()
    }

    /// The name for a file that has that name, without its directories: `localhost/NAME:latest`.
    ///
    /// # Errors
    /// Never, as it is made of what a name may have.
    pub fn of_file(name: &str) -> Result<Self, Reason> {
        let parts = component(name).into_iter().collect();
        format!("{LOCAL}{}", path(parts, MAX_NAME - LOCAL.len())).parse()
    }

    /// Whether an image of that name comes from no server: who asks for it can only mean what was brought here by hand.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.name.as_str().starts_with(LOCAL)
    }
}

/// The last parts of a path that have room.
fn path(mut parts: Vec<String>, room: usize) -> String {
    let length = |parts: &[String]| parts.iter().map(|part| part.len() + 1).sum::<usize>();
    while parts.len() > 1 && length(&parts) > room + 1 {
        parts.remove(0);
    }
    let mut path = if parts.is_empty() { NAMELESS.to_owned() } else { parts.join("/") };
    if path.len() > room {
        // All of it is ASCII, and its end says more than its beginning.
        path.drain(..path.len() - room);
        path.drain(..path.find(|c: char| c.is_ascii_alphanumeric()).unwrap_or_default());
    }
    path
}

/// A text as a part of a path, if it has any letter or digit.
fn component(text: &str) -> Option<String> {
    let (mut made, mut between) = (String::new(), String::new());
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            if !made.is_empty() {
                made.push_str(joint(&between));
            }
            between.clear();
            made.push(c);
        } else {
            between.push(if matches!(c, '.' | '_') { c } else { '-' });
        }
    }
    (!made.is_empty()).then_some(made)
}

/// What may stand between letters and digits, in place of this.
fn joint(between: &str) -> &str {
    if matches!(between, "" | "." | "_" | "__") { between } else { "-" }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of_url(text: &str) -> String {
        ImageRef::of_url(&Url::parse(text).expect("a URL")).expect("a name").to_string()
    }

    #[test]
    fn a_url_makes_a_name_that_people_recognise() {
        for (url, expected) in [
            ("https://host/Path/Image.qcow2?a=B", "host/path/image.qcow2:url-"),
            ("http://Images.Example.com:8080/a%20b/%C3%84x__y..z/", "images.example.com:8080/a-b/x__y-z:url-"),
            ("https://[::1]:8443/a", "[::1]:8443/a:url-"),
            ("https://h.example", "h.example/disk:url-"),
            ("https://h.example/.../-_-", "h.example/disk:url-"),
        ] {
            let name = of_url(url);
            assert!(name.starts_with(expected), "{url}: {name}");
            assert_eq!(name.len(), expected.len() + TAG_DIGITS, "{name}");
        }
        assert!(ImageRef::of_url(&Url::parse("file:///a").expect("a URL")).is_err());
    }

    #[test]
    fn two_urls_never_share_a_name_and_a_login_makes_no_difference() {
        let all = ["https://h/a", "https://h/A", "http://h/a", "https://h/a?x", "https://h/a?y", "https://h/%61?x"];
        let names: std::collections::BTreeSet<_> = all.iter().map(|url| of_url(url)).collect();
        assert_eq!(names.len(), all.len(), "{names:?}");
        assert_eq!(of_url("https://user:secret@h/a#x"), of_url("https://h/a"));
    }

    #[test]
    fn a_file_makes_a_local_name() {
        for (file, expected) in [
            ("disk.qcow2", "localhost/disk.qcow2:latest"),
            ("My Disk (1).RAW", "localhost/my-disk-1-raw:latest"),
            ("..", "localhost/disk:latest"),
            ("", "localhost/disk:latest"),
        ] {
            let name = ImageRef::of_file(file).expect("a name");
            assert_eq!(name.to_string(), expected, "{file}");
            assert!(name.is_local());
        }
        for other in ["localhost:5000/x", "localhosts/x", "x/localhost/y"] {
            assert!(!other.parse::<ImageRef>().expect("a name").is_local(), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_file_and_any_path_make_a_name(text: String, long in "[a-zA-Z./_-]{0,600}", odd in "[ -~]{0,40}") {
            for name in [&text, &long, &odd] {
                prop_assert!(ImageRef::of_file(name).is_ok(), "{name:?}");
            }
            let mut url = Url::parse("https://h.example/").expect("a URL");
            for path in [&text, &long, &odd] {
                url.set_path(path);
                let name = ImageRef::of_url(&url);
                prop_assert!(name.is_ok(), "{url}: {name:?}");
            }
        }
    }
}
