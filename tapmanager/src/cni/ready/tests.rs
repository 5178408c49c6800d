use std::future::pending;

use serde_json::json;

use super::*;

fn network(name: &str) -> NetworkList {
    json!({ "name": name, "cniVersion": "1.1.0", "plugins": [{ "type": "a" }] }).try_into().expect("a network")
}

fn no() -> CniError {
    CniError::NoCommonVersion { network: "n".into() }
}

/// A task that the test answers for.
fn asked(memory: &StatusCache, now: Instant) -> bool {
    let mut begun = false;
    memory.ask(now, |_| {
        begun = true;
        AbortOnDropHandle::new(tokio::spawn(pending()))
    });
    begun
}

fn answer(memory: &StatusCache, outcome: Result<(), CniError>) {
    let network = memory.lock().network.clone().expect("a network");
    memory.answered(&network, outcome);
}

fn after(seconds: u64, start: Instant) -> Instant {
    start + Duration::from_secs(seconds)
}

#[tokio::test]
async fn an_answer_holds_then_is_asked_behind_then_is_waited_for() {
    let (memory, n, t) = (StatusCache::new(), network("n"), Instant::now());
    assert!(matches!(memory.look(&n, t), CachedStatus::Missing));
    assert!(asked(&memory, t) && !asked(&memory, t), "one at a time");
    let mut answers = memory.answers();
    answer(&memory, Ok(()));
    assert!(answers.has_changed().expect("open"));
    answers.mark_unchanged();
    assert!(matches!(memory.look(&n, after(4, t)), CachedStatus::Fresh(Ready { outcome: Ok(()), unanswered: None })));
    assert!(matches!(memory.look(&n, after(5, t)), CachedStatus::Stale(Ready { outcome: Ok(()), unanswered: None })));
    assert!(asked(&memory, after(5, t)));
    // They hang: the answer says since when, and is not believed for ever.
    let CachedStatus::Stale(Ready { outcome: Ok(()), unanswered: Some(waited) }) = memory.look(&n, after(12, t)) else {
        panic!("{:?}", memory.look(&n, after(12, t)))
    };
    assert_eq!(waited, Duration::from_secs(7));
    assert!(matches!(memory.look(&n, after(30, t)), CachedStatus::Missing));
    answer(&memory, Err(no()));
    let CachedStatus::Fresh(Ready { outcome: Err(Unready::Plugins(_)), .. }) = memory.look(&n, after(5, t)) else {
        panic!("{:?}", memory.look(&n, after(5, t)))
    };
    assert!(matches!(memory.look(&n, after(6, t)), CachedStatus::Missing), "a no is asked about again soon");
}

#[tokio::test]
async fn another_network_ends_what_the_former_one_was_asked() {
    let (memory, t) = (StatusCache::new(), Instant::now());
    assert!(matches!(memory.known(t).outcome, Err(Unready::NotAsked)));
    assert!(matches!(memory.look(&network("one"), t), CachedStatus::Missing));
    let (begun, mut ended) = tokio::sync::oneshot::channel::<()>();
    memory.ask(t, |_| {
        AbortOnDropHandle::new(tokio::spawn(async move {
            let _held = begun;
            pending().await
        }))
    });
    let former = memory.lock().network.clone().expect("a network");
    assert!(matches!(memory.look(&network("two"), t), CachedStatus::Missing));
    (&mut ended).await.expect_err("dropped with the task");
    // What it says all the same is about nothing any more.
    memory.answered(&former, Ok(()));
    assert!(matches!(memory.known(t).outcome, Err(Unready::NotAsked)));
    assert!(asked(&memory, t));
    assert_eq!(
        memory.known(after(3, t)).outcome.expect_err("silent").to_string(),
        "the CNI plugins of network `two` have not answered STATUS for 3 s"
    );
}
