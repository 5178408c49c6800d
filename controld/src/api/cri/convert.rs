//! CRI's generated types to this crate's model and back. They come no further than this.
//!
//! What a machine cannot do is refused here, before anything is made.

mod container;
mod huge_pages;
mod image_volume;
mod sandbox;
mod stats;
mod unified;

use std::collections::{BTreeMap, HashMap};

pub use container::{container_config, container_entry, container_status, matches_container, update};
pub use sandbox::{matches_sandbox, sandbox_config, sandbox_entry, sandbox_status};
pub use stats::{container_stats, matches_container_stats, matches_stats, sandbox_stats};
use vmspec::Resources;
use vmspec::error::{Error, Kind, Result};

fn invalid(what: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, what)
}

fn sorted(map: HashMap<String, String>) -> BTreeMap<String, String> {
    map.into_iter().collect()
}

fn unsorted(map: &BTreeMap<String, String>) -> HashMap<String, String> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn resources(resources: proto::cri::LinuxContainerResources) -> Result<Resources> {
    let huge_pages = huge_pages::of(&resources.hugepage_limits)?;
    let [swap, memory_min, memory_low] = unified::of(&resources.unified)?;
    let unheeded = unified::unheeded(&resources.unified);
    if !unheeded.is_empty() {
        tracing::info!(
            files = unheeded.join(" "),
            "a machine is not held to these files of cgroups, which kubelet says"
        );
    }
    Ok(Resources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit: resources.memory_limit_in_bytes,
        oom_score_adj: resources.oom_score_adj,
        cpuset_cpus: resources.cpuset_cpus,
        cpuset_mems: resources.cpuset_mems,
        huge_pages,
        swap,
        memory_min,
        memory_low,
    })
}

/// Whether `labels` has all that `selector` wants.
fn selects(selector: &HashMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
pub(crate) mod tests;
