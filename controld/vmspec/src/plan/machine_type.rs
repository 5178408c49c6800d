//! QEMU's machine types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest name of a machine type or of a CPU model.
const MAX_NAME: usize = 64;

/// QEMU's machine type: `q35` or `pc`, or one version of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineType(String);

/// What machine types are versions of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chipset {
    /// PCI Express.
    Q35,
    /// PCI.
    I440fx,
}

/// Why a text is no machine type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("use `q35`, `pc`, or one version of them, as `pc-q35-10.0`")]
pub struct NoMachineType;

impl MachineType {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn chipset(&self) -> Chipset {
        if self.0 == "pc" || self.0.starts_with("pc-i440fx-") { Chipset::I440fx } else { Chipset::Q35 }
    }
}

impl Default for MachineType {
    fn default() -> Self {
        Self("q35".into())
    }
}

impl FromStr for MachineType {
    type Err = NoMachineType;

    fn from_str(text: &str) -> Result<Self, NoMachineType> {
        let version = text.strip_prefix("pc-q35-").or_else(|| text.strip_prefix("pc-i440fx-"));
        let known = matches!(text, "q35" | "pc") || version.is_some_and(|version| !version.is_empty());
        if known && is_name(text) { Ok(Self(text.to_owned())) } else { Err(NoMachineType) }
    }
}

impl TryFrom<String> for MachineType {
    type Error = NoMachineType;

    fn try_from(text: String) -> Result<Self, NoMachineType> {
        text.parse()
    }
}

impl From<MachineType> for String {
    fn from(MachineType(name): MachineType) -> Self {
        name
    }
}

impl fmt::Display for MachineType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether it can be a name of QEMU's.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    text.len() <= MAX_NAME && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_types_are_of_two_chipsets() {
        for (text, chipset) in [
            ("q35", Chipset::Q35),
            ("pc-q35-10.0", Chipset::Q35),
            ("pc-q35-rhel9.4.0", Chipset::Q35),
            ("pc", Chipset::I440fx),
            ("pc-i440fx-9.2", Chipset::I440fx),
        ] {
            assert_eq!(text.parse::<MachineType>().expect(text).chipset(), chipset, "{text}");
        }
        let long = format!("pc-q35-{}", "9".repeat(64));
        for text in ["", "virt", "microvm", "pc-", "pc-q35-", "Q35", "pc-q35-1\"", "pc-q35-\n", "isapc", &long] {
            assert_eq!(text.parse::<MachineType>(), Err(NoMachineType), "{text}");
        }
    }
}
