//! What the keeper of the connection waits for, and whom it does not connect to.

use tokio::sync::mpsc::UnboundedSender;

use super::*;

/// Who is told of connections.
struct Told(UnboundedSender<Bytes>);

impl Greeted for Told {
    fn connected(&self, version: Bytes) {
        let _ = self.0.send(version);
    }

    fn reachable(&self, _is: bool) {}
}

/// No attempt comes by itself within this test.
#[tokio::test]
async fn the_directory_of_the_socket_tells_of_a_runtime_that_has_come() {
    let dir = tempfile::tempdir().expect("a directory");
    let default = Fake::new(dir.path().join("runtime.sock"));
    let backend = Backend::new(default.socket.clone(), 0, DEADLINE, Metrics::default());
    let (told, mut connected) = tokio::sync::mpsc::unbounded_channel();
    let pace = Pace { first: LONG * 60, longest: LONG * 60 };
    let keeper = tokio::spawn(backend::keep(backend.clone(), Told(told), Watcher::start(), pace));
    until(|| backend.away().is_some_and(|away| away.why.contains("no such socket"))).await;
    for _ in 0..2 {
        default.start();
        tokio::time::timeout(LONG, connected.recv()).await.expect("in time").expect("connected");
        default.kill();
        until(|| backend.away().is_some()).await;
    }
    keeper.abort();
}

/// Its `Version` would be answered with why there is none, which is then why there is none.
#[tokio::test]
async fn our_own_socket_is_never_the_default() {
    let dir = tempfile::tempdir().expect("a directory");
    let default = Fake::new(dir.path().join("cri.sock"));
    default.start();
    let backend = Backend::new(default.socket.clone(), std::process::id(), DEADLINE, Metrics::default());
    let (told, _connected) = tokio::sync::mpsc::unbounded_channel();
    let keeper = tokio::spawn(backend::keep(backend.clone(), Told(told), Watcher::start(), Pace::default()));
    until(|| backend.away().is_some_and(|away| away.why.contains("controld's own"))).await;
    assert_eq!(default.asked("Version").len(), 0);
    keeper.abort();
}

/// What a default says is not ours to log and to hand on at any length.
#[tokio::test]
async fn what_a_default_says_in_place_of_its_version_is_cut() {
    let node = Node::new();
    node.default.replies("Version", Reply::Failed(Status::internal("because ".repeat(500))));
    node.default.start();
    let why = || node.front.0.backend.away().map(|away| away.why).unwrap_or_default();
    until(|| why().contains("because")).await;
    assert!(why().len() <= 256, "{}", why());
}

/// systemd starts kubelet once it is.
#[tokio::test]
async fn a_default_is_reached_once_it_answers() {
    let node = Node::new();
    let reached = tokio::spawn({
        let front = node.front.clone();
        async move { front.reaches_runtime().await }
    });
    until(|| node.front.0.backend.away().is_some_and(|away| away.why.contains("no such socket"))).await;
    assert!(!reached.is_finished(), "nobody is there");
    node.default.start();
    tokio::time::timeout(LONG, reached).await.expect("in time").expect("reached");
}
