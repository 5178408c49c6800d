//! Images of the store, as machines have them: nobody writes to one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An image of the store that is a disk as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskImage {
    /// `sha256:...`.
    pub id: String,
    /// Its file.
    pub file: Layer,
    /// Those that it stands on, from the top down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub below: Vec<Layer>,
}

/// The file of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub path: PathBuf,
    /// `qcow2` or `raw`.
    pub format: String,
}
