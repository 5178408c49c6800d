//! The Internet checksum (RFC 1071), which IPv4, UDP and ICMPv6 carry. Pure.

/// The checksum of `parts` in a row. All parts but the last have an even length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let value = |word: &[u8]| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(u16::from_be_bytes([high, 0])),
        _ => 0,
    };
    let mut sum: u32 = words.map(value).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}
