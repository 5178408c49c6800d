//! `Status` of both sides while one of them is late.

use super::*;

/// Ours asks libvirt and tapmanager.
#[tokio::test]
async fn our_part_has_the_deadline_of_lists() {
    let node = Node::hasty_with_ours().await;
    node.own.has().hangs = true;
    let mut runtime = node.runtime();
    let status = tokio::time::timeout(DEADLINE * 5, runtime.status(StatusRequest::default())).await;
    assert!(status.is_err(), "given up: {status:?}");
}

/// As of a default under load. `Version` and lists are answered.
#[tokio::test]
async fn one_that_is_late_each_time_counts_when_it_comes() {
    let node = Node::hasty().await;
    // As a new connection is asked.
    until(|| node.front.0.saved.status().is_some()).await;
    let now = Arc::new(tokio::sync::Notify::new());
    let network = RuntimeCondition { r#type: "NetworkReady".into(), status: true, ..Default::default() };
    let late = StatusResponse { status: Some(RuntimeStatus { conditions: vec![network] }), ..Default::default() };
    let late = late.encode_to_vec();
    node.default.replies("Status", Reply::Late(late.clone().into(), now.clone()));
    for _ in 0..2 {
        let status = node.runtime().status(StatusRequest::default()).await.expect("the last one").into_inner();
        let conditions = status.status.expect("a status").conditions;
        assert!(conditions.iter().any(|is| is.r#type == "RuntimeReady" && is.status), "{conditions:?}");
        assert_eq!(node.default.asked("Status").len(), 2, "one at a time");
    }
    now.notify_one();
    until(|| node.front.0.saved.status().is_some_and(|status| status == late)).await;
    let later = Instant::now();
    assert_eq!(node.front.0.saved.status_failed(later), later, "none has failed since");
}
