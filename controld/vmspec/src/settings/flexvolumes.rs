//! Settings of flexvolumes, which pods of Virtlet may have.

use serde::Deserialize;

/// What pods may have by flexvolumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlexvolumesConfig {
    /// Whether there are any.
    pub enabled: bool,
}
