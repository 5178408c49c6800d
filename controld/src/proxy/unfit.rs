//! Metrics of ours that have no place beside the default's: one with other labels than the default's of its name has no descriptor, and no
//! values either, since they would be read under the default's labels. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{ListMetricDescriptorsResponse, ListPodSandboxMetricsResponse};
use tonic::Status;

/// Names of metrics.
pub(super) type Names = Arc<BTreeSet<String>>;

/// Of `own` what `known` has not, and the names that it has with other labels.
pub(super) fn parted(
    known: &ListMetricDescriptorsResponse,
    mut own: ListMetricDescriptorsResponse,
) -> (ListMetricDescriptorsResponse, BTreeSet<String>) {
    let known: BTreeMap<_, _> = known.descriptors.iter().map(|of| (of.name.as_str(), &of.label_keys)).collect();
    let mut unfit = BTreeSet::new();
    own.descriptors.retain(|of| match known.get(of.name.as_str()) {
        None => true,
        Some(keys) => {
            if **keys != of.label_keys {
                tracing::warn!(metric = of.name, ours = ?of.label_keys, theirs = ?keys, "metric has other labels at the container runtime, and is left out of ours");
                unfit.insert(of.name.clone());
            }
            false
        }
    });
    (own, unfit)
}

/// A list of our metrics without those that are `unfit`.
pub(super) fn fitting(list: Bytes, unfit: &BTreeSet<String>) -> Result<Bytes, Status> {
    if unfit.is_empty() {
        return Ok(list);
    }
    let mut list = ListPodSandboxMetricsResponse::decode(list).map_err(|error| Status::internal(error.to_string()))?;
    for pod in &mut list.pod_metrics {
        pod.metrics.retain(|metric| !unfit.contains(&metric.name));
        for container in &mut pod.container_metrics {
            container.metrics.retain(|metric| !unfit.contains(&metric.name));
        }
    }
    Ok(list.encode_to_vec().into())
}

#[cfg(test)]
mod tests {
    use proto::cri::{ContainerMetrics, Metric, MetricDescriptor, PodSandboxMetrics};

    use super::*;

    #[test]
    fn a_metric_of_both_is_described_once_and_one_with_other_labels_has_no_values() {
        let of = |name: &str, keys: &[&str]| MetricDescriptor {
            name: name.into(),
            help: "h".into(),
            label_keys: keys.iter().map(|key| (*key).into()).collect(),
        };
        let known = ListMetricDescriptorsResponse { descriptors: vec![of("cpu", &["pod", "id"]), of("net", &["pod"])] };
        let own = ListMetricDescriptorsResponse {
            descriptors: vec![of("cpu", &["pod", "id"]), of("net", &["id"]), of("vm", &[])],
        };
        let (added, unfit) = parted(&known, own);
        assert_eq!((added.descriptors, &unfit), (vec![of("vm", &[])], &["net".to_owned()].into()));
        let list = |names: &[&str]| {
            let metric = |name: &&str| Metric { name: (*name).into(), ..Default::default() };
            let metrics: Vec<_> = names.iter().map(metric).collect();
            let container_metrics = vec![ContainerMetrics { container_id: "c".into(), metrics: metrics.clone() }];
            let pod = PodSandboxMetrics { pod_sandbox_id: "p".into(), metrics, container_metrics };
            Bytes::from(ListPodSandboxMetricsResponse { pod_metrics: vec![pod] }.encode_to_vec())
        };
        assert_eq!(fitting(list(&["cpu", "net", "vm"]), &unfit).expect("a list"), list(&["cpu", "vm"]));
    }
}
