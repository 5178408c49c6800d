//! CRI's generated types to this crate's model and back. They come no further than this.
//!
//! What a machine cannot do is refused here, before anything is made.

mod container;
mod sandbox;

pub use container::{container_config, container_entry, container_status, matches_container};
pub use sandbox::{matches_sandbox, sandbox_config, sandbox_entry, sandbox_status};

use std::collections::{BTreeMap, HashMap};

use crate::error::{Error, Kind};

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn sorted(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

fn unsorted(map: &BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether `labels` has all that `selector` wants.
fn selects(selector: &HashMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
