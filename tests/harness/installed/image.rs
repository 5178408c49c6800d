//! The container image that puts the programs under test on a node, as `make image` makes it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::case::Bed;
use crate::command::{command, finish};
use crate::cost::{Wait, spent};

/// Twenty seconds on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(480);
/// Of no commit, so that a clone without its history will do.
const EPOCH: &str = "1700000000";

/// An image, and the DaemonSet that runs it.
#[derive(Debug)]
pub struct Image {
    /// Its archive.
    pub archive: PathBuf,
    /// The manifest.
    pub daemonset: PathBuf,
    /// Its name, as containerd has it.
    pub name: String,
}

impl Image {
    /// Builds it.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build(bed: &Bed, tag: &str) -> Result<Self> {
        Self::build_of(bed, &bed.config.dist()?, tag)
    }

    /// One of a later release: tapmanager has other bytes.
    ///
    /// # Errors
    /// When it cannot be built.
    pub fn build_newer(bed: &Bed, tag: &str) -> Result<Self> {
        let dist = bed.dir.join(format!("dist-{tag}"));
        fs::create_dir_all(&dist)?;
        for entry in fs::read_dir(bed.config.dist()?)? {
            let entry = entry?;
            symlink(entry.path(), dist.join(entry.file_name()))?;
        }
        let program = dist.join("tapmanager");
        // What stands behind a program's end is loaded by nobody.
        let mut bytes = fs::read(&program)?;
        bytes.extend_from_slice(tag.as_bytes());
        fs::remove_file(&program)?;
        fs::copy(bed.config.dist()?.join("tapmanager"), &program)?;
        fs::write(&program, bytes)?;
        Self::build_of(bed, &dist, tag)
    }

    fn build_of(bed: &Bed, dist: &Path, tag: &str) -> Result<Self> {
        let script = bed.config.source("deploy/image.sh")?;
        let dir = bed.dir.join(format!("image-{tag}"));
        let mut build = command("bash", [script.as_os_str(), dist.as_os_str(), dir.as_os_str()]);
        let name = format!("virtlet-install:{tag}");
        let built = spent(Wait::Build, || {
            finish(build.env("VERSION", tag).env("IMAGE", &name).env("SOURCE_DATE_EPOCH", EPOCH), DEADLINE)
        })?;
        ensure!(built.code == Some(0), "no image: {}", built.stderr);
        Ok(Self {
            archive: dir.join("virtlet-install.tar"),
            daemonset: dir.join("daemonset.yaml"),
            name: format!("docker.io/library/{name}"),
        })
    }
}
