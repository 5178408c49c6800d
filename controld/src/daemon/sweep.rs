//! Removes what a killed daemon left on disk: files of pods and containers that are on no record.
//!
//! Only below our own directories, and only what has the name of a pod or container of ours; the rest is left alone.

use std::collections::BTreeSet;
use std::path::Path;

use crate::container::parts::Parts;
use crate::error::Chain;
use crate::model::ContainerId;

/// Sweeps once, at the start, before anything new is made.
pub(super) async fn unclaimed(parts: &Parts) {
    let pods: BTreeSet<String> = parts.store.sandboxes().iter().map(|sandbox| sandbox.config.uid.clone()).collect();
    let disks = parts.volumes.pods().unwrap_or_else(|error| {
        tracing::error!(error = %Chain(&error), "disks of pods not listed");
        Vec::new()
    });
    let held: BTreeSet<String> = disks.into_iter().chain(parts.images.holders()).collect();
    for uid in held.difference(&pods) {
        tracing::warn!(uid, "removing disks of a pod that is on no record");
        parts.drop_disks(uid).await;
    }
    for (dir, suffix) in [
        (parts.config.state_dir.join("console"), ""),
        (parts.config.run_dir.join("console"), ".sock"),
        (parts.config.run_dir.join("seed"), ".iso"),
    ] {
        containers_in(parts, &dir, suffix);
    }
}

fn containers_in(parts: &Parts, dir: &Path, suffix: &str) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let id = name.strip_suffix(suffix).and_then(|id| id.parse::<ContainerId>().ok());
        if id.is_none_or(|id| parts.store.container(id).is_some()) {
            continue;
        }
        let path = entry.path();
        tracing::warn!(path = %path.display(), "removing what a container that is on no record left");
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        if let Err(error) = removed {
            tracing::error!(path = %path.display(), %error, "not removed");
        }
    }
}
