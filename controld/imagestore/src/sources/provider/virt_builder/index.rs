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

use crate::error::printable;

mod entry;
#[cfg(test)]
mod tests;

pub use entry::{Entry, EntryError};

/// Longest value of a field, with its continuations.
const MAX_VALUE: usize = 1024 * 1024;

/// Why an index is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    Encoding {
        /// Where.
        at: usize,
    },
    /// A mark at its beginning.
    #[error("begins with a byte order mark; set `lenient` to read it nevertheless")]
    Mark,
    /// Lines of another system.
    #[error("line {line} ends in CR LF; set `lenient` to read it nevertheless")]
    Crlf {
        /// Where.
        line: usize,
    },
    /// Cut off.
    #[error("the last line has no end; set `lenient` to read it nevertheless")]
    Unterminated,
    /// A character that has no place in it.
    #[error("line {line} has a control character")]
    Control {
        /// Where.
        line: usize,
    },
    /// No line of the grammar.
    #[error("line {line}: {what}")]
    Syntax {
        /// Where.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A field of more than a field may have.
    #[error("line {line}: the value has more than {MAX_VALUE} bytes")]
    TooLong {
        /// Where.
        line: usize,
    },
    /// A section that comes twice.
    #[error("section `{name}` for {arch} comes twice")]
    Section { name: String, arch: String },
    /// A field that comes twice.
    #[error("field `{field}` of `{name}` comes twice")]
    Field {
        /// The section.
        name: String,
        field: String,
    },
}

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
    pub cause: EntryError,
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
pub fn parse(bytes: &[u8], lenient: bool) -> Result<Index, IndexError> {
    let mut text = std::str::from_utf8(bytes).map_err(|error| IndexError::Encoding { at: error.valid_up_to() })?;
    match text.strip_prefix('\u{feff}') {
        Some(rest) if lenient => text = rest,
        Some(_) => return Err(IndexError::Mark),
        None => {}
    }
    if !text.is_empty() && !text.ends_with('\n') && !lenient {
        return Err(IndexError::Unterminated);
    }
    let sections = sections(text.strip_suffix('\n').unwrap_or(text), lenient)?;
    let mut index = Index::default();
    let mut seen = BTreeSet::new();
    for section in &sections {
        match Entry::of(section) {
            Ok(entry) => {
                let arch = entry.arch.uname_arch().to_owned();
                if !seen.insert((entry.name.clone(), arch.clone())) {
                    return Err(IndexError::Section { name: entry.name, arch });
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

fn sections(text: &str, lenient: bool) -> Result<Vec<Section>, IndexError> {
    let mut sections: Vec<Section> = Vec::new();
    // The field that a continuation belongs to.
    let mut last: Option<(String, String)> = None;
    for (at, line) in text.split('\n').enumerate() {
        let at = at + 1;
        let syntax = |what| IndexError::Syntax { line: at, what };
        let line = match line.strip_suffix('\r') {
            Some(rest) if lenient => rest,
            Some(_) => return Err(IndexError::Crlf { line: at }),
            None => line,
        };
        if line.chars().any(|c| c.is_control() && c != '\t') {
            return Err(IndexError::Control { line: at });
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let name =
                header.trim_end_matches([' ', '\t']).strip_suffix(']').ok_or(syntax("no end of the section's name"))?;
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
            let field = field.ok_or(syntax("a continuation without a field before it"))?;
            field.value.push('\n');
            field.value.push_str(more);
            field.continued = true;
            if field.value.len() > MAX_VALUE {
                return Err(IndexError::TooLong { line: at });
            }
            continue;
        }
        let (key, value) = field(line).map_err(syntax)?;
        if value.len() > MAX_VALUE {
            return Err(IndexError::TooLong { line: at });
        }
        let section = sections.last_mut().ok_or(syntax("a field before the first section"))?;
        let field = Field { value: value.to_owned(), continued: false };
        if section.fields.insert(key.clone(), field).is_some() {
            let (key, sub) = key;
            let field = if sub.is_empty() { key } else { format!("{key}[{sub}]") };
            return Err(IndexError::Field { name: section.name.clone(), field: printable(&field) });
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
