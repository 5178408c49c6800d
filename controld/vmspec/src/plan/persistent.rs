//! A root disk that outlives its pod: a block volume, on which the image is copied once.

use serde::{Deserialize, Serialize};

use super::BlockDevice;
use crate::words::words;

/// A block volume that a machine boots from. It is the cluster's: nothing of it goes with the pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PersistentRoot {
    pub device: BlockDevice,
    /// The cluster's name of the volume, whatever its device is on this node.
    pub volume: String,
    /// Bytes of the disk of the image that the pod wants.
    pub virtual_size: u64,
    pub on_image_change: OnImageChange,
    /// The volume is a disk already: nothing is copied to it, and the guest has all of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub as_is: bool,
    /// The image was converted on this node: elsewhere the same one may have another id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub converted: bool,
}

words! {
    /// What becomes of a root disk that has a copy of another image than the one that the pod wants.
    #[derive(Default)]
    OnImageChange or NoOnImageChange "use `reimage`, `keep` or `error`" {
        /// The image is copied over it, and all that the guest has written is gone.
        #[default]
        Reimage = "reimage",
        /// The guest boots from what is there.
        Keep = "keep",
        /// The machine does not start.
        Error = "error",
    }
}

words! {
    /// What a block volume at `/` is to a pod.
    #[derive(Default)]
    RootDevice {
        /// A place for a copy of the pod's image.
        #[default]
        Image = "image",
        /// A disk, as it is.
        AsIs = "as-is",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::DeviceNumber;

    #[test]
    fn a_record_of_a_persistent_root_is_read_as_it_was_written() {
        let device = BlockDevice { node: "/dev/vdb".into(), number: DeviceNumber { major: 252, minor: 16 } };
        let root = PersistentRoot {
            device,
            volume: "pvc-1".into(),
            virtual_size: 1 << 30,
            on_image_change: OnImageChange::Keep,
            as_is: false,
            converted: false,
        };
        let text = serde_json::to_string(&root).expect("written");
        assert_eq!(
            text,
            r#"{"device":{"node":"/dev/vdb","number":"252:16"},"volume":"pvc-1","virtual_size":1073741824,"on_image_change":"keep"}"#
        );
        assert_eq!(serde_json::from_str::<PersistentRoot>(&text).expect("read"), root);
    }
}
