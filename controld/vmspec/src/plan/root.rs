//! The root disk.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Layer, PersistentRoot, VolumeDisk};
use crate::words::words;

/// An overlay that the guest writes to, on images of the store that nobody writes to. The overlay is the pod's: it goes with
/// the folder of the pod's disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootDisk {
    /// The overlay, qcow2. With a root disk that is a volume there is none, and only the folder that it would be in is the pod's.
    pub overlay: PathBuf,
    /// The images below it, from the top down; with a persistent root those that are copied to it.
    pub images: Vec<Layer>,
    /// The volume that the guest boots from in place of an overlay, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistent: Option<PersistentRoot>,
    /// What it boots from of a volume that kubelet has mounted, if it does: then nothing is made of the images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<VolumeDisk>,
}

words! {
    /// How long an overlay lasts.
    #[derive(Default)]
    RootLifetime or NoRootLifetime "use `pod` or `container`" {
        /// As long as the pod: a container that is made again finds what the one before has written.
        #[default]
        Pod = "pod",
        /// As long as a container: the next one begins with what the image has.
        Container = "container",
    }
}
