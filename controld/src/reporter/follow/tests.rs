use proto::pause::Pause;
use serde_json::Value;

use super::super::way::tests::{pod_of, way};
use super::*;
use crate::api::cri::convert::tests::{container, sandbox};
use crate::guest::agents::Agents;

fn paused(is_paused: bool) -> Arc<Container> {
    Arc::new(Container { pause: is_paused.then_some(Pause::ByHand), ..container() })
}

/// Statuses of the condition `Paused` that were patched, one after the other.
fn told(patches: &[Value]) -> Vec<String> {
    let conditions = patches.iter().filter_map(|patch| patch.pointer("/status/conditions/0"));
    conditions.map(|one| one["status"].as_str().expect("a status").to_owned()).collect()
}

#[tokio::test]
async fn a_vm_that_changes_all_the_time_is_told_of_now_and_then_and_as_it_is_at_last() {
    let dir = tempfile::tempdir().expect("tempdir");
    let store = Store::open(&dir.path().join("meta.redb")).expect("opened");
    store.put_sandbox(sandbox()).await.expect("kept");
    let agents = Arc::new(Agents::new(dir.path().to_owned()));
    let (way, asked) = way(|_, _| (200, pod_of("u-1")));
    let (container, receiver) = watch::channel(paused(true));
    tokio::time::pause();
    let following = tokio::spawn(follow(store, agents, Arc::new(way), receiver));
    for nth in 0..=250 {
        sleep(Duration::from_millis(100)).await;
        container.send_replace(paused(nth % 2 == 0));
    }
    sleep(PERIOD).await;
    let patches: Vec<_> = asked.lock().expect("a log").iter().map(|(.., patch)| patch.clone()).collect();
    let calls = patches.len();
    assert!((2..=5).contains(&calls), "{calls} calls in 35 s, the first of which reads");
    assert_eq!(told(&patches).last().map(String::as_str), Some("True"));
    container.send_replace(paused(false));
    sleep(PERIOD).await;
    let patches: Vec<_> = asked.lock().expect("a log").iter().map(|(.., patch)| patch.clone()).collect();
    assert_eq!(told(&patches).last().map(String::as_str), Some("False"));
    sleep(PERIOD * 100).await;
    assert_eq!(asked.lock().expect("a log").len(), patches.len(), "nothing is told when nothing changes");
    drop(container);
    following.await.expect("ends");
}
