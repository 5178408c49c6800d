//! Flexvolumes of a pod as kubelet has them mounted: by the driver, in its directory for each.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use proto::cri::{Mount, PodSandboxConfig};
use serde_json::Value;

use crate::case::Bed;
use crate::command::{TOOL_DEADLINE, command, finish};

/// kubelet's directory of drivers, and in it ours.
const DIR: &str = "virtlet~flexvolume_driver";

/// The driver, and where the volumes of a pod are.
#[derive(Debug)]
pub struct Flexvolumes {
    program: PathBuf,
    volumes: PathBuf,
}

impl Flexvolumes {
    /// Those of a pod.
    ///
    /// # Errors
    /// When the driver cannot be put into kubelet's directory, or the pod has no UID.
    pub fn of(bed: &Bed, pod: &PodSandboxConfig) -> Result<Self> {
        let uid = pod.metadata.as_ref().map(|metadata| metadata.uid.as_str()).unwrap_or_default();
        ensure!(!uid.is_empty(), "a pod without a UID");
        let volumes = Path::new("/var/lib/kubelet/pods").join(uid).join("volumes").join(DIR);
        Ok(Self { program: install(bed, &bed.dir.join("exec"))?, volumes })
    }

    /// Where a volume is.
    #[must_use]
    pub fn dir(&self, name: &str) -> PathBuf {
        self.volumes.join(name)
    }

    /// What the driver answers.
    ///
    /// # Errors
    /// When it answers no JSON, says something beside it, or its exit code does not say the same.
    pub fn call(&self, words: &[&str]) -> Result<Value> {
        let ended = finish(&mut command(&self.program, words), TOOL_DEADLINE)?;
        let answer: Value = serde_json::from_str(&ended.stdout)?;
        let fails = answer["status"] == "Failure";
        ensure!(ended.stderr.is_empty() && (ended.code == Some(0)) != fails, "{words:?}: {ended:?}");
        Ok(answer)
    }

    /// Has a volume mounted on the node, as the container has it at `path`.
    ///
    /// # Errors
    /// When the driver does not.
    pub fn mount(&self, name: &str, options: &Value, path: &str) -> Result<Mount> {
        let host_path = self.dir(name).display().to_string();
        fs::create_dir_all(&host_path)?;
        let answer = self.call(&["mount", &host_path, &options.to_string()])?;
        ensure!(answer["status"] == "Success", "{answer}");
        Ok(Mount { container_path: path.into(), host_path, ..Mount::default() })
    }

    /// Has it unmounted and removed.
    ///
    /// # Errors
    /// When the driver does not, or something is left.
    pub fn unmount(&self, name: &str) -> Result<()> {
        let dir = self.dir(name);
        let answer = self.call(&["unmount", &dir.display().to_string()])?;
        ensure!(answer["status"] == "Success", "{answer}");
        // As kubelet does then: what is left keeps it from that.
        Ok(fs::remove_dir(dir)?)
    }
}

/// Puts the driver into a directory of drivers of kubelet's, as the documents say; its path.
///
/// # Errors
/// When the link cannot be made.
pub fn install(bed: &Bed, drivers: &Path) -> Result<PathBuf> {
    let dir = drivers.join(DIR);
    fs::create_dir_all(&dir)?;
    let program = dir.join("flexvolume_driver");
    if !program.exists() {
        symlink(bed.program("controld"), &program)?;
    }
    Ok(program)
}
