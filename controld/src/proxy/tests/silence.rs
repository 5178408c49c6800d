//! Calls that are under way when the default falls silent, or ours blocks a thread.

use std::sync::mpsc;

use super::*;

/// kubelet's look at its pods sends one such call after the other.
#[tokio::test]
async fn a_look_that_is_under_way_ends_with_the_silence_and_what_changes_something_goes_on() {
    let node = Node::hasty().await;
    node.lists(&["a"]);
    node.listed().await.expect("a list");
    node.default.says("PullImage", &PullImageResponse { image_ref: "sha256:c".into() });
    node.default.says("StartContainer", &StartContainerResponse {});
    node.default.says("CreateContainer", &CreateContainerResponse { container_id: "c".into() });
    node.default.stop(true);
    let (mut images, mut runtime, mut starts, mut makes) =
        (node.image_calls(), node.runtime(), node.runtime(), node.runtime());
    let pull =
        tokio::spawn(
            async move { images.pull_image(PullImageRequest { image: spec("x"), ..Default::default() }).await },
        );
    let status = tokio::spawn(async move {
        runtime.container_status(ContainerStatusRequest { container_id: "ab".into(), verbose: false }).await
    });
    let start =
        tokio::spawn(async move { starts.start_container(StartContainerRequest { container_id: "ab".into() }).await });
    let make = tokio::spawn(async move {
        makes.create_container(CreateContainerRequest { pod_sandbox_id: "ab".into(), ..Default::default() }).await
    });
    for call in ["PullImage", "ContainerStatus", "StartContainer", "CreateContainer"] {
        until(|| !node.default.asked(call).is_empty()).await;
    }
    // Which is late, and `Version` behind it.
    node.listed().await.expect("the last good one");
    let refused = tokio::time::timeout(LONG, status).await.expect("ended").expect("no bug").expect_err("away");
    assert!(refused.code() == Code::Unavailable && refused.message().contains("not even `Version`"), "{refused}");
    assert!(!pull.is_finished() && !start.is_finished() && !make.is_finished());
    node.default.stop(false);
    let pulled = tokio::time::timeout(LONG, pull).await.expect("ended").expect("no bug").expect("pulled");
    assert_eq!(pulled.into_inner().image_ref, "sha256:c", "over the same connection");
    tokio::time::timeout(LONG, start).await.expect("ended").expect("no bug").expect("started");
    tokio::time::timeout(LONG, make).await.expect("ended").expect("no bug").expect("made");
}

/// As [`a_look_that_is_under_way_ends_with_the_silence_and_what_changes_something_goes_on`], with an answer that has begun.
#[tokio::test]
async fn an_answer_that_has_begun_ends_with_the_silence() {
    let node = Node::hasty().await;
    node.default.replies("ContainerStatus", Reply::Open(vec![Bytes::from_static(b"x")]));
    let mut request = Request::new(Body::new(http_body_util::Full::new(Bytes::from_static(&[0; 5]))));
    *request.uri_mut() = Uri::from_static("http://localhost/runtime.v1.RuntimeService/ContainerStatus");
    let mut answer = node.front.clone().call(request).await.expect("answered").into_body();
    while answer.frame().await.expect("a frame").expect("one").into_data().expect("data") != b"x"[..] {}
    node.default.stop(true);
    let _ = node.listed().await;
    let end = tokio::time::timeout(LONG, answer.frame()).await.expect("an end").expect("a frame").expect("one");
    let end = Status::from_header_map(&end.into_trailers().expect("trailers")).expect("a status");
    assert!(end.code() == Code::Unavailable && end.message().contains("not even `Version`"), "{end}");
    // The list goes on as long as it may come late.
    node.default.stop(false);
    until(|| node.front.0.metrics.under_way() == 0).await;
}

/// As a database on a disk that hangs.
#[tokio::test]
async fn what_blocks_a_thread_of_ours_holds_up_no_call_of_the_default() {
    let machines = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("made");
    let node = Node::on(machines.handle(), (PATIENT, PATIENT)).started().await;
    node.default.says("ContainerStatus", &ContainerStatusResponse::default());
    let (own, (blocks, blocked), (release, released)) = (node.own.clone(), mpsc::channel(), mpsc::channel::<()>());
    let blocker = std::thread::spawn(move || {
        let _has = own.has();
        blocks.send(()).expect("told");
        // Until it is dropped, or for as long as anything may take.
        let _ = released.recv_timeout(LONG);
    });
    blocked.recv().expect("blocked");
    let (mut ours, mut theirs) = (node.runtime(), node.runtime());
    let looked = tokio::spawn(async move {
        ours.pod_sandbox_status(PodSandboxStatusRequest { pod_sandbox_id: "vm1".into(), verbose: false }).await
    });
    // It has begun when another one has come and gone.
    for _ in 0..2 {
        let status = ContainerStatusRequest { container_id: "ab".into(), verbose: false };
        theirs.container_status(status).await.expect("answered");
    }
    assert!(!looked.is_finished() && !blocker.is_finished());
    drop(release);
    looked.await.expect("no bug").expect("answered");
    assert_eq!(node.own.has().asked, ["PodSandboxStatus vm1"]);
    blocker.join().expect("ended");
    machines.shutdown_background();
}
