//! Copies the disk of an image onto a block device, by the same confined `qemu-img` that converts images.
//!
//! The image has been inspected, and each file of its chain is named here: no name that stands in one is followed. Zeros are not
//! written as such: the device is told to have them, which a thin one does by giving space back.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::sandbox::{self, Job, SandboxError};
use super::{ConvertLimits, Converter};

/// A file of an image's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFile {
    /// Where it is.
    pub path: PathBuf,
    /// `qcow2` or `raw`.
    pub format: String,
}

/// Which bytes of a device are the guest's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The first one; a multiple of the device's sectors.
    pub offset: u64,
    /// How many, at least as many as the image's disk has.
    pub size: u64,
}

impl Converter {
    /// Copies the disk of an image, whose files are given from the top down, to its place on a device, until it is `unwanted`. Once
    /// this has ended, nothing is written any more: a `qemu-img` that was killed is waited for, however long the kernel has it wait for
    /// the device, which is logged as an error. Dropping the future kills it too, and does not wait. While it lives it has the very
    /// same open file as `device`, and so what is held by that.
    ///
    /// # Errors
    /// See [`SandboxError`]; what is at the place then is not defined.
    pub async fn copy_to_device(
        &self,
        chain: &[ChainFile],
        device: &File,
        place: Place,
        time: Duration,
        unwanted: impl Future<Output = ()>,
    ) -> Result<(), SandboxError> {
        let Some((top, below)) = chain.split_first() else { return Err(SandboxError::NoImage) };
        let job = Job {
            program: self.program.clone(),
            arguments: arguments(top, below, place),
            input: File::open(&top.path).map_err(SandboxError::Prepare)?,
            more_inputs: below.iter().map(|file| file.path.clone()).collect(),
            output: device.try_clone().map_err(SandboxError::Prepare)?,
            limits: ConvertLimits { time, output: place.offset.saturating_add(place.size), ..self.limits },
            patience: None,
        };
        sandbox::run_until(job, unwanted).await
    }
}

/// `-n`: what is written to is there, and is not asked what it has. Not through the page cache, which is of no use to the guest.
fn arguments(top: &ChainFile, below: &[ChainFile], place: Place) -> Vec<String> {
    let backing = below.iter().rev().fold(Value::Null, |below, file| {
        let path = file.path.display().to_string();
        layer(&file.format, &path, below)
    });
    let source = layer(&top.format, "/proc/self/fd/0", backing);
    let Place { offset, size } = place;
    let target = format!(
        "driver=raw,offset={offset},size={size},discard=unmap,file.driver=host_device,file.filename=/proc/self/fd/1,\
         file.locking=off,file.discard=unmap"
    );
    ["convert", "-n", "-t", "none", "--target-image-opts", &format!("json:{source}"), &target].map(str::to_owned).into()
}

fn layer(format: &str, path: &str, backing: Value) -> Value {
    let mut layer = json!({ "driver": format, "file": { "driver": "file", "filename": path, "locking": "off" }, "read-only": true });
    // A raw one stands on nothing, and has no word for that.
    if format != "raw" {
        layer["backing"] = backing;
    }
    layer
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    fn file(path: &str, format: &str) -> ChainFile {
        ChainFile { path: path.into(), format: format.into() }
    }

    #[test]
    fn each_file_of_the_chain_is_named_and_the_last_one_ends_it() {
        let place = Place { offset: 1 << 20, size: 63 << 20 };
        let lower = [file("/images/b", "qcow2"), file("/images/c", "raw")];
        let arguments = arguments(&file("/images/a", "qcow2"), &lower, place);
        let source = arguments[5].strip_prefix("json:").expect("a source of JSON");
        let source: Value = serde_json::from_str(source).expect("JSON");
        assert_eq!(source["file"]["filename"], "/proc/self/fd/0");
        assert_eq!(source["backing"]["file"]["filename"], "/images/b");
        assert_eq!(source["backing"]["backing"]["file"]["filename"], "/images/c");
        assert_eq!(source["backing"]["backing"].get("backing"), None);
        assert!(arguments[6].starts_with("driver=raw,offset=1048576,size=66060288,"), "{}", arguments[6]);
        let alone = layer("qcow2", "/images/a", Value::Null);
        assert_eq!(alone.get("backing"), Some(&Value::Null), "whatever its header says");
    }

    #[tokio::test]
    async fn without_an_image_there_is_nothing_to_copy() {
        let device = tempfile::tempfile().expect("a file");
        let converter = Converter::new("/usr/bin/qemu-img", ConvertLimits::default());
        let place = Place { offset: 0, size: 512 };
        let ended = converter.copy_to_device(&[], &device, place, Duration::from_secs(1), future::pending()).await;
        assert!(matches!(ended, Err(SandboxError::NoImage)), "{ended:?}");
    }
}
