//! Events of both sides as one stream, while the default goes and comes.

use tonic::Streaming;

use super::*;

/// Longer than a stream is waited for that ended alone.
const HELD: Duration = Duration::from_secs(6);

fn event(id: &str) -> Bytes {
    ContainerEventResponse { container_id: id.into(), ..Default::default() }.encode_to_vec().into()
}

/// Of which our own event has been heard.
async fn subscribed(node: &Node) -> Streaming<ContainerEventResponse> {
    let mut events = node.runtime().get_container_events(GetEventsRequest {}).await.expect("a stream").into_inner();
    assert_eq!(heard(&mut events).await, "vm02");
    events
}

async fn heard(events: &mut Streaming<ContainerEventResponse>) -> String {
    let event = tokio::time::timeout(LONG, events.message()).await.expect("in time");
    event.expect("an event").expect("an event").container_id
}

async fn is_held(events: &mut Streaming<ContainerEventResponse>) {
    let ended = tokio::time::timeout(HELD, events.message()).await;
    assert!(ended.is_err(), "{ended:?}");
}

/// By the one end that kubelet is to have of it.
async fn ends(events: &mut Streaming<ContainerEventResponse>) {
    let end = tokio::time::timeout(LONG, events.message()).await.expect("in time").expect_err("an end");
    assert!(end.code() == Code::Unavailable && end.message().contains("list everything"), "{end}");
}

#[tokio::test]
async fn a_lost_default_ends_them_when_there_is_a_list_again() {
    let node = Node::up().await;
    node.default.replies("GetContainerEvents", Reply::Open(vec![event("a"), event("b")]));
    let mut events = node.runtime().get_container_events(GetEventsRequest {}).await.expect("a stream").into_inner();
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(heard(&mut events).await);
    }
    all.sort();
    assert_eq!(all, ["a", "b", "vm02"]);
    node.default.kill();
    is_held(&mut events).await;
    node.default.start();
    ends(&mut events).await;
}

/// grpc-go sends headers with the first event.
#[tokio::test]
async fn a_default_that_is_lost_before_its_first_event_is_no_other() {
    let node = Node::up().await;
    node.default.replies("GetContainerEvents", Reply::Never);
    let mut events = subscribed(&node).await;
    until(|| !node.default.asked("GetContainerEvents").is_empty()).await;
    node.default.kill();
    is_held(&mut events).await;
    node.default.start();
    ends(&mut events).await;
}

/// kubelet gives up after five ends.
#[tokio::test]
async fn a_subscription_while_the_default_is_away_waits_for_it() {
    let node = Node::new();
    node.default.replies("GetContainerEvents", Reply::Open(vec![event("a")]));
    let mut events = subscribed(&node).await;
    is_held(&mut events).await;
    node.default.start();
    ends(&mut events).await;
    let mut events = node.runtime().get_container_events(GetEventsRequest {}).await.expect("a stream").into_inner();
    let mut both = [heard(&mut events).await, heard(&mut events).await];
    both.sort();
    assert_eq!(both, ["a", "vm02"]);
}

#[tokio::test]
async fn a_default_that_learns_of_events_is_asked_again() {
    let node = Node::up().await;
    let mut events = subscribed(&node).await;
    until(|| !node.default.asked("GetContainerEvents").is_empty()).await;
    node.default.kill();
    node.is_down().await;
    node.default.replies("GetContainerEvents", Reply::Open(vec![event("a")]));
    node.default.start();
    assert_eq!(heard(&mut events).await, "a", "over the same stream");
}

/// CRI-O ends the stream at once, and says that all is well, unless its events are turned on. A kubelet before 1.37 that has events lists by
/// itself every five minutes alone, so it must be let go back to listing each second: a stream held open would hide what containers do.
#[tokio::test]
async fn a_default_that_ends_them_at_once_has_kubelet_do_without() {
    let node = Node::up().await;
    node.default.replies("GetContainerEvents", Reply::Stream(vec![], Status::ok("")));
    for asked in 1..=2 {
        let mut events = subscribed(&node).await;
        ends(&mut events).await;
        assert_eq!(node.default.asked("GetContainerEvents").len(), asked, "asked once for each of kubelet's");
    }
}

/// A client that does not read has as many events as the queue, and the one end.
#[tokio::test]
async fn a_full_queue_ends_them() {
    let node = Node::up().await;
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    node.default.replies("GetContainerEvents", Reply::Flood(16, sent.clone()));
    let question = Question::new("/runtime.v1.RuntimeService/GetContainerEvents", Bytes::new());
    let mut events = ask::stream(node.front.clone(), question).await.expect("a stream");
    // Held by the flood, too.
    until(|| Arc::strong_count(&sent) > 2).await;
    until(|| Arc::strong_count(&sent) == 2).await;
    let mut read = 0;
    let end = loop {
        match tokio::time::timeout(LONG, events.message()).await.expect("in time") {
            Ok(event) => read += event.map(|_| 1).expect("no end without a status"),
            Err(end) => break end,
        }
    };
    assert!(read >= 10_000 && end.code() == Code::Unavailable, "{read} and then {end}");
    assert!(end.message().contains("the client does not read them"), "{end}");
}
