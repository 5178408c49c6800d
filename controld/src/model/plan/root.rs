//! The root disk.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An overlay that the guest writes to, on images of the store that nobody writes to. The overlay is the pod's: it goes with
/// the folder of the pod's disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootDisk {
    /// The overlay, qcow2.
    pub overlay: PathBuf,
    /// The images below it, from the top down.
    pub images: Vec<Layer>,
}

/// One image of a machine's root disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub path: PathBuf,
    /// `qcow2` or `raw`.
    pub format: String,
}
