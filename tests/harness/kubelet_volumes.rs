//! Volumes of a pod as kubelet lays them out on the node: ConfigMaps, Secrets and the like, whose names lead through a link that is replaced
//! as a whole.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use proto::cri::Mount;

use crate::cri;

/// The directory of one pod's volumes.
#[derive(Debug)]
pub struct PodVolumes {
    dir: PathBuf,
}

impl PodVolumes {
    /// Below `root`, which stands for kubelet's own directory.
    #[must_use]
    pub fn new(root: &Path, pod: &str) -> Self {
        Self { dir: root.join("kubelet/pods").join(cri::uid(pod)).join("volumes") }
    }

    /// Where the volume is. `kind` is as `configmap`, `secret` or `empty-dir`.
    #[must_use]
    pub fn path(&self, kind: &str, name: &str) -> PathBuf {
        self.dir.join(format!("kubernetes.io~{kind}")).join(name)
    }

    /// Fills it, or fills it anew, and has it mounted at `path` in the container.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn fill(&self, kind: &str, name: &str, files: &[(&str, &str)], path: &str) -> io::Result<Mount> {
        let dir = self.path(kind, name);
        let version = (0..).map(|n| format!("..{n}")).find(|version| !dir.join(version).exists()).unwrap_or_default();
        fs::create_dir_all(dir.join(&version))?;
        for (key, text) in files {
            fs::write(dir.join(&version).join(key), text)?;
            if dir.join(key).symlink_metadata().is_err() {
                symlink(Path::new("..data").join(key), dir.join(key))?;
            }
        }
        symlink(&version, dir.join("..data_tmp"))?;
        fs::rename(dir.join("..data_tmp"), dir.join("..data"))?;
        Ok(self.mount(kind, name, path))
    }

    /// Has it mounted at `path` in the container.
    #[must_use]
    pub fn mount(&self, kind: &str, name: &str, path: &str) -> Mount {
        let host_path = self.path(kind, name).display().to_string();
        Mount { container_path: path.into(), host_path, readonly: kind != "empty-dir", ..Mount::default() }
    }
}
