//! What kubelet's evented PLEG hears, and lists that come in pieces.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use proto::cri::{
    ContainerEventResponse, GetEventsRequest, ListContainerStatsRequest, ListContainersRequest, ListImagesRequest,
    ListMetricDescriptorsRequest, ListPodSandboxRequest, StreamContainerStatsRequest, StreamContainersRequest,
    StreamImagesRequest, StreamPodSandboxMetricsRequest, StreamPodSandboxStatsRequest, StreamPodSandboxesRequest,
};
use tests::case::{Bed, Case};
use tests::node::Node;
use tonic::{Response, Status};

const DEADLINE: Duration = Duration::from_secs(480);

pub(super) const CASES: &[Case] = &[
    Case { name: "cri::a_life_is_heard_of_event_by_event", deadline: DEADLINE, run: events },
    Case { name: "cri::lists_in_pieces_are_the_lists", deadline: DEADLINE, run: pieces },
];

/// All items of a stream of pieces.
macro_rules! all {
    ($node:expr, $of:ident, $call:ident, $request:ident, $items:ident) => {
        $node.cri.$of(|mut client| async move {
            let mut stream = client.$call($request::default()).await?.into_inner();
            let mut items = Vec::new();
            while let Some(piece) = stream.message().await? {
                let piece = piece.$items;
                if piece.is_empty() {
                    return Err(Status::internal("an empty piece"));
                }
                items.extend(piece);
            }
            Ok(Response::new(items))
        })
    };
}

fn events(bed: &Bed) -> Result<()> {
    let mut node = Node::start(bed)?;
    let mut stream =
        node.cri.call(|mut client| async move { client.get_container_events(GetEventsRequest {}).await })?;
    let vm = node.start_vm(bed, "heard", "#!/bin/sh\n:\n")?;
    node.remove_vm(&vm, Duration::ZERO)?;
    // Its end is the end of all events, however many would have come.
    node.controld.terminate()?;

    let heard = node.cri.call(|_client| async move {
        let mut heard: Vec<ContainerEventResponse> = Vec::new();
        while let Some(event) = stream.message().await? {
            heard.push(event);
        }
        Ok(Response::new(heard))
    })?;
    let of = |id: &str| -> Vec<&str> {
        let events = heard.iter().filter(|event| event.container_id == id);
        events.map(|event| event.container_event_type().as_str_name()).collect()
    };
    let life =
        ["CONTAINER_CREATED_EVENT", "CONTAINER_STARTED_EVENT", "CONTAINER_STOPPED_EVENT", "CONTAINER_DELETED_EVENT"];
    ensure!(of(&vm.sandbox) == life && of(&vm.container) == life, "{heard:?}");
    let told = heard.iter().all(|event| {
        let sandbox = event.pod_sandbox_status.as_ref();
        sandbox.is_some_and(|sandbox| sandbox.id == vm.sandbox) && event.created_at > 0
    });
    ensure!(told, "an event without its sandbox: {heard:?}");
    let with_container = heard.iter().filter(|event| !event.containers_statuses.is_empty()).count();
    ensure!(with_container >= 3, "created, started and stopped tell of the container: {heard:?}");
    ensure!(heard.is_sorted_by_key(|event| event.created_at), "out of order: {heard:?}");
    Ok(())
}

fn pieces(bed: &Bed) -> Result<()> {
    let node = Node::start(bed)?;
    let none = all!(node, call, stream_pod_sandboxes, StreamPodSandboxesRequest, pod_sandboxes)?;
    ensure!(none.is_empty(), "{none:?}");
    let vm = node.start_vm(bed, "listed", "#!/bin/sh\n:\n")?;
    let other = node.cri.run_sandbox(&node.pod("other")?)?;

    let list =
        node.cri.call(|mut client| async move { client.list_pod_sandbox(ListPodSandboxRequest::default()).await })?;
    ensure!(list.items.len() == 2, "{list:?}");
    ensure!(all!(node, call, stream_pod_sandboxes, StreamPodSandboxesRequest, pod_sandboxes)? == list.items);
    let list =
        node.cri.call(|mut client| async move { client.list_containers(ListContainersRequest::default()).await })?;
    ensure!(list.containers.len() == 1, "{list:?}");
    ensure!(all!(node, call, stream_containers, StreamContainersRequest, containers)? == list.containers);
    let list =
        node.cri.image_call(|mut client| async move { client.list_images(ListImagesRequest::default()).await })?;
    ensure!(list.images.len() == 1, "{list:?}");
    ensure!(all!(node, image_call, stream_images, StreamImagesRequest, images)? == list.images);
    // Figures move on between two calls; whose they are does not.
    let stats = all!(node, call, stream_container_stats, StreamContainerStatsRequest, container_stats)?;
    let list = node
        .cri
        .call(|mut client| async move { client.list_container_stats(ListContainerStatsRequest::default()).await })?;
    let whose = |stats: &proto::cri::ContainerStats| stats.attributes.clone();
    ensure!(stats.len() == 1 && stats.iter().map(whose).eq(list.stats.iter().map(whose)), "{stats:?}, {list:?}");
    let stats = all!(node, call, stream_pod_sandbox_stats, StreamPodSandboxStatsRequest, pod_sandbox_stats)?;
    ensure!(stats.len() == 2, "{stats:?}");
    let metrics = all!(node, call, stream_pod_sandbox_metrics, StreamPodSandboxMetricsRequest, pod_sandbox_metrics)?;
    let described = node
        .cri
        .call(|mut client| async move { client.list_metric_descriptors(ListMetricDescriptorsRequest {}).await })?;
    let of_machine = metrics.iter().find(|pod| pod.pod_sandbox_id == vm.sandbox).context("no metrics of the pod")?;
    let values: Vec<_> = of_machine.container_metrics.iter().flat_map(|container| &container.metrics).collect();
    for descriptor in described.descriptors {
        let mut all = values.iter().copied().chain(&of_machine.metrics);
        ensure!(all.any(|metric| metric.name == descriptor.name), "{} has no value", descriptor.name);
    }
    let cpu = values.iter().find(|metric| metric.name == "container_memory_rss").context("no memory")?;
    ensure!(cpu.value.is_some_and(|value| value.value > 20 << 20), "{cpu:?}");

    node.cri.remove_sandbox(&other)?;
    node.remove_vm(&vm, Duration::ZERO)
}
