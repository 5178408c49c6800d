//! User-data in any format of cloud-init, byte for byte as its author wrote it.

use std::fmt;

use super::Problem;
use super::yaml::{self, Top};

/// What Virtlet puts the mounting of volumes in the place of.
const MOUNT_SCRIPT: &str = "@virtlet-mount-script@";
/// First line of a cloud-config.
const CLOUD_CONFIG: &str = "#cloud-config";
/// How the other formats start (cloud-init, `INCLUSION_TYPES_MAP`). Those that go on where [`CLOUD_CONFIG`] ends are
/// here, so that they are told from it.
const OTHER_HEADERS: [&str; 7] = [
    "#!",
    "#include",
    "#cloud-boothook",
    "#cloud-config-archive",
    "#cloud-config-jsonp",
    "## template:",
    "#part-handler",
];
/// cloud-init takes anything for MIME that has this within its first 4096 bytes.
const MIME: &str = "mime-version:";
const MIME_WITHIN: usize = 4096;

/// User-data of a seed. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct UserData(String);

impl UserData {
    /// The user-data that a pod gives in any format. A map without a header is a cloud-config.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        if text.contains('\0') {
            return Err(Problem::Nul);
        }
        match header_of(text) {
            Header::Other => Ok(Self(text.to_owned())),
            Header::CloudConfig => match yaml::top(text)? {
                Top::Map | Top::Empty => Ok(Self(text.to_owned())),
                Top::Other => Err(Problem::NotMap { line: 2 }),
            },
            Header::None => match yaml::top(text)? {
                // A byte order mark may stand at the very beginning only.
                Top::Map => Ok(Self(format!("{CLOUD_CONFIG}\n{}", text.trim_start_matches('\u{feff}')))),
                Top::Empty | Top::Other => Err(Problem::NoFormat),
            },
        }
    }

    /// The user-data that a pod gives as a script.
    pub(super) fn script(text: &str) -> Result<Self, Problem> {
        if text.contains('\0') {
            return Err(Problem::Nul);
        }
        // No volume reaches a guest yet, so there is nothing to mount.
        Ok(Self(text.replace(MOUNT_SCRIPT, "")))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData({} bytes)", self.0.len())
    }
}

enum Header {
    CloudConfig,
    Other,
    None,
}

/// As cloud-init looks at it: letter case and space before it aside.
fn header_of(text: &str) -> Header {
    let bytes = text.as_bytes();
    let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(MIME_WITHIN)]).to_ascii_lowercase();
    let start = begin.trim_start();
    if begin.contains(MIME) || OTHER_HEADERS.iter().any(|header| start.starts_with(header)) {
        return Header::Other;
    }
    if start.starts_with(CLOUD_CONFIG) { Header::CloudConfig } else { Header::None }
}

#[cfg(test)]
mod tests;
