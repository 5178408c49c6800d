//! Metrics of both sides: how they are described, and whose values are told.

use super::*;

fn of(name: &str, keys: &[&str]) -> MetricDescriptor {
    MetricDescriptor {
        name: name.into(),
        help: String::new(),
        label_keys: keys.iter().map(|key| (*key).into()).collect(),
    }
}

async fn described(front: &Front) -> Result<Vec<String>, Status> {
    let mut runtime = RuntimeServiceClient::with_origin(front.clone(), Uri::from_static("http://localhost"));
    let answer = runtime.list_metric_descriptors(ListMetricDescriptorsRequest {}).await?.into_inner();
    Ok(answer.descriptors.into_iter().map(|descriptor| descriptor.name).collect())
}

/// kubelet asks once.
#[tokio::test]
async fn a_default_that_fails_is_described_by_its_last_answer_also_over_our_restart() {
    let node = Node::up().await;
    node.own.has().descriptors = vec![of("vm", &["id"])];
    assert_eq!(described(&node.front).await.expect("answered"), ["vm"], "it does not know the call");
    node.default.replies("ListMetricDescriptors", Reply::Failed(Status::internal("not now")));
    node.default
        .says("ListMetricDescriptors", &ListMetricDescriptorsResponse { descriptors: vec![of("cpu", &["id"])] });
    assert_eq!(described(&node.front).await.expect("answered"), ["cpu", "vm"]);
    node.default.replies("ListMetricDescriptors", Reply::Failed(Status::internal("not now")));
    assert_eq!(described(&node.front).await.expect("answered"), ["cpu", "vm"]);
    node.default.replies("ListMetricDescriptors", Reply::Message(Bytes::from_static(&[0x0a, 9])));
    assert_eq!(described(&node.front).await.expect("answered"), ["cpu", "vm"], "what is no message is no answer");
    node.default.kill();
    node.is_down().await;
    until(|| node.front.0.saved.is_written()).await;
    let (door, opener) = door::shut("1.2.3");
    opener.open(node.own.routes());
    let again = Node::open(&node.dir, &node.default, &door);
    assert_eq!(described(&again.front()).await.expect("answered"), ["cpu", "vm"]);
}

#[tokio::test]
async fn a_default_that_fails_before_it_was_ever_asked_is_an_error() {
    let node = Node::up().await;
    node.default.replies("ListMetricDescriptors", Reply::Failed(Status::internal("not now")));
    assert_eq!(described(&node.front).await.expect_err("half of the node").message(), "not now");
}

/// Also when it was an earlier life of ours that kubelet asked.
#[tokio::test]
async fn values_that_would_be_read_by_other_labels_are_left_out() {
    let node = Node::up().await;
    node.own.has().descriptors = vec![of("net", &["id"]), of("vm", &["id"])];
    let metric = |name: &str| Metric { name: name.into(), label_values: vec!["x".into()], ..Default::default() };
    let pod = |id: &str| PodSandboxMetrics {
        pod_sandbox_id: id.into(),
        metrics: vec![metric("net"), metric("vm")],
        container_metrics: Vec::new(),
    };
    node.own.has().metrics = vec![pod("vm1")];
    node.default.says("ListPodSandboxMetrics", &ListPodSandboxMetricsResponse { pod_metrics: vec![pod("a")] });
    node.default
        .says("ListMetricDescriptors", &ListMetricDescriptorsResponse { descriptors: vec![of("net", &["pod"])] });
    let names = async |front: &Front| {
        let mut runtime = RuntimeServiceClient::with_origin(front.clone(), Uri::from_static("http://localhost"));
        let list =
            runtime.list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.expect("a list").into_inner();
        let of =
            |pod: PodSandboxMetrics| pod.metrics.into_iter().map(|metric| metric.name).collect::<Vec<_>>().join(" ");
        list.pod_metrics.into_iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(described(&node.front).await.expect("answered"), ["net", "vm"]);
    assert_eq!(names(&node.front).await, ["net vm", "vm"]);
    until(|| node.front.0.saved.is_written()).await;
    let (door, opener) = door::shut("1.2.3");
    opener.open(node.own.routes());
    let again = Node::open(&node.dir, &node.default, &door);
    tokio::time::timeout(LONG, again.front.0.backend.back()).await.expect("connected");
    assert_eq!(names(&again.front()).await, ["net vm", "vm"]);
}
