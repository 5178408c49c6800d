//! A pod's trace: kubelet begins it, and controld's part of it stands where kubelet asked for it.

use anyhow::{Context as _, Result, ensure};
use proto::otlp::Span;
use serde_json::json;
use tests::case::{Bed, Case};
use tests::collector::{ADDRESS, Collector, Heard, said};
use tests::image_server::Fault;
use tests::kubelet::{Kubelet, manifest};
use tests::node::Node;
use tests::wait::wait_for;

use super::{DEADLINE, POD_DEADLINE};

pub(super) const CASES: &[Case] =
    &[Case { name: "kubelet::a_trace_of_kubelets_goes_on_in_controld", deadline: DEADLINE, run: traced }];

fn traced(bed: &Bed) -> Result<()> {
    let collector = Collector::start()?;
    // No trace begins here.
    let node = Node::configured(bed, &format!("tracing.endpoint = '{ADDRESS}'"))?;
    let image = node.images.offer("tiny.qcow2", &bed.config.guest("tiny.qcow2")?, Fault::None);
    let tracing = json!({"tracing": {"endpoint": ADDRESS, "samplingRatePerMillion": 1_000_000}});
    let kubelet = Kubelet::configured(bed, &tracing)?;
    kubelet.apply("vm", &manifest("vm", &image, &json!({})))?;

    for (call, asked) in [
        ("runtime.v1.RuntimeService/RunPodSandbox", "tapmanager: attach"),
        ("runtime.v1.ImageService/PullImage", ""),
        ("runtime.v1.RuntimeService/StartContainer", "libvirt: start the machine"),
    ] {
        // Both send their spans when they have some, each a few seconds after the other.
        let (ours, heard) = wait_for(&format!("{call} in traces of both"), POD_DEADLINE, || {
            let heard = collector.heard();
            let ours = heard.iter().find(|heard| of_controld(heard) && heard.span.name == call);
            let ours = ours.map(|heard| heard.span.clone()).filter(|ours| parent(&heard, ours).is_some());
            Ok(ours.map(|ours| (ours, heard)))
        })?;
        let theirs = parent(&heard, &ours).context("it was there")?;
        ensure!(!of_controld(theirs) && theirs.span.trace_id == ours.trace_id, "{theirs:?} {ours:?}");
        let below = heard.iter().any(|heard| heard.span.name == asked && heard.span.parent_span_id == ours.span_id);
        ensure!(asked.is_empty() || below, "`{asked}` is not below {ours:?}");
        let of_pod = said(&ours.attributes, "k8s.pod.name").is_some_and(|name| name.starts_with("vm-"));
        ensure!(call.contains("Image") || of_pod, "{ours:?}");
    }
    Ok(())
}

fn of_controld(heard: &Heard) -> bool {
    heard.service == "virtlet-controld"
}

/// The span that another one is below.
fn parent<'a>(heard: &'a [Heard], of: &Span) -> Option<&'a Heard> {
    heard.iter().find(|heard| heard.span.span_id == of.parent_span_id && heard.span.trace_id == of.trace_id)
}
