//! The packages, in a repository that apt takes them from.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::frame::HOST;
use crate::case::Bed;
use crate::command::{command, finish};

/// Ten seconds on a quiet machine.
const DEADLINE: Duration = Duration::from_secs(480);
/// Of no commit, so that a clone without its history will do.
const EPOCH: &str = "1700000000";

/// A directory with packages of one version.
#[derive(Debug)]
pub struct Packages {
    dir: PathBuf,
}

impl Packages {
    /// Builds them of the programs under test, uncompressed: that is quicker, and changes nothing of what is inside.
    ///
    /// # Errors
    /// When they cannot be built.
    pub fn build(bed: &Bed, version: &str) -> Result<Self> {
        let dir = bed.dir.join(format!("packages-{version}"));
        let script = bed.config.source("deploy/deb/build.sh")?;
        let mut build = command("bash", [script.as_os_str(), bed.config.dist()?.as_os_str(), dir.as_os_str()]);
        build.env("VERSION", version).env("COMPRESS", "none").env("SOURCE_DATE_EPOCH", EPOCH);
        let built = finish(&mut build, DEADLINE)?;
        ensure!(built.code == Some(0), "no packages: {}", built.stderr);
        let index = finish(command("dpkg-scanpackages", ["--hash", "sha256", "."]).current_dir(&dir), DEADLINE)?;
        ensure!(index.code == Some(0), "no index of packages: {}", index.stderr);
        fs::write(dir.join("Packages"), index.stdout)?;
        Ok(Self { dir })
    }

    /// The file of the package `name`.
    ///
    /// # Errors
    /// When there is none.
    pub fn file(&self, name: &str) -> Result<PathBuf> {
        let all = fs::read_dir(&self.dir)?.flatten().map(|entry| entry.path());
        let is_it = |path: &PathBuf| {
            path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}_")))
        };
        let mut found = all.filter(is_it);
        found.next().ok_or_else(|| anyhow::anyhow!("no package `{name}` in `{}`", self.dir.display()))
    }

    /// A line of apt's list of sources, for the machine of the tier.
    #[must_use]
    pub fn source(&self) -> String {
        format!("deb [trusted=yes] file:{HOST}{} ./", self.dir.display())
    }
}
