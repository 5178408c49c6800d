//! Ethernet addresses.
//!
//! Called by [`crate::settings`] and `claim`. `tapmanager` converts from its own type, which this leaf does not
//! know.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

/// A text that is no Ethernet address, or not one for a NIC.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MacError {
    /// Not six bytes.
    #[error("`{}` is not an Ethernet address such as `02:00:00:00:00:01`", text.escape_debug())]
    Form {
        /// The text.
        text: String,
    },
    /// A group's, or none.
    #[error("`{mac}` cannot be the address of one NIC; use a unicast address that is not all zeroes")]
    NotOfOne {
        /// The address.
        mac: Mac,
    },
}

// === impl Mac ===

impl Mac {
    /// What a PF reports of a VF that has no address of it.
    pub const UNSET: Self = Self([0; 6]);

    /// The same address, if one NIC can have it.
    ///
    /// # Errors
    /// If it is that of a group, or all zeroes.
    pub fn of_one(self) -> Result<Self, MacError> {
        let group = self.0[0] & 1 == 1;
        if group || self == Self::UNSET { Err(MacError::NotOfOne { mac: self }) } else { Ok(self) }
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        let mut next = || {
            let part = parts.next().filter(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(part, 16).ok()
        };
        let whole = bytes.iter_mut().all(|byte| next().map(|part| *byte = part).is_some());
        if whole && parts.next().is_none() {
            Ok(Self(bytes))
        } else {
            Err(MacError::Form { text: text.chars().take(32).collect() })
        }
    }
}

impl TryFrom<String> for Mac {
    type Error = MacError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let lead = if place == 0 { "" } else { ":" };
            write!(f, "{lead}{byte:02x}")?;
        }
        Ok(())
    }
}
