#!/bin/bash
# What:     kube-runtime 5.0.0 (kube-rs), feature unstable-runtime: a shared store (`reflector::store_shared`) that is fed with events of a
#           watch, and the stream of one who subscribed to it, as `Controller::owns_shared_stream` takes it
# Expected: whoever subscribes hears of what the store hears of, as from `watcher(..).touched_objects()`, by which `Controller::owns` hears of
#           a child that was deleted.
# Seen:     the store loses the deleted object, and no subscriber is told. After a watch that was made anew, those that it lists are told
#           again, and nothing of one that is not listed any more.
# So:       a controller on shared streams that has to act when a child is gone needs another source for that, or its own watch.
source "$(dirname "$0")/lib.sh"
need cargo "install Rust 1.95 or later by rustup"

mkdir -p "$tmp/shared/src"
cat >"$tmp/shared/Cargo.toml" <<'TOML'
[package]
name = "shared"
version = "0.0.0"
edition = "2024"

[dependencies]
futures = "=0.3.34"
k8s-openapi = { version = "=0.29.0", features = ["v1_33"] }
kube = { version = "=5.0.0", default-features = false, features = ["client", "runtime", "unstable-runtime"] }
tokio = { version = "1", features = ["macros", "rt", "time"] }
TOML
cat >"$tmp/shared/src/main.rs" <<'RUST'
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::runtime::reflector::store_shared;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};

fn pod(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.into());
    pod.metadata.namespace = Some("default".into());
    pod
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (store, writer) = store_shared::<Pod>(64);
    let mut subscriber = writer.subscribe().expect("a shared one");
    let (news, events) = futures::channel::mpsc::unbounded::<Result<Event<Pod>, watcher::Error>>();
    let mut watched = Box::pin(events.reflect_shared(writer));
    let rounds = [
        ("made a, b", vec![Event::Init, Event::InitApply(pod("a")), Event::InitApply(pod("b")), Event::InitDone]),
        ("changed a", vec![Event::Apply(pod("a"))]),
        ("deleted a", vec![Event::Delete(pod("a"))]),
        ("listed c alone", vec![Event::Init, Event::InitApply(pod("c")), Event::InitDone]),
    ];
    for (what, events) in rounds {
        let count = events.len();
        events.into_iter().for_each(|event| news.unbounded_send(Ok(event)).expect("taken"));
        for _ in 0..count {
            watched.next().await.expect("an event").expect("no error");
        }
        let mut told = Vec::new();
        while let Ok(Some(pod)) = tokio::time::timeout(Duration::from_millis(200), subscriber.next()).await {
            told.push(pod.name_any());
        }
        told.sort();
        let mut known: Vec<_> = store.state().iter().map(|pod| pod.name_any()).collect();
        known.sort();
        println!("{what}: told of {told:?}, the store has {known:?}");
    }
}
RUST
sed -i '/drop(stream::empty/d; s/use futures::StreamExt;/use futures::StreamExt;/' "$tmp/shared/src/main.rs"
CARGO_TARGET_DIR=$tmp/target cargo build -q --manifest-path "$tmp/shared/Cargo.toml" >"$tmp/out" 2>&1
seen=$(timeout 60 "$tmp/target/debug/shared")
line() { sed -n "$1p" <<<"$seen"; }
expect "what is made is told" 'made a, b: told of ["a", "b"], the store has ["a", "b"]' "$(line 1)"
expect "what is changed is told" 'changed a: told of ["a"], the store has ["a", "b"]' "$(line 2)"
expect "what is deleted is not told" 'deleted a: told of [], the store has ["b"]' "$(line 3)"
expect "what a new list does not have is not told" 'listed c alone: told of ["c"], the store has ["c"]' "$(line 4)"
