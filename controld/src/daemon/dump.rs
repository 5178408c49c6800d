//! The records as JSON, for a person who wants to know what there is: `controld dump-state`.
//!
//! `main` calls it. What `run` refuses, as it is a newer release's, or leaves alone, as it is damaged, is named here beside all
//! that can be read.

use common::Chain;
use serde_json::{Value, json};

use crate::config::Config;
use crate::orphans::instance;
use crate::store::Recorded;
use crate::volumes::Volumes;

/// What is on record.
#[derive(Debug)]
pub struct Dump {
    /// All that can be read, and the names of what cannot.
    pub state: Value,
    /// How many cannot.
    pub unread: usize,
}

/// Something is on record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0} records cannot be read; `unread` and `unread_files` name them, and what is wrong with each")]
pub struct SomeUnread(pub usize);

impl Dump {
    /// Reads what is in the configured state directory, and changes none of it.
    ///
    /// # Errors
    /// When the database cannot be opened, e.g. because the daemon runs, or a directory cannot be read.
    pub fn of(config: &Config) -> anyhow::Result<Self> {
        let Recorded { sandboxes, containers, unread, .. } = Recorded::look(&super::database(config))?;
        let mut files = Volumes::peek(super::volumes_dir(config)).unread_notes()?;
        files.extend(instance::is_noted(&config.state_dir).err());
        let state = json!({
            "sandboxes": sandboxes.iter().map(|s| serde_json::to_value(s.as_ref())).collect::<Result<Vec<_>, _>>()?,
            "containers": containers.iter().map(|c| serde_json::to_value(c.as_ref())).collect::<Result<Vec<_>, _>>()?,
            "unread": unread,
            "unread_files": files.iter().map(|error| Chain(error).to_string()).collect::<Vec<_>>(),
        });
        Ok(Self { state, unread: unread.len() + files.len() })
    }
}

#[cfg(test)]
mod tests;
