//! Percent-encoding in URLs (RFC 3986, 2.1).

/// Percent-decoding, as the user part of a URL needs it.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digits = (byte == b'%').then(|| Some((hex_digit(ahead.next()?)?, hex_digit(ahead.next()?)?))).flatten();
        match digits {
            Some((high, low)) => {
                out.push(high << 4 | low);
                bytes = ahead;
            }
            None => out.push(byte),
        }
    }
    // RFC 7617 knows of no charset but UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
