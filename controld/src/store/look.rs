//! A look at the records while no daemon has them: for a person, and for a package that is to replace this release.
//!
//! Records of a newer release are named here, where [`Store::open`](super::Store::open) refuses them. Nothing is written but what the
//! database itself mends after a crash, and what there is none of is not made.

use std::path::Path;
use std::sync::Arc;

use super::database::{self, File, Opened};
use super::log::Log;
use super::{StoreError, Unread, replay};
use crate::model::{Container, Sandbox};

/// What is on record.
#[derive(Debug, Default)]
pub struct Recorded {
    /// In the order of their ids.
    pub sandboxes: Vec<Arc<Sandbox>>,
    /// In the order of their ids.
    pub containers: Vec<Arc<Container>>,
    /// What cannot be read.
    pub unread: Vec<Unread>,
    /// The log has lines, or the database keeps some of it.
    pub has_lines: bool,
}

impl Recorded {
    /// Reads the database at `path` and the log beside it; none are no records.
    ///
    /// # Errors
    /// When one cannot be opened or read, or a daemon has them.
    pub fn look(path: &Path) -> Result<Self, StoreError> {
        let log = path.with_extension("log");
        if !path.exists() && !log.exists() {
            return Ok(Self::default());
        }
        let (log, found) = Log::open(&log)?;
        let Opened { mut seen, has_log_to, kept, .. } = database::read(&File::new(path))?;
        let has_lines = log.len() > 0 || !kept.is_empty();
        replay::replay(&mut seen, kept, found, has_log_to)?;
        Ok(Self {
            sandboxes: seen.sandboxes.into_values().collect(),
            containers: seen.containers.into_values().collect(),
            unread: seen.unread,
            has_lines,
        })
    }
}
