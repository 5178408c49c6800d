//! What a section of an index says, in values.

use std::collections::BTreeMap;

use common::Reason;
use vmimage::error::printable;

use super::Section;
use crate::sources::provider::mirror::stays_below;
use crate::sources::provider::{HashAlg, ImageHash, Platform};

/// Fields that may go on in another line.
const MULTILINE: &str = "notes";

/// An image of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The section's name, `os-version`.
    pub name: String,
    /// The full name, for people.
    pub title: Option<String>,
    /// The architecture, by any of its names.
    pub arch: Platform,
    /// Where the image is, from the directory of the index.
    pub file: String,
    /// Checksums of the file as it is hosted, the strongest first.
    pub checksums: Vec<ImageHash>,
    /// The greater one is newer.
    pub revision: u64,
    /// `raw`, `qcow2` or other; nothing means that it is to be found out.
    pub format: Option<String>,
    /// Bytes of the disk.
    pub size: u64,
    /// Bytes of the file.
    pub compressed_size: Option<u64>,
    /// The system in libosinfo's words.
    pub osinfo: Option<String>,
    /// Partition to grow.
    pub expand: Option<String>,
    /// Logical volume to grow.
    pub lvexpand: Option<String>,
    /// Notes by language.
    pub notes: BTreeMap<String, String>,
    /// Not to be listed.
    pub hidden: bool,
    /// Other names.
    pub aliases: Vec<String>,
}

impl Entry {
    pub(super) fn of(section: &Section) -> Result<Self, Reason> {
        let continued = section.fields.iter().find(|((key, _), field)| field.continued && key != MULTILINE);
        if let Some(((key, _), _)) = continued {
            return Err(Reason::new(format!("`{}` goes on in another line; only `{MULTILINE}` may", printable(key))));
        }
        let get = |key: &str| section.fields.get(&(key.to_owned(), String::new())).map(|field| field.value.as_str());
        let text = |key: &str| get(key).filter(|value| !value.is_empty()).map(str::to_owned);
        let must = |field| get(field).ok_or_else(|| Reason::new(format!("no `{field}`")));
        let number = |field| get(field).map(|value| number(field, value)).transpose();

        let arch = must("arch")?.trim();
        if arch.is_empty() || !arch.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) {
            return Err(value("arch", arch, "no architecture"));
        }
        let mut platform = Platform::linux(arch);
        let osinfo = text("osinfo");
        // The index does not say what runs in an image; the names of one system give it away.
        if osinfo.as_deref().unwrap_or(&section.name).starts_with("win") {
            platform.os = "windows".to_owned();
        }
        let notes = section.fields.iter().filter(|((key, _), _)| key == "notes");
        Ok(Self {
            name: section.name.clone(),
            title: text("name"),
            arch: platform,
            file: path(must("file")?)?,
            checksums: checksums(section)?,
            revision: number("revision")?.unwrap_or(1),
            format: text("format").filter(|format| format != "auto"),
            size: number("size")?.ok_or(Reason::new("no `size`"))?,
            compressed_size: number("compressed_size")?,
            osinfo,
            expand: text("expand"),
            lvexpand: text("lvexpand"),
            notes: notes.map(|((_, lang), field)| (lang.clone(), field.value.clone())).collect(),
            hidden: match get("hidden") {
                None | Some("false") => false,
                Some("true") => true,
                Some(other) => return Err(value("hidden", other, "`true` or `false`")),
            },
            aliases: aliases(section),
        })
    }

    /// Whether the image goes by that name, by its own or by another.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

/// The other names of a section.
pub(super) fn aliases(section: &Section) -> Vec<String> {
    let field = section.fields.get(&("aliases".to_owned(), String::new()));
    field.into_iter().flat_map(|field| field.value.split_ascii_whitespace()).map(str::to_owned).collect()
}

fn value(field: &'static str, value: &str, what: &'static str) -> Reason {
    Reason::new(format!("`{field}={}`: {what}", printable(value)))
}

/// A number as virt-builder writes them: decimal, or hexadecimal after `0x`.
fn number(field: &'static str, text: &str) -> Result<u64, Reason> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let sound = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let parsed = sound.then(|| u64::from_str_radix(digits, radix).ok()).flatten();
    // Its numbers have a sign and 63 bits, and a greater one wraps there.
    parsed.filter(|number| *number < 1 << 62).ok_or_else(|| value(field, text, "no number of bytes or count"))
}

/// A path below the directory of the index.
fn path(text: &str) -> Result<String, Reason> {
    if stays_below(text) { Ok(text.to_owned()) } else { Err(value("file", text, "not a path below the index")) }
}

fn checksums(section: &Section) -> Result<Vec<ImageHash>, Reason> {
    let mut found = BTreeMap::new();
    let mut unknown = Vec::new();
    for ((key, sub), field) in &section.fields {
        if key != "checksum" {
            continue;
        }
        // Plain `checksum` comes first and is replaced by `checksum[sha512]`, which it stands for.
        match if sub.is_empty() { Some(HashAlg::Sha512) } else { HashAlg::named(sub) } {
            Some(alg) => {
                let hash =
                    ImageHash::new(alg, &field.value).map_err(|_| value("checksum", &field.value, "no checksum"))?;
                found.insert(alg, hash);
            }
            None => unknown.push(printable(sub)),
        }
    }
    if found.is_empty() && !unknown.is_empty() {
        return Err(Reason::new(format!("checksums of unknown kinds only ({})", unknown.join(", "))));
    }
    Ok(found.into_values().rev().collect())
}
