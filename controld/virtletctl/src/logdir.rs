//! The directory of a pod's logs: made by `run`, removed by `rm`.
//!
//! As kubelet does it: `<root>/<namespace>_<name>_<uid>/<container>/<attempt>.log`. The pod keeps the root as a label, so
//! that a later virtletctl knows it; what a label says is only ever used as the root, never as the directory itself.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use proto::cri::{PodSandbox, PodSandboxMetadata};

use super::error::CtlError;

/// Label of a pod whose log directory virtletctl made; its value is the root.
pub(super) const LABEL: &str = "virtlet.cloud/log-dir";

/// Log directory of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogDir {
    root: String,
    dir: PathBuf,
}

impl LogDir {
    /// Where the logs of a pod are to be.
    pub(super) fn plan(root: &Path, pod: &PodSandboxMetadata) -> Result<Self, CtlError> {
        let absolute = std::path::absolute(root).map_err(|cause| CtlError::File {
            action: "find directory",
            path: root.to_owned(),
            cause,
        })?;
        let root = absolute.to_str().ok_or_else(|| CtlError::NotUtf8(root.to_owned()))?.to_owned();
        Ok(Self { root, dir: absolute.join(dir_name(pod)) })
    }

    /// Where the logs of a pod are, if virtletctl made the directory.
    pub(super) fn of(sandbox: &PodSandbox) -> Option<Self> {
        let root = sandbox.labels.get(LABEL)?;
        let name = dir_name(sandbox.metadata.as_ref()?);
        let sound = Path::new(root).is_absolute() && !name.contains(['/', '\0']);
        sound.then(|| Self { root: root.clone(), dir: Path::new(root).join(name) })
    }

    /// The value of [`LABEL`].
    pub(super) fn root(&self) -> &str {
        &self.root
    }

    /// The directory, as CRI wants it.
    pub(super) fn path(&self) -> String {
        // Made of strings alone.
        self.dir.to_string_lossy().into_owned()
    }

    /// Makes it, and one in it for a container. controld runs as root, and so does who reads logs.
    pub(super) fn create(&self, container: &str) -> Result<(), CtlError> {
        let path = self.dir.join(container);
        let made = DirBuilder::new().recursive(true).mode(0o750).create(&path);
        made.map_err(|cause| CtlError::File { action: "make directory", path, cause })
    }

    /// Removes it with all logs; fine if it is gone.
    pub(super) fn remove(&self) -> Result<(), CtlError> {
        match fs::remove_dir_all(&self.dir) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                Err(CtlError::File { action: "remove directory", path: self.dir.clone(), cause })
            }
            _ => Ok(()),
        }
    }
}

/// Never `..`, since it has an underscore.
fn dir_name(pod: &PodSandboxMetadata) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(root: &Path, uid: &str) -> PodSandbox {
        let metadata =
            PodSandboxMetadata { name: "web".into(), namespace: "ns".into(), uid: uid.into(), ..Default::default() };
        PodSandbox {
            metadata: Some(metadata),
            labels: [(LABEL.to_owned(), root.display().to_string())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn what_was_made_is_found_by_the_label_and_removed() {
        let root = tempfile::tempdir().expect("directory");
        let sandbox = pod(root.path(), "u");
        let planned = LogDir::plan(root.path(), sandbox.metadata.as_ref().expect("metadata")).expect("plan");
        planned.create("web").expect("made");
        assert!(root.path().join("ns_web_u/web").is_dir());
        fs::write(root.path().join("other"), "").expect("file");
        let found = LogDir::of(&sandbox).expect("label");
        assert_eq!(found, planned);
        found.remove().expect("removed");
        found.remove().expect("fine if it is gone");
        let left: Vec<_> = fs::read_dir(root.path()).expect("root").flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, ["other"]);
    }

    #[test]
    fn hostile_labels_and_uids_lead_nowhere() {
        assert_eq!(LogDir::of(&pod(Path::new("relative"), "u")), None);
        assert_eq!(LogDir::of(&pod(Path::new("/x"), "../../etc")), None);
        assert_eq!(LogDir::of(&PodSandbox { labels: Default::default(), ..pod(Path::new("/x"), "u") }), None);
    }
}
