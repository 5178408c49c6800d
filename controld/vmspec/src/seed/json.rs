//! JSON that PyYAML reads as the same values.
//!
//! cloud-init reads meta-data and network-config as YAML 1.1. JSON is nearly that, and old parsers of either read it. The
//! rest is seen to here: PyYAML refuses control characters that JSON allows, takes U+0085, U+2028 and U+2029 for line
//! breaks inside of strings, reads a surrogate pair as two characters, and takes `1e300` for a string.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// The bytes of `value`, with a newline at their end.
pub(super) fn encode(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, ForYaml))?;
    bytes.push(b'\n');
    Ok(bytes)
}

struct ForYaml;

impl Formatter for ForYaml {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        // YAML 1.1 wants the point, and the sign of the exponent.
        let point = if mantissa.contains('.') { "" } else { ".0" };
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        match exponent {
            "0" => write!(writer, "{mantissa}{point}"),
            _ => write!(writer, "{mantissa}{point}e{sign}{exponent}"),
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        for c in fragment.chars() {
            if must_escape(c) {
                write!(writer, "\\u{:04x}", u32::from(c))?;
            } else {
                writer.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Characters that YAML 1.1 does not print, and its line breaks. All have four hex digits, so no pairs are needed.
fn must_escape(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests;
