//! Changes of resources.

use std::time::Duration;

use vmspec::error::Kind;
use vmspec::{Applied, ContainerId, Resources};

use super::GRACE;
use super::fake::Node;
use crate::model::Container;

fn quota(cpu_quota: i64) -> Resources {
    Resources { cpu_quota, ..Resources::default() }
}

fn shown(node: &Node, id: ContainerId) -> (Resources, Option<Applied>) {
    let all = node.shown();
    let container: &Container = all.iter().find(|container| container.id == id).expect("shown");
    (container.config.resources.clone().unwrap_or_default(), container.applied)
}

#[tokio::test(start_paused = true)]
async fn a_change_is_on_record_once_it_is_in_force() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    let actor = node.actors().get(id).expect("there");
    let early = actor.update(quota(200_000)).await.expect_err("it does not run");
    assert_eq!(early.kind(), Kind::State);
    node.start(id).await.expect("started");
    actor.update(Resources { memory_limit: 1 << 28, ..quota(200_000) }).await.expect("changed");
    let memory = 1 << 27;
    let now = (Resources { memory_limit: 1 << 28, ..quota(200_000) }, Some(Applied { vcpus: 2, memory }));
    assert_eq!(shown(&node, id), now);
    actor.update(Resources { memory_limit: -1, ..quota(300_000) }).await.expect_err("the host refuses");
    let plugged = Some(Applied { vcpus: 3, memory });
    assert_eq!(shown(&node, id), (now.0.clone(), plugged), "nothing of it but vCPUs, which are never unplugged");
    actor.update(quota(0)).await.expect("nothing to do");
    assert_eq!(shown(&node, id), now, "zero is unchanged");
    // Where the record cannot be written it is true all the same.
    node.disk_full(true);
    actor.update(quota(300_000)).await.expect("in force");
    assert_eq!(shown(&node, id).1, Some(Applied { vcpus: 3, memory }));
    node.disk_full(false);
    node.stop(id, GRACE).await.expect("stopped");
    let late = actor.update(quota(100_000)).await.expect_err("it has ended");
    assert_eq!(late.kind(), Kind::State);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_hangs_holds_up_no_stop() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    node.no_resizes(true);
    let actor = node.actors().get(id).expect("there");
    let change = tokio::spawn({
        let actor = actor.clone();
        async move { actor.update(quota(200_000)).await }
    });
    tokio::task::yield_now().await;
    let second = actor.update(quota(300_000)).await.expect_err("one is under way");
    assert_eq!(second.kind(), Kind::Unavailable);
    let began = tokio::time::Instant::now();
    node.stop(id, GRACE).await.expect("stopped");
    assert!(began.elapsed() <= GRACE + Duration::from_secs(2), "{:?}", began.elapsed());
    let _either = change.await.expect("answered");
    assert_eq!(shown(&node, id).1.map(|applied| applied.vcpus), None, "it was never done");
    node.remove(id).await.expect("removed");
}
