//! The preset dictionary of header compression: a constant of the protocol (SPDY/3 draft, section 2.6.10.1).
//!
//! It is a header block's form of common names, each behind its length, and then text without lengths.

use std::sync::LazyLock;

/// Adler-32 of the dictionary, by which a zlib stream names it.
pub(super) const ADLER: u32 = 0xe3c6_a7c2;

pub(super) static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut dictionary = Vec::new();
    for name in NAMES {
        // All are shorter than 2^32.
        dictionary.extend_from_slice(&(name.len() as u32).to_be_bytes());
        dictionary.extend_from_slice(name.as_bytes());
    }
    dictionary.extend_from_slice(TEXT.as_bytes());
    dictionary
});

#[rustfmt::skip]
const NAMES: [&str; 65] = [
    "options", "head", "post", "put", "delete", "trace",
    "accept", "accept-charset", "accept-encoding", "accept-language", "accept-ranges",
    "age", "allow", "authorization", "cache-control", "connection",
    "content-base", "content-encoding", "content-language", "content-length", "content-location", "content-md5",
    "content-range", "content-type",
    "date", "etag", "expect", "expires", "from", "host",
    "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since",
    "last-modified", "location", "max-forwards", "pragma", "proxy-authenticate", "proxy-authorization",
    "range", "referer", "retry-after", "server", "te", "trailer", "transfer-encoding", "upgrade", "user-agent",
    "vary", "via", "warning", "www-authenticate",
    "method", "get", "status", "200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin",
];

const TEXT: &str = concat!(
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505",
    "203 Non-Authoritative Information",
    "204 No Content",
    "301 Moved Permanently",
    "400 Bad Request",
    "401 Unauthorized",
    "403 Forbidden",
    "404 Not Found",
    "500 Internal Server Error",
    "501 Not Implemented",
    "503 Service Unavailable",
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT",
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,",
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dictionary_is_that_of_the_draft() {
        assert_eq!(DICTIONARY.len(), 1423);
        assert_eq!(adler32(&DICTIONARY), ADLER);
    }

    /// RFC 1950, section 8.2.
    fn adler32(bytes: &[u8]) -> u32 {
        let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        });
        b << 16 | a
    }
}
