//! What the Makefile tells the bed through the environment. The only module that reads it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

const OUTSIDE: &str = "VIRTLET_OUTSIDE";

/// Where the programs under test, the guests and the peers are.
#[derive(Debug, Clone)]
pub struct Config {
    clone: PathBuf,
    dist: PathBuf,
    guests: Option<PathBuf>,
    peers: Option<PathBuf>,
    /// `VIRTLET_KEEP`: leave a failed case's directory, for a person to look at.
    pub keep: bool,
    /// `VIRTLET_VIRTCTL`: a virtctl of KubeVirt's, which the cases that can use one then run, too.
    pub virtctl: Option<PathBuf>,
    /// In an emulated node, the machine that it runs on.
    pub outside: Option<Outside>,
}

/// A machine, seen from the emulated node that runs on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outside {
    /// Its own `/proc/loadavg`.
    pub loadavg: PathBuf,
    /// How many it has.
    pub processors: u32,
}

impl Config {
    /// Takes the directory that it is in for the clone, and reads `VIRTLET_DIST` (default `target/dist`), `VIRTLET_GUESTS`,
    /// `VIRTLET_PEERS`, `VIRTLET_KEEP` and `VIRTLET_VIRTCTL`; and, which the bed sets for itself in an emulated node, `VIRTLET_OUTSIDE`.
    #[must_use]
    pub fn from_env() -> Self {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        // Not the one that this program was built in: another clone may have taken it over.
        let clone = std::env::current_dir().unwrap_or_default();
        Self {
            dist: path("VIRTLET_DIST").unwrap_or_else(|| clone.join("target/dist")),
            clone,
            guests: path("VIRTLET_GUESTS"),
            peers: path("VIRTLET_PEERS"),
            keep: path("VIRTLET_KEEP").is_some(),
            virtctl: path("VIRTLET_VIRTCTL"),
            outside: std::env::var_os(OUTSIDE).and_then(|word| word.to_str().and_then(Outside::of_word)),
        }
    }

    /// A file of the clone, such as `deploy/image.sh`.
    ///
    /// # Errors
    /// When it is not there.
    pub fn source(&self, file: &str) -> Result<PathBuf> {
        let path = self.clone.join(file);
        ensure!(path.exists(), "no `{}`; run the bed in a clone", path.display());
        Ok(path)
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

impl Outside {
    /// The variable, for a kernel's command line.
    #[must_use]
    pub fn word(&self) -> String {
        format!("{OUTSIDE}={}:{}", self.processors, self.loadavg.display())
    }

    fn of_word(value: &str) -> Option<Self> {
        let (processors, loadavg) = value.split_once(':')?;
        Some(Self { loadavg: loadavg.into(), processors: processors.parse().ok()? })
    }
}

fn existing(dir: Option<&Path>, variable: &str, file: &str) -> Result<PathBuf> {
    let dir = dir.with_context(|| format!("`{variable}` is not set; run the bed through `make`"))?;
    let path = dir.join(file);
    ensure!(path.exists(), "no `{}`; run `make setup`", path.display());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_reads_what_the_machine_outside_wrote() {
        let outside = Outside { loadavg: "/host/proc/loadavg".into(), processors: 2 };
        let word = outside.word();

        assert_eq!(word, "VIRTLET_OUTSIDE=2:/host/proc/loadavg");
        assert_eq!(word.split_once('=').and_then(|(_, value)| Outside::of_word(value)), Some(outside));
    }
}
