//! Lists of both sides when one of them is late or fails: what is answered, and what the figures say of it.

use super::*;

/// The figures as a scrape has them.
fn scraped(node: &Node) -> String {
    let mut registry = prometheus_client::registry::Registry::default();
    node.front.0.metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    text
}

/// Of the line that begins so.
fn figure(node: &Node, line: &str) -> Option<f64> {
    let text = scraped(node);
    let line = text.lines().find_map(|is| is.strip_prefix(line))?;
    line.trim().parse().ok()
}

#[tokio::test]
async fn the_age_of_one_kind_is_not_that_of_another() {
    let node = Node::up().await;
    node.lists(&["a"]);
    node.default.says("ListContainers", &ListContainersResponse::default());
    node.listed().await.expect("a list");
    let containers = async |filter| node.runtime().list_containers(ListContainersRequest { filter }).await;
    containers(None).await.expect("a list");
    node.default.replies("ListContainers", Reply::Failed(Status::internal("broken")));
    containers(None).await.expect("the last one");
    let age = |call: &str| figure(&node, &format!("virtlet_proxy_last_good_age_seconds{{call=\"{call}\"}}"));
    node.listed().await.expect("a list");
    assert_eq!(age("ListPodSandbox"), Some(0.0));
    assert!(age("ListContainers") > Some(0.0), "{}", scraped(&node));
    // A list with a filter may come where the whole one does not.
    node.default.says("ListContainers", &ListContainersResponse::default());
    let labels = [("a".to_owned(), "b".to_owned())].into();
    containers(Some(ContainerFilter { label_selector: labels, ..Default::default() })).await.expect("a list");
    assert!(age("ListContainers") > Some(0.0));
    containers(None).await.expect("a list");
    assert_eq!(age("ListContainers"), Some(0.0));
}

/// kubelet falls back to another source for it, and takes an empty list for no usage.
#[tokio::test]
async fn that_the_default_has_no_such_usage_is_passed_on() {
    let node = Node::up().await;
    let stats = async |id: &str| {
        let filter = PodSandboxStatsFilter { id: id.into(), ..Default::default() };
        let filter = (!id.is_empty()).then_some(filter);
        node.runtime().list_pod_sandbox_stats(ListPodSandboxStatsRequest { filter }).await
    };
    assert_eq!(stats("").await.expect_err("unknown").code(), Code::Unimplemented);
    stats("vm1").await.expect("ours alone");
    let usage = node.runtime().list_container_stats(ListContainerStatsRequest::default()).await;
    assert_eq!(usage.expect_err("unknown").code(), Code::Unimplemented);
    node.runtime().list_pod_sandbox_metrics(ListPodSandboxMetricsRequest {}).await.expect("ours alone");
    node.default.replies("ListPodSandboxStats", Reply::Failed(Status::internal("broken")));
    stats("").await.expect("ours alone");
    let left_out = "virtlet_proxy_parts_left_out_total{call=\"ListPodSandboxStats\",side=\"container_runtime\"}";
    assert!(figure(&node, left_out) >= Some(1.0), "{}", scraped(&node));
}

/// Ours is of libvirt, and not from memory.
#[tokio::test]
async fn usage_of_ours_has_the_deadline_of_lists() {
    let dir = tempfile::tempdir().expect("a directory");
    let (default, own, (door, opener)) = (Fake::new(dir.path().join("x.sock")), OwnSide::default(), door::shut("1"));
    opener.open(own.routes());
    own.has().hangs = true;
    let mut config = Config { state_dir: dir.path().to_owned(), ..Config::default() };
    let endpoint = format!("unix://{}", default.socket.display());
    config.proxy.runtime_endpoint = Some(endpoint.try_into().expect("an endpoint"));
    config.proxy.list_deadline = LONG;
    let proxy = Proxy::open(&config, (&door, &Handle::current()), 0).expect("configured");
    let mut runtime = RuntimeServiceClient::with_origin(proxy.front(), Uri::from_static("http://localhost"));
    let listed = runtime.list_container_stats(ListContainerStatsRequest::default());
    let listed = tokio::time::timeout(Duration::from_secs(2), listed).await;
    assert!(listed.is_err(), "given up: {listed:?}");
}

#[tokio::test]
async fn one_list_more_than_may_be_under_way_waits_for_its_turn() {
    let node = Node::up().await;
    let now = std::sync::Arc::new(tokio::sync::Notify::new());
    let list = ListPodSandboxResponse { items: vec![sandbox("a")] }.encode_to_vec();
    node.default.replies("ListPodSandbox", Reply::Late(list.into(), now.clone()));
    let lists = futures_util::future::join_all((0..5).map(|_| node.listed()));
    let release = async {
        until(|| node.default.asked("ListPodSandbox").len() == 4).await;
        node.lists(&["a"]);
        // Those that wait, and the one that is asked for then.
        until(|| {
            now.notify_waiters();
            node.default.asked("ListPodSandbox").len() == 5
        })
        .await;
    };
    let (lists, ()) = tokio::join!(lists, release);
    for list in lists {
        assert_eq!(list.expect("not refused"), ["a"]);
    }
}

/// Also by calls that are not passed on as they come.
#[tokio::test]
async fn whatever_the_default_is_asked_is_measured() {
    let node = Node::up().await;
    node.lists(&["a"]);
    node.listed().await.expect("a list");
    node.runtime().version(VersionRequest::default()).await.expect("answered");
    node.default.replies("GetContainerEvents", Reply::Open(vec![Bytes::new()]));
    let mut events = node.runtime().get_container_events(GetEventsRequest {}).await.expect("a stream").into_inner();
    for _ in 0..2 {
        events.message().await.expect("an event");
    }
    // Beside what a new connection is asked.
    until(|| figure(&node, "virtlet_proxy_calls_running ") == Some(1.0)).await;
    drop(events);
    until(|| figure(&node, "virtlet_proxy_calls_running ") == Some(0.0)).await;
    node.runtime().stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: "a".into() }).await.expect_err("unknown");
    for (call, code) in [
        ("ListPodSandbox", "OK"),
        ("Version", "OK"),
        ("Status", "OK"),
        ("RuntimeConfig", "Unimplemented"),
        ("StopPodSandbox", "Unimplemented"),
        ("GetContainerEvents", "Canceled"),
    ] {
        let line = format!("virtlet_proxy_forwarded_duration_seconds_count{{call=\"{call}\",code=\"{code}\"}}");
        until(|| figure(&node, &line) == Some(1.0)).await;
    }
}

#[tokio::test]
async fn the_length_is_that_of_whole_lists_of_both() {
    let node = Node::up().await;
    node.lists(&["a", "b"]);
    let length = || figure(&node, "virtlet_proxy_merged_bytes{call=\"ListPodSandbox\"}");
    node.listed().await.expect("a list");
    let whole = length();
    assert!(whole > Some(0.0), "{}", scraped(&node));
    node.lists(&[]);
    let of = async |filter: PodSandboxFilter| {
        node.runtime().list_pod_sandbox(ListPodSandboxRequest { filter: Some(filter) }).await.expect("a list");
    };
    of(PodSandboxFilter { id: "vm1".into(), ..Default::default() }).await;
    of(PodSandboxFilter { label_selector: [("a".into(), "b".into())].into(), ..Default::default() }).await;
    assert_eq!(length(), whole);
}
