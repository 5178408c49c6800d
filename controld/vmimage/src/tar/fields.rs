//! What stands in the fields of a header.

use super::BLOCK;

/// A text that may be filled up with zeros.
pub(super) fn until_zero(text: &[u8]) -> Vec<u8> {
    text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
}

/// The name in a header, with POSIX's prefix in front.
pub(super) fn name(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_zero(&header[..100]);
    // GNU's own form has times there.
    let prefix = if &header[257..263] == b"ustar\0" { until_zero(&header[345..500]) } else { Vec::new() };
    if prefix.is_empty() { name } else { [prefix, name].join(&b'/') }
}

/// A number of a header: octal, or binary if the first bit is set.
pub(super) fn number(field: &[u8]) -> Option<u64> {
    if field.first()? & 0x80 != 0 {
        let (first, rest) = field.split_first()?;
        // The second bit is a sign.
        if *first != 0x80 {
            return None;
        }
        return rest.iter().try_fold(0_u64, |sum, byte| sum.checked_mul(256)?.checked_add((*byte).into()));
    }
    let text = field.split(|byte| *byte == 0).next()?;
    let digits = text.trim_ascii();
    let octal = |sum: u64, byte: &u8| {
        sum.checked_mul(8)?.checked_add((b'0'..=b'7').contains(byte).then(|| u64::from(byte - b'0'))?)
    };
    digits.iter().try_fold(0, octal)
}

/// A number in digits, of extended headers and of maps.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok()
}
