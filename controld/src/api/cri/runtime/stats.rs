//! What sandboxes and containers use.

use std::collections::{BTreeMap, HashMap};

use common::Chain;
use proto::cri::{ContainerStats, ContainerStatsFilter, PodSandboxStats, PodSandboxStatsFilter};
use proto::tap::{PodId, PodStats};

use super::Runtime;
use crate::api::cri::convert;
use crate::container::Usage;
use crate::model::Container;

impl Runtime {
    /// What tapmanager has counted. While it does not answer, the other figures of the pods are worth having.
    pub(super) async fn counters(&self, pod: Option<&PodId>) -> HashMap<PodId, PodStats> {
        let counted = self.uses.tap.stats(pod).await.unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "usage of the network left out");
            Vec::new()
        });
        counted.into_iter().map(|stats| (stats.pod.clone(), stats)).collect()
    }

    /// What the running containers use, by sandbox. A machine whose QEMU has just ended is left out.
    pub(super) async fn container_stats_of(
        &self,
        filter: Option<&ContainerStatsFilter>,
    ) -> BTreeMap<PodId, Vec<ContainerStats>> {
        let mut running = self.uses.store.containers();
        running.retain(|container| convert::matches_container_stats(filter, container));
        let mut stats: BTreeMap<PodId, Vec<ContainerStats>> = BTreeMap::new();
        for (container, usage) in self.containers.usage(running).await {
            if usage.process.is_some() {
                stats.entry(container.sandbox.clone()).or_default().push(self.stats_of(&container, &usage));
            }
        }
        stats
    }

    pub(super) fn stats_of(&self, container: &Container, usage: &Usage) -> ContainerStats {
        convert::container_stats(container, usage, self.containers.disks_dir())
    }

    /// What the sandboxes use that are ready.
    pub(super) async fn sandbox_stats_of(&self, filter: Option<&PodSandboxStatsFilter>) -> Vec<PodSandboxStats> {
        let counters = self.counters(None).await;
        let mut containers = self.container_stats_of(None).await;
        let all = self.uses.store.sandboxes();
        let shown = all.iter().filter(|sandbox| convert::matches_stats(filter, sandbox));
        let stats = shown.map(|sandbox| {
            let containers = containers.remove(&sandbox.id).unwrap_or_default();
            convert::sandbox_stats(sandbox, containers, counters.get(&sandbox.id))
        });
        stats.collect()
    }
}
