//! The disks of a pod: one directory per pod UID under `volumes/`, holding the root overlay.
//!
//! The overlay belongs to the pod, not to the container: a container that kubelet restarts finds its disk again while
//! the image is the same. It goes when the last sandbox of the pod goes. The image below is never written: the overlay
//! names it with its format, and it stays root's (see `domain`).

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use proto::tap::QemuUser;
use serde::{Deserialize, Serialize};
use tokio::process::Command;

/// Making an overlay writes a few clusters; longer means the disk hangs.
const CREATE_DEADLINE: Duration = Duration::from_secs(30);

/// Why a disk could not be made or removed.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// A pod UID that is no file name.
    #[error("pod uid `{0}` cannot name a directory")]
    Uid(String),
    /// A file operation failed.
    #[error("failed to {action} `{}`", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word.
        #[source]
        cause: io::Error,
    },
    /// `qemu-img` refused.
    #[error("qemu-img could not make overlay `{}`: {said}", path.display())]
    QemuImg {
        /// The overlay.
        path: PathBuf,
        /// What it said.
        said: String,
    },
    /// `qemu-img` did not end.
    #[error("qemu-img did not make overlay `{}` within {} s", path.display(), CREATE_DEADLINE.as_secs())]
    Deadline {
        /// The overlay.
        path: PathBuf,
    },
}

/// The image below an overlay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Id, `sha256:...`.
    pub image_id: String,
    /// Its file.
    pub path: PathBuf,
    /// `qcow2` or `raw`.
    pub format: String,
    /// Bytes that the guest sees of it.
    pub virtual_size: u64,
}

/// The pods' disks.
#[derive(Debug, Clone)]
pub struct Volumes {
    dir: PathBuf,
}

impl Volumes {
    /// Disks under `dir`, which is made if absent.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: PathBuf) -> Result<Self, VolumeError> {
        // QEMU's uid passes through but cannot look around.
        make_dir(&dir, 0o711)?;
        Ok(Self { dir })
    }

    /// Makes the root overlay of a pod, or keeps the one it has if that stands on the same image.
    ///
    /// # Errors
    /// See [`VolumeError`]; then no half-made overlay is left.
    pub async fn ensure_root(
        &self,
        pod_uid: &str,
        base: &Base,
        size: u64,
        owner: QemuUser,
    ) -> Result<PathBuf, VolumeError> {
        let dir = self.pod_dir(pod_uid)?;
        make_dir(&dir, 0o711)?;
        let overlay = dir.join("root.qcow2");
        let made_of = dir.join("root.json");
        if overlay.exists() && read_base(&made_of).as_ref() == Some(base) {
            return Ok(overlay);
        }
        remove_file(&made_of)?;
        remove_file(&overlay)?;
        let half = dir.join("root.qcow2.new");
        remove_file(&half)?;
        let made = self.create(&half, base, size.max(base.virtual_size), owner).await;
        let made = made.and_then(|()| {
            std::fs::rename(&half, &overlay).map_err(io_error("name", &overlay))?;
            write_base(&made_of, base)
        });
        if let Err(error) = made {
            for path in [&half, &overlay, &made_of] {
                // The error that matters is the first one.
                let _ = remove_file(path);
            }
            let _ = std::fs::remove_dir(&dir);
            return Err(error);
        }
        Ok(overlay)
    }

    /// Removes all disks of a pod; fine if there are none.
    ///
    /// # Errors
    /// When something of it stays.
    pub fn remove(&self, pod_uid: &str) -> Result<(), VolumeError> {
        let dir = self.pod_dir(pod_uid)?;
        match std::fs::remove_dir_all(&dir) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(io_error("remove", &dir)(cause)),
            _ => Ok(()),
        }
    }

    /// UIDs of the pods that have disks.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn pods(&self) -> Result<Vec<String>, VolumeError> {
        let entries = std::fs::read_dir(&self.dir).map_err(io_error("list", &self.dir))?;
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| self.pod_dir(name).is_ok()).collect())
    }

    fn pod_dir(&self, pod_uid: &str) -> Result<PathBuf, VolumeError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let starts_plain = pod_uid.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !starts_plain || pod_uid.len() > 128 || !pod_uid.chars().all(plain) {
            return Err(VolumeError::Uid(pod_uid.chars().filter(|c| !c.is_control()).take(64).collect()));
        }
        Ok(self.dir.join(pod_uid))
    }

    async fn create(&self, path: &Path, base: &Base, size: u64, owner: QemuUser) -> Result<(), VolumeError> {
        let mut command = Command::new("qemu-img");
        // `-u`: the image below is known, and qemu-img is not to look into it.
        command.args(["create", "-q", "-u", "-f", "qcow2", "-F", &base.format, "-o", "cluster_size=65536"]);
        command.arg("-b").arg(&base.path).arg(path).arg(size.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let ran = tokio::time::timeout(CREATE_DEADLINE, command.output()).await;
        let output = ran
            .map_err(|_elapsed| VolumeError::Deadline { path: path.to_owned() })?
            .map_err(io_error("run qemu-img for", path))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.lines().last().unwrap_or("no reason given").to_owned();
            if said.contains("No space left on device") {
                return Err(io_error("write", path)(io::Error::from_raw_os_error(libc::ENOSPC)));
            }
            return Err(VolumeError::QemuImg { path: path.to_owned(), said });
        }
        set_mode(path, 0o660)?;
        chown(path, Some(owner.uid), Some(owner.gid)).map_err(io_error("give QEMU's user", path))
    }
}

/// Makes a directory with exactly this mode, whatever the umask; fine if it is there.
///
/// # Errors
/// When it cannot be made.
pub fn make_dir(dir: &Path, mode: u32) -> Result<(), VolumeError> {
    std::fs::DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(io_error("make", dir))?;
    set_mode(dir, mode)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), VolumeError> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(io_error("set the mode of", path))
}

fn remove_file(path: &Path) -> Result<(), VolumeError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path)(cause)),
        _ => Ok(()),
    }
}

/// What the overlay beside it was made of; `None` also for a torn note, and then the overlay is made anew.
fn read_base(path: &Path) -> Option<Base> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn write_base(path: &Path, base: &Base) -> Result<(), VolumeError> {
    let text = serde_json::to_vec(base).map_err(|error| io_error("describe", path)(error.into()))?;
    std::fs::write(path, text).map_err(io_error("write", path))
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    move |cause| VolumeError::Io { action, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests;
