//! Many callers, and callers that leave.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};

use imagestore::Progress;
use vmimage::error::ErrorKind;

use crate::rig::{Bed, Server, disk, eventually, names};

/// Opened by the test when the server may go on.
#[derive(Default)]
pub(crate) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.lock().expect("sound") = true;
        self.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let closed = self.0.lock().expect("sound");
        drop(self.1.wait_while(closed, |open| !*open).expect("sound"));
    }
}

const HALF: usize = 200_000;

/// Sends one half of an image, and the other when the gate opens.
fn halting() -> (Server, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let at_server = gate.clone();
    let server = Server::plain(move |call| {
        let image = disk(1, 2 * HALF);
        call.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", image.len()));
        call.send(&image[..HALF]);
        at_server.pass();
        call.send(&image[HALF..]);
    });
    (server, gate)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pulls_are_one_download() {
    let (server, gate) = halting();
    let bed = Bed::new(&server.url("/x"));
    let pulls: Vec<_> = (0..200)
        .map(|number| {
            let store = bed.store.clone();
            // Both ways of writing the same name.
            let name = if number % 2 == 0 { "img" } else { "img:latest" };
            tokio::spawn(async move { store.pull(name).await })
        })
        .collect();
    eventually("half of it is there", || {
        let progress = bed.store.pull_progress("img", "");
        progress.is_some_and(|Progress { bytes, total, .. }| (bytes, total) == (HALF as u64, Some(2 * HALF as u64)))
    })
    .await;
    assert_eq!(names(&bed.images().join("data")).len(), 1);
    gate.open();
    let mut images = Vec::new();
    for pull in pulls {
        images.push(pull.await.expect("ran").expect("pulled"));
    }
    assert!(images.iter().all(|image| *image == images[0]));
    assert_eq!(server.hits(), 1);
    assert_eq!(bed.store.pull_progress("img", ""), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_goes_to_all_and_is_not_remembered() {
    let gate = Arc::new(Gate::default());
    let at_server = gate.clone();
    let server = Server::plain(move |call| {
        if call.path() == "/bad" {
            call.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n");
            at_server.pass();
        } else {
            call.ok(&disk(1, 4096));
        }
    });
    let bed = Bed::new(&server.url("/bad"));
    let pulls: Vec<_> = (0..20)
        .map(|_| {
            let store = bed.store.clone();
            tokio::spawn(async move { store.pull("img").await })
        })
        .collect();
    eventually("it is under way", || {
        bed.store.pull_progress("img", "").is_some_and(|progress| progress.total.is_some())
    })
    .await;
    gate.open();
    for pull in pulls {
        assert_eq!(pull.await.expect("ran").expect_err("broke off").kind(), ErrorKind::Server);
    }
    bed.translate(&server.url("/good"));
    bed.pull().await.expect("pulled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_ends_with_its_last_waiter() {
    let server = Server::plain(|call| {
        call.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        call.send(disk(1, HALF));
        call.hold();
    });
    let bed = Bed::new(&server.url("/x"));
    let pull = || {
        let store = bed.store.clone();
        tokio::spawn(async move { store.pull("img").await })
    };
    let (first, second) = (pull(), pull());
    let under_way = || bed.store.pull_progress("img", "").is_some_and(|progress| progress.bytes == HALF as u64);
    eventually("it is under way", under_way).await;
    first.abort();
    assert!(first.await.expect_err("aborted").is_cancelled());
    assert!(under_way(), "somebody still waits");
    assert_eq!(server.done.load(Ordering::Relaxed), 0);
    second.abort();
    assert!(second.await.expect_err("aborted").is_cancelled());
    eventually("the server sees the end", || server.done.load(Ordering::Relaxed) == 1).await;
    assert_eq!(bed.store.pull_progress("img", ""), None);
    bed.assert_empty().await;
    assert_eq!(server.hits(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pull_may_follow_on_one_that_was_given_up() {
    let (server, gate) = halting();
    let bed = Bed::new(&server.url("/x"));
    for _ in 0..20 {
        let store = bed.store.clone();
        let given_up = tokio::spawn(async move { store.pull("img").await });
        eventually("it is under way", || bed.store.pull_progress("img", "").is_some()).await;
        given_up.abort();
        let _ = given_up.await;
    }
    gate.open();
    let image = bed.pull().await.expect("pulled");
    eventually("parts of those given up go", || names(&bed.images().join("data")) == [image.id.hex()]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_downloads_at_a_time_than_allowed() {
    let (server, gate) = halting();
    let bed = Bed::with("http://unused.example/", |config| {
        config.limits.downloads = 2;
        config.protocol = imagestore::Protocol::Http;
    });
    let pulls: Vec<_> = (0..5)
        .map(|number| {
            let store = bed.store.clone();
            let name = format!("{}/image{number}", server.address);
            tokio::spawn(async move { store.pull(&name).await })
        })
        .collect();
    eventually("two are under way", || server.hits() == 2).await;
    gate.open();
    for pull in pulls {
        pull.await.expect("ran").expect("pulled");
    }
    assert_eq!(server.hits(), 5);
    assert_eq!(bed.store.list("").expect("listed").len(), 1, "the same bytes under five names");
    assert_eq!(bed.store.list("").expect("listed")[0].repo_tags.len(), 5);
}
