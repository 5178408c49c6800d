//! Probes, as the container's.

use k8s_openapi::api::core::v1::{ExecAction, Probe as PodProbe};

use super::Draft;
use crate::types::Probe;

/// What an agent that answers can always run.
const PING: &str = "true";

pub(super) fn of(draft: &mut Draft<'_>) {
    draft.container.liveness_probe = draft.spec.liveness_probe.as_ref().map(probe);
    draft.container.readiness_probe = draft.spec.readiness_probe.as_ref().map(probe);
}

fn probe(probe: &Probe) -> PodProbe {
    let ping = probe.guest_agent_ping.map(|_| ExecAction { command: Some(vec![PING.to_owned()]) });
    PodProbe {
        http_get: probe.http_get.clone(),
        tcp_socket: probe.tcp_socket.clone(),
        exec: probe.exec.clone().or(ping),
        initial_delay_seconds: probe.initial_delay_seconds,
        timeout_seconds: probe.timeout_seconds,
        period_seconds: probe.period_seconds,
        success_threshold: probe.success_threshold,
        failure_threshold: probe.failure_threshold,
        ..PodProbe::default()
    }
}
