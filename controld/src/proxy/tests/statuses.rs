//! `Status` of both sides while one of them is late.

use super::*;

/// Ours asks libvirt and tapmanager.
#[tokio::test]
async fn our_part_is_waited_for_as_long_as_that_of_the_default() {
    let node = Node::hasty_with_ours().await;
    node.own.has().hangs = true;
    let mut runtime = node.runtime();
    let status = tokio::time::timeout(DEADLINE * 5, runtime.status(StatusRequest::default())).await;
    assert!(status.is_err(), "given up: {status:?}");
}
