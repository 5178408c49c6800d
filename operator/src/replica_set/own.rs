//! What a set's spec says of the set itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubevirt::preset::matches;
use serde_json::Value;

use crate::objects::Vmi;

/// What it says.
pub(super) struct Own {
    pub(super) replicas: usize,
    pub(super) selector: LabelSelector,
    pub(super) is_paused: bool,
}

impl Own {
    pub(super) fn of(spec: &Value) -> Self {
        let selector = serde_json::from_value(spec["selector"].clone()).unwrap_or_default();
        let replicas = spec["replicas"].as_u64().unwrap_or(1);
        Self {
            replicas: usize::try_from(replicas).unwrap_or(usize::MAX),
            selector,
            is_paused: spec["paused"].as_bool().unwrap_or_default(),
        }
    }

    /// Whether it selects an instance; one that selects all, or cannot be read, selects none.
    pub(super) fn selects(&self, vmi: &Vmi) -> bool {
        let is_empty = self.selector.match_labels.iter().flatten().next().is_none()
            && self.selector.match_expressions.iter().flatten().next().is_none();
        let labels = vmi.metadata.labels.clone().unwrap_or_default();
        !is_empty && matches(&self.selector, &labels).unwrap_or_default()
    }
}
