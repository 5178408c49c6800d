//! ListPodSandboxMetrics, put together from what the kernel and tapmanager count.

use common::now_nanos;
use proto::cri::PodSandboxMetrics;

use super::Runtime;
use crate::api::cri::convert;
use crate::api::cri::metrics::{self, Machine};

impl Runtime {
    /// The metrics of all sandboxes that are ready.
    pub(super) async fn metrics(&self) -> Vec<PodSandboxMetrics> {
        let counters = self.counters(None).await;
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
        metrics.collect()
    }
}
