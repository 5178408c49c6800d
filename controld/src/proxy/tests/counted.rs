//! Which calls are the default's alone, and so no measure of ours.

use super::*;
use crate::api::edge::PassedOn;

#[tokio::test]
async fn a_call_that_the_default_alone_answers_is_no_measure_of_ours() {
    let node = Node::up().await;
    node.lists(&["a"]);
    let passed_on = async |call: &str, message: &[u8]| {
        let length = u8::try_from(message.len()).expect("short");
        let body = [&[0, 0, 0, 0, length], message].concat();
        let mut request = Request::new(Body::new(http_body_util::Full::new(Bytes::from(body))));
        *request.uri_mut() = format!("http://localhost/runtime.v1.RuntimeService/{call}").parse().expect("a URI");
        let passed_on = PassedOn::default();
        request.extensions_mut().insert(passed_on.clone());
        node.front.clone().call(request).await.expect("answered");
        passed_on.is()
    };
    let id = |id: &str| ContainerStatusRequest { container_id: id.into(), verbose: false }.encode_to_vec();
    for call in ["ContainerStatus", "RemoveContainer", "Exec"] {
        assert!(passed_on(call, &id("ab")).await, "{call}");
        assert!(!passed_on(call, &id("vmab")).await, "{call}");
    }
    assert!(passed_on("RunPodSandbox", &[]).await);
    for call in ["Unheard", "Version", "RuntimeConfig"] {
        assert!(passed_on(call, &[]).await, "{call}");
    }
    for call in ["ListContainers", "Status"] {
        assert!(!passed_on(call, &[]).await, "{call}");
    }
}
