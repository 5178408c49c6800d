//! User-data in any format of cloud-init, byte for byte as its author wrote it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

use super::Problem;
use crate::yaml::{self, Top};

/// First line of a cloud-config.
pub(crate) const CLOUD_CONFIG: &str = "#cloud-config";
/// How the other formats start (cloud-init, `INCLUSION_TYPES_MAP`). Those that go on where [`CLOUD_CONFIG`] ends are
/// here, so that they are told from it.
const OTHER_HEADERS: [&str; 7] = [
    SCRIPT,
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "## template:",
    "#part-handler",
];
const SCRIPT: &str = "#!";
/// cloud-init takes anything for MIME that has this within its first 4096 bytes.
const MIME: &str = "mime-version:";
const MIME_WITHIN: usize = 4096;
/// Key of a cloud-config that says what is done with vendor-data.
const VENDOR_DATA: &str = "vendor_data";
/// What a file of gzip begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// User-data of a seed. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData {
    bytes: Vec<u8>,
    format: Format,
}

/// What cloud-init takes it for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Format {
    /// A cloud-config with these keys at its top.
    CloudConfig(BTreeSet<String>),
    /// The same without the line that makes it one.
    Map(BTreeSet<String>),
    Script,
    /// Whatever else it knows.
    Other,
}

impl UserData {
    /// The user-data that a pod gives in any format. A map without a header is a cloud-config.
    pub(crate) fn parse(text: &str) -> Result<Self, Problem> {
        if text.contains('\0') {
            return Err(Problem::Nul);
        }
        let format = match header_of(text) {
            Header::Script => Format::Script,
            Header::Other => Format::Other,
            Header::CloudConfig => match yaml::top(text)? {
                Top::Map(keys) => Format::CloudConfig(keys),
                Top::Empty => Format::CloudConfig(BTreeSet::new()),
                Top::Other => return Err(Problem::NotMap { line: 2 }),
            },
            Header::None => match yaml::top(text)? {
                Top::Map(keys) => Format::Map(keys),
                Top::Empty | Top::Other => return Err(Problem::NoFormat),
            },
        };
        Ok(Self { bytes: text.into(), format })
    }

    /// The user-data that a pod gives as a script.
    pub(super) fn script(text: &str) -> Result<Self, Problem> {
        if text.contains('\0') {
            return Err(Problem::Nul);
        }
        Ok(Self { bytes: text.into(), format: Format::Script })
    }

    /// The user-data that a file is. What is no text is for cloud-init to take apart, as it does with gzip.
    pub(crate) fn of_file(bytes: &[u8]) -> Result<Self, Problem> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !bytes.starts_with(&GZIP) => Self::parse(text),
            _ => Ok(Self { bytes: bytes.to_owned(), format: Format::Other }),
        }
    }

    /// The same as another script.
    pub(crate) fn with_script(self, text: String) -> Self {
        Self { bytes: text.into_bytes(), ..self }
    }

    pub(crate) fn format(&self) -> &Format {
        &self.format
    }

    /// As it was written.
    #[must_use]
    pub fn as_written(&self) -> &[u8] {
        &self.bytes
    }

    /// As cloud-init takes it.
    #[must_use]
    pub fn for_cloud_init(&self) -> Cow<'_, [u8]> {
        match self.format {
            Format::Map(_) => {
                let mut whole = format!("{CLOUD_CONFIG}\n").into_bytes();
                // A byte order mark may stand at the very beginning only.
                whole.extend(self.bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&self.bytes));
                whole.into()
            }
            _ => self.bytes.as_slice().into(),
        }
    }

    /// The map that it is, if it is one.
    pub(crate) fn map(&self) -> Result<Option<Map<String, Value>>, Problem> {
        let (Format::CloudConfig(_) | Format::Map(_)) = self.format else { return Ok(None) };
        let text = std::str::from_utf8(&self.bytes).map_err(|_| Problem::NotYaml { line: 1 })?;
        match yaml::value(text)? {
            Value::Object(map) => Ok(Some(map)),
            // Comments alone.
            Value::Null => Ok(Some(Map::new())),
            _ => Err(Problem::NotMap { line: 2 }),
        }
    }

    /// Whether it tells cloud-init to take nothing of vendor-data, as cloud-init reads that: a `vendor_data` that is no map is a no.
    #[must_use]
    pub fn refuses_vendor_data(&self) -> bool {
        let (Format::CloudConfig(keys) | Format::Map(keys)) = &self.format else { return false };
        if !keys.contains(VENDOR_DATA) {
            return false;
        }
        let said = self.map().ok().flatten().and_then(|mut map| map.remove(VENDOR_DATA));
        match said {
            Some(Value::Object(said)) => said.get("enabled").is_some_and(|enabled| !is_true(enabled)),
            Some(_) => true,
            None => false,
        }
    }
}

/// `is_true` of cloud-init's `util.py`.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_u64() == Some(1),
        Value::String(text) => ["true", "1", "on", "yes"].contains(&text.trim().to_lowercase().as_str()),
        _ => false,
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.bytes.len())
    }
}

enum Header {
    CloudConfig,
    Script,
    Other,
    None,
}

/// As cloud-init looks at it: letter case and space before it aside.
fn header_of(text: &str) -> Header {
    let bytes = text.as_bytes();
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(MIME_WITHIN)]).to_ascii_lowercase();
    let start = begin.trim_start();
    if begin.contains(MIME) {
        return Header::Other;
    }
    match OTHER_HEADERS.iter().find(|header| start.starts_with(*header)) {
        Some(&SCRIPT) => Header::Script,
        Some(_) => Header::Other,
        None if start.starts_with(CLOUD_CONFIG) => Header::CloudConfig,
        None => Header::None,
    }
}

#[cfg(test)]
mod tests;
