//! Percent-encoding in URLs (RFC 3986, 2.1).

use percent_encoding::percent_decode_str;

/// The text that is meant.
pub(crate) fn decoded(text: &str) -> String {
    // RFC 7617 knows of no charset but UTF-8.
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
