//! What the Makefile tells the bed through the environment. The only module that reads it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// Where the programs under test, the guests and the peers are.
#[derive(Debug, Clone)]
pub struct Config {
    dist: PathBuf,
    guests: Option<PathBuf>,
    peers: Option<PathBuf>,
    /// `VIRTLET_KEEP`: leave a failed case's directory, for a person to look at.
    pub keep: bool,
}

impl Config {
    /// Reads `VIRTLET_DIST` (default `target/dist`), `VIRTLET_GUESTS`, `VIRTLET_PEERS` and `VIRTLET_KEEP`.
    #[must_use]
    pub fn from_env() -> Self {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/dist");
        Self {
            dist: path("VIRTLET_DIST").unwrap_or_else(default),
            guests: path("VIRTLET_GUESTS"),
            peers: path("VIRTLET_PEERS"),
            keep: path("VIRTLET_KEEP").is_some(),
        }
    }

    /// Directory of the programs under test.
    ///
    /// # Errors
    /// When it is not there.
    pub fn dist(&self) -> Result<PathBuf> {
        self.dist.canonicalize().with_context(|| format!("no `{}`; run `make build`", self.dist.display()))
    }

    /// The variables and directories that this was read from, for the same program on another machine.
    ///
    /// # Errors
    /// When the programs under test are not there.
    pub fn places(&self) -> Result<Vec<(&'static str, PathBuf)>> {
        let optional = [("VIRTLET_GUESTS", &self.guests), ("VIRTLET_PEERS", &self.peers)];
        let known = optional.into_iter().filter_map(|(name, path)| Some((name, path.clone()?)));
        Ok(std::iter::once(("VIRTLET_DIST", self.dist()?)).chain(known).collect())
    }

    /// A file of the guest builder, such as `tiny.qcow2`.
    ///
    /// # Errors
    /// When it was not built.
    pub fn guest(&self, file: &str) -> Result<PathBuf> {
        existing(self.guests.as_deref(), "VIRTLET_GUESTS", file)
    }

    /// A program of the peers' builder, such as `crictl` or `cni/bridge`.
    ///
    /// # Errors
    /// When it was not built.
    pub fn peer(&self, file: &str) -> Result<PathBuf> {
        existing(self.peers.as_deref(), "VIRTLET_PEERS", file)
    }
}

fn existing(dir: Option<&Path>, variable: &str, file: &str) -> Result<PathBuf> {
    let dir = dir.with_context(|| format!("`{variable}` is not set; run the bed through `make`"))?;
    let path = dir.join(file);
    ensure!(path.exists(), "no `{}`; run `make setup`", path.display());
    Ok(path)
}
