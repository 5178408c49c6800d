//! The native index of virt-builder: sections of fields, read by a strict grammar.
//!
//! ```text
//! # a comment, only at the beginning of a line
//! [os-version]
//! key=value
//! key[subkey]=value
//!  continued: the first blank goes, the rest is another line of the value
//! ```
//!
//! Blank lines mean nothing (guestfs-tools 1.55.6 and later). Anything else is a syntax error, and so is a section or a
//! field that comes twice: the whole index is refused then, as nobody knows what its author meant. A field whose value
//! is nonsense costs its section alone ([`Index::skipped`]).

use std::collections::{BTreeMap, BTreeSet};
use std::str::Utf8Error;

use common::Reason;
use vmimage::error::printable;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::Entry;

/// Longest value of a field, with its continuations.
const MAX_VALUE: usize = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Index {
    /// The sound sections, in order.
    pub entries: Vec<Entry>,
    /// The others, and why.
    pub skipped: Vec<Skipped>,
}

/// A section that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    pub name: String,
    /// Other names for it.
    pub aliases: Vec<String>,
    /// Why it cannot be used.
    pub cause: Reason,
}

impl Skipped {
    /// Whether the image goes by that name, by its own or by another.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// A section as it is written.
#[derive(Debug, Default)]
struct Section {
    name: String,
    fields: BTreeMap<(String, String), Field>,
}

/// A field's value.
#[derive(Debug, Default)]
struct Field {
    value: String,
    continued: bool,
}

/// Reads an index. `lenient` forgives CR LF, a byte order mark and a last line without an end, all of which the tools
/// of virt-builder refuse.
///
/// # Errors
/// When it is none.
pub fn parse(bytes: &[u8], lenient: bool) -> Result<Index, Reason> {
    let encoding = |error: Utf8Error| Reason::new(format!("not UTF-8 at byte {}", error.valid_up_to()));
    let mut text = std::str::from_utf8(bytes).map_err(encoding)?;
    match text.strip_prefix('\u{feff}') {
        Some(rest) if lenient => text = rest,
        Some(_) => return Err(Reason::new("begins with a byte order mark; set `lenient` to read it nevertheless")),
        None => {}
    }
    if !text.is_empty() && !text.ends_with('\n') && !lenient {
        return Err(Reason::new("the last line has no end; set `lenient` to read it nevertheless"));
    }
    let sections = sections(text.strip_suffix('\n').unwrap_or(text), lenient)?;
    let mut index = Index::default();
    let mut seen = BTreeSet::new();
    for section in &sections {
        match Entry::of(section) {
            Ok(entry) => {
                let arch = entry.arch.uname_arch().to_owned();
                if !seen.insert((entry.name.clone(), arch.clone())) {
                    return Err(Reason::new(format!("section `{}` for {arch} comes twice", entry.name)));
                }
                index.entries.push(entry);
            }
            Err(cause) => {
                let aliases = entry::aliases(section);
                index.skipped.push(Skipped { name: section.name.clone(), aliases, cause });
            }
        }
    }
    Ok(index)
}

fn sections(text: &str, lenient: bool) -> Result<Vec<Section>, Reason> {
    let mut sections: Vec<Section> = Vec::new();
    // The field that a continuation belongs to.
    let mut last: Option<(String, String)> = None;
    for (at, line) in text.split('\n').enumerate() {
        let at = at + 1;
        let syntax = |what| Reason::new(format!("line {at}: {what}"));
        let too_long = || Reason::new(format!("line {at}: the value has more than {MAX_VALUE} bytes"));
        let line = match line.strip_suffix('\r') {
            Some(rest) if lenient => rest,
            Some(_) => {
                return Err(Reason::new(format!("line {at} ends in CR LF; set `lenient` to read it nevertheless")));
            }
            None => line,
        };
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(Reason::new(format!("line {at} has a control character")));
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let name = header
                .trim_end_matches([' ', '\t'])
                .strip_suffix(']')
                .ok_or_else(|| syntax("no end of the section's name"))?;
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
                return Err(syntax("a section's name is letters, digits, `-`, `.` and `_`"));
            }
            sections.push(Section { name: name.to_owned(), ..Section::default() });
            last = None;
            continue;
        }
        if let Some(more) = line.strip_prefix([' ', '\t']) {
            let continued = last.as_ref().zip(sections.last_mut());
            let field = continued.and_then(|(key, section)| section.fields.get_mut(key));
            let field = field.ok_or_else(|| syntax("a continuation without a field before it"))?;
            field.value.push('\n');
            field.value.push_str(more);
            field.continued = true;
            if field.value.len() > MAX_VALUE {
                return Err(too_long());
            }
            continue;
        }
        let (key, value) = field(line).map_err(syntax)?;
        if value.len() > MAX_VALUE {
            return Err(too_long());
        }
        let section = sections.last_mut().ok_or_else(|| syntax("a field before the first section"))?;
        let field = Field { value: value.to_owned(), continued: false };
        if section.fields.insert(key.clone(), field).is_some() {
            let (key, sub) = key;
            let field = if sub.is_empty() { key } else { format!("{key}[{sub}]") };
            return Err(Reason::new(format!("field `{}` of `{}` comes twice", printable(&field), section.name)));
        }
        last = Some(key);
    }
    Ok(sections)
}

/// Key, subkey or nothing, and the value to the letter.
fn field(line: &str) -> Result<((String, String), &str), &'static str> {
    let (left, value) = line.split_once('=').ok_or("neither a section nor a field nor a comment")?;
    let (key, sub) = match left.split_once('[') {
        None => (left, ""),
        Some((key, rest)) => match rest.strip_suffix(']') {
            Some(sub) if !sub.is_empty() => (key, sub),
            _ => return Err("a subkey is letters, digits, `_`, `,` and `.`"),
        },
    };
    let word = |text: &str, more: &[u8]| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte));
    if key.is_empty() || !word(key, b"_.") {
        return Err("a key is letters, digits, `_` and `.`");
    }
    if !word(sub, b"_,.") {
        return Err("a subkey is letters, digits, `_`, `,` and `.`");
    }
    Ok(((key.to_owned(), sub.to_owned()), value))
}
