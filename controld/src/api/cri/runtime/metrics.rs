//! ListPodSandboxMetrics, put together from what the kernel and tapmanager count.

use std::collections::HashMap;

use common::now_nanos;
use proto::cri::PodSandboxMetrics;
use proto::tap::{PodId, PodStats};

use super::Runtime;
use crate::api::cri::convert;
use crate::api::cri::metrics::{self, Machine};
use crate::model::error::Result;

impl Runtime {
    /// The metrics of all sandboxes that are ready.
    pub(super) async fn metrics(&self) -> Result<Vec<PodSandboxMetrics>> {
        let counters = self.uses.tap.stats(None).await?;
        let counters: HashMap<PodId, PodStats> = counters.into_iter().map(|stats| (stats.pod.clone(), stats)).collect();
        let mut running = self.uses.store.containers();
        running.retain(|container| convert::matches_container_stats(None, container));
        let machines = self.containers.details(running).await;
        let sandboxes = self.uses.store.sandboxes();
        let shown = sandboxes.iter().filter(|sandbox| convert::matches_stats(None, sandbox));
        let metrics = shown.map(|sandbox| {
            let machines = machines.iter().filter(|(container, _)| container.sandbox == sandbox.id);
            let machines: Vec<_> = machines.map(|(container, details)| Machine { container, details }).collect();
            metrics::of_sandbox(sandbox, counters.get(&sandbox.id), &machines, now_nanos())
        });
        Ok(metrics.collect())
    }
}
