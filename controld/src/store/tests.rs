use std::collections::BTreeMap;

use super::*;
use crate::model::{SandboxConfig, SandboxState};

fn sandbox(id: &str) -> Sandbox {
    Sandbox {
        version: RECORD_VERSION,
        id: id.parse().expect("pod id"),
        state: SandboxState::Ready,
        created_at: 1,
        config: SandboxConfig {
            name: "vm".into(),
            labels: BTreeMap::from([("a".into(), "b".into())]),
            ..Default::default()
        },
        net: None,
    }
}

#[tokio::test]
async fn what_was_put_is_there_after_a_restart_and_what_was_removed_is_not() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let (store, unread) = Store::open(&path).expect("opens");
    assert!(unread.is_empty());
    store.put_sandbox(sandbox("one")).await.expect("put");
    store.put_sandbox(sandbox("two")).await.expect("put");
    store.remove_sandbox(&"one".parse().expect("id")).await.expect("removed");
    store.remove_sandbox(&"never".parse().expect("id")).await.expect("removing what is absent is fine");
    store.put_fact("boot", &"id-1").await.expect("put");
    drop(store);
    let (store, _) = Store::open(&path).expect("opens");
    assert_eq!(store.sandboxes().iter().map(|s| s.id.to_string()).collect::<Vec<_>>(), ["two"]);
    assert_eq!(*store.sandboxes()[0], sandbox("two"));
    assert_eq!(store.fact::<String>("boot").expect("read"), Some("id-1".into()));
    assert_eq!(store.fact::<String>("absent").expect("read"), None);
}

#[tokio::test]
async fn a_newer_or_damaged_record_is_reported_and_kept() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let (store, _) = Store::open(&path).expect("opens");
    store.write(SANDBOXES, "newer".into(), Some(br#"{"version":99}"#.to_vec())).await.expect("put");
    store.write(CONTAINERS, "torn".into(), Some(b"{".to_vec())).await.expect("put");
    store.put_sandbox(sandbox("good")).await.expect("put");
    drop(store);
    for _ in 0..2 {
        let (store, unread) = Store::open(&path).expect("opens");
        assert_eq!(store.sandboxes().len(), 1);
        assert_eq!(unread.len(), 2, "{unread:?}");
        assert!(unread[0].contains("`newer`: version 99 is not 1"), "{unread:?}");
    }
}

#[test]
fn a_second_daemon_and_a_foreign_file_are_refused() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("meta.redb");
    let _held = Store::open(&path).expect("opens");
    assert!(matches!(Store::open(&path), Err(StoreError::Open { .. })));
    let foreign = dir.path().join("foreign");
    std::fs::write(&foreign, "not a database, but longer than a header would be").expect("writes");
    assert!(matches!(Store::open(&foreign), Err(StoreError::Open { .. })));
}
