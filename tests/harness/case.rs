//! What a case is, and what it has in hand while it runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use crate::config::Config;

/// A test that gets a world of its own.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// `tier::behaviour`: what is true when it passes.
    pub name: &'static str,
    /// Killed, and failed, after this long on a quiet machine.
    pub deadline: Duration,
    /// The test.
    pub run: fn(&Bed) -> Result<()>,
}

/// The world of the running case.
#[derive(Debug)]
pub struct Bed {
    /// Name of the case, by which a case of a table finds its row; empty when none runs.
    pub case: String,
    /// Where programs, guests and peers are.
    pub config: Config,
    /// The case's own directory; its parent is searchable by everybody, since QEMU is not root.
    pub dir: PathBuf,
}

impl Bed {
    /// The programs under test, at a path that QEMU's user reaches.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// The case's own copy of `vmwrapper`.
    #[must_use]
    pub fn vmwrapper(&self) -> PathBuf {
        self.dir.join("vmwrapper")
    }

    /// The running bed itself, at a path that QEMU's user reaches.
    #[must_use]
    pub fn itself(&self) -> PathBuf {
        self.dir.join("bed").join("bed")
    }

    /// Directory of the daemons' logs, shown when the case fails.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        log_dir(&self.dir)
    }
}

pub(crate) fn log_dir(case_dir: &Path) -> PathBuf {
    case_dir.join("log")
}
