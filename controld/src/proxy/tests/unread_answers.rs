//! Answers of the default about the node that are none, or that have never come.

use super::*;

async fn conditions(node: &Node, verbose: bool) -> Result<Vec<(String, bool)>, Status> {
    let status = node.runtime().status(StatusRequest { verbose }).await?.into_inner();
    let conditions = status.status.unwrap_or_default().conditions;
    Ok(conditions.into_iter().map(|is| (is.r#type, is.status)).collect())
}

fn is(conditions: &[(String, bool)], kind: &str) -> Option<bool> {
    conditions.iter().find(|(is, _)| is == kind).map(|(_, status)| *status)
}

/// With our condition behind it nobody could read either.
#[tokio::test]
async fn a_status_that_is_no_message_is_as_none() {
    let node = Node::up().await;
    conditions(&node, false).await.expect("a status");
    for garbage in [&[0x0a, 9, 1][..], &[0xff; 12], &[0x0a, 2, 0x0a, 9]] {
        node.default.replies("Status", Reply::Message(Bytes::from_static(garbage)));
        for verbose in [false, true] {
            let last = conditions(&node, verbose).await.expect("the last good one");
            assert_eq!(is(&last, "RuntimeReady"), Some(true), "{garbage:x?} {verbose}: {last:?}");
            assert_eq!(is(&last, "VirtletReady"), Some(true), "{garbage:x?} {verbose}: {last:?}");
        }
    }
}

#[tokio::test]
async fn before_its_first_status_kubelet_has_an_error_and_people_see_why() {
    let node = Node::new();
    until(|| node.front.0.backend.away().is_some_and(|away| away.why.contains("no such socket"))).await;
    let refused = conditions(&node, false).await.expect_err("not known yet");
    assert!(refused.code() == Code::Unavailable && refused.message().contains("no such socket"), "{refused}");
    let shown = node.runtime().status(StatusRequest { verbose: true }).await.expect("shown").into_inner();
    assert!(shown.info["virtletProxy"].contains("no such socket"), "{:?}", shown.info);
    let down = conditions(&node, true).await.expect("shown");
    assert_eq!((is(&down, "RuntimeReady"), is(&down, "NetworkReady")), (Some(false), Some(false)));
    node.default.start();
    node.is_up().await;
    assert_eq!(is(&conditions(&node, false).await.expect("its own"), "RuntimeReady"), Some(true));
    // A runtime that is there and has no Status: the last one for as long as there is patience.
    node.default.replies("Status", Reply::Failed(Status::internal("broken")));
    assert_eq!(is(&conditions(&node, false).await.expect("the last one"), "RuntimeReady"), Some(true));
}

#[tokio::test]
async fn a_version_and_a_config_that_are_no_messages_replace_none() {
    let node = Node::up().await;
    let linux = Some(LinuxRuntimeConfiguration { cgroup_driver: CgroupDriver::Cgroupfs.into() });
    node.default.says("RuntimeConfig", &RuntimeConfigResponse { linux });
    let config = async || node.runtime().runtime_config(RuntimeConfigRequest {}).await.map(|it| it.into_inner().linux);
    assert_eq!(config().await.expect("a config"), linux);
    for call in ["Version", "RuntimeConfig", "ImageFsInfo"] {
        node.default.replies(call, Reply::Message(Bytes::from_static(&[0x0a, 9, 1])));
    }
    assert_eq!(config().await.expect("the last one"), linux);
    let version = node.runtime().version(VersionRequest::default()).await.expect("the last one").into_inner();
    assert_eq!(version.runtime_name, "containerd");
    let none = node.image_calls().image_fs_info(ImageFsInfoRequest {}).await.expect_err("there was none");
    assert_eq!(none.code(), Code::Internal);
}

#[test]
fn a_cgroup_driver_that_is_not_said_any_more_is_no_difference() {
    let state = State::new(Some(crate::config::CgroupDriver::Systemd));
    state.compare_drivers(Some(crate::config::CgroupDriver::Cgroupfs));
    assert!(state.driver_differs().is_some());
    state.compare_drivers(None);
    assert_eq!(state.driver_differs(), None);
    state.compare_drivers(Some(crate::config::CgroupDriver::Systemd));
    assert_eq!(state.driver_differs(), None);
}
