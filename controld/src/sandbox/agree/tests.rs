use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::KeyedMutex;
use proto::tap::{Dns, PodNet, PodPage, Reply, Request};
use tempfile::TempDir;
use vmspec::SandboxConfig;

use super::*;
use crate::api::cri::convert::tests::container;
use crate::container::Containers;
use crate::daemon::agree::with_tapmanager;
use crate::daemon::node::tests::node;
use crate::model::{Container, ContainerState, SANDBOX_VERSION};
use crate::tap::tests::{Fake, until};

fn pod(phase: PodPhase, recovering: bool, trouble: Option<&str>) -> PodSummary {
    PodSummary {
        pod: "a".parse().expect("id"),
        namespace: String::new(),
        name: String::new(),
        owner: None,
        phase,
        recovering,
        ip: None,
        trouble: trouble.map(str::to_owned),
    }
}

#[test]
fn what_is_being_recovered_is_waited_for_whatever_else_is_said_of_it() {
    for phase in [PodPhase::Attaching, PodPhase::Attached, PodPhase::Detaching] {
        assert_eq!(word(Some(&pod(phase, true, Some("tap gone")))), Word::Waits);
    }
}

#[test]
fn only_what_is_attached_and_well_stands() {
    assert_eq!(word(Some(&pod(PodPhase::Attached, false, None))), Word::Stands);
    assert_eq!(word(Some(&pod(PodPhase::Attached, false, Some("tap gone")))), Word::Troubled("tap gone"));
    assert_eq!(word(Some(&pod(PodPhase::Attaching, false, None))), Word::Ends);
    assert_eq!(word(Some(&pod(PodPhase::Detaching, false, None))), Word::Ends);
    assert_eq!(word(None), Word::Unheard);
}

/// A node, and a tapmanager that has a book of its own.
struct Node {
    _dir: TempDir,
    fake: Fake,
    book: Arc<Mutex<Vec<PodSummary>>>,
    /// Whether a Recover succeeds.
    of_use: Arc<Mutex<bool>>,
    mutex: KeyedMutex,
    sandboxes: Sandboxes,
}

impl Node {
    async fn start() -> Self {
        let dir = tempfile::tempdir().expect("tempdir");
        let book: Arc<Mutex<Vec<PodSummary>>> = Arc::default();
        let of_use = Arc::new(Mutex::new(true));
        let (theirs, recovers) = (book.clone(), of_use.clone());
        let fake = Fake::told(&dir, move |request| match request {
            Request::List(list) => {
                let mut pods = theirs.lock().expect("lock").clone();
                pods.retain(|pod| list.pod.as_ref().is_none_or(|only| *only == pod.pod));
                Some(Reply::Pods(PodPage { pods, more: false }))
            }
            Request::Detach { .. } => Some(Reply::Detached),
            // Any reply but its own is a failure.
            Request::Recover { .. } if !*recovers.lock().expect("lock") => Some(Reply::Detached),
            Request::Recover { .. } => {
                let (netns, nics, dns) = ("/run/netns/x".into(), Vec::new(), Dns::default());
                Some(Reply::Attached(PodNet { netns, nics, dns }))
            }
            _ => None,
        });
        let mut node = node(dir.path()).await;
        node.tap = fake.tap();
        let mutex = KeyedMutex::default();
        let containers = Containers::new(node.for_containers(), mutex.clone());
        let sandboxes = Sandboxes::new(node.for_sandboxes(), containers, mutex.clone());
        Self { _dir: dir, fake, book, of_use, mutex, sandboxes }
    }

    fn attached(&self) -> PodSummary {
        PodSummary { owner: self.sandboxes.owner(), ..pod(PodPhase::Attached, false, None) }
    }

    async fn put(&self, state: SandboxState) {
        let config = SandboxConfig { name: "web".into(), ..SandboxConfig::default() };
        let sandbox = Sandbox {
            version: SANDBOX_VERSION,
            id: id(),
            state,
            created_at: 1,
            config,
            net: None,
            boot: String::new(),
        };
        self.sandboxes.uses.store.put_sandbox(sandbox).await.expect("put");
    }

    /// Compares until all is settled.
    async fn agree(&self) {
        agreed(&self.sandboxes).await;
    }

    fn state(&self) -> Option<SandboxState> {
        self.sandboxes.uses.store.sandbox(&id()).map(|sandbox| sandbox.state)
    }

    /// Compares while a call holds the sandbox; `end` is what the call does when the comparison has come to wait for it.
    async fn agree_behind_a_call(&self, end: impl AsyncFnOnce()) {
        let call = self.mutex.lock(id().as_str()).await;
        let sandboxes = self.sandboxes.clone();
        let comparison = tokio::spawn(async move { agreed(&sandboxes).await });
        until("a comparison at the gate", || comparison.is_finished() || self.mutex.is_contended(id().as_str())).await;
        assert!(!comparison.is_finished(), "it did not wait for the call");
        end().await;
        drop(call);
        comparison.await.expect("no panic");
    }
}

async fn agreed(sandboxes: &Sandboxes) {
    let mut settling = Settling::default();
    while !sandboxes.agree(&mut settling).await.expect("compared").is_empty() {
        tokio::task::yield_now().await;
    }
}

fn id() -> PodId {
    "a".parse().expect("id")
}

#[tokio::test]
async fn a_sandbox_whose_network_is_lost_is_not_ready() {
    let node = Node::start().await;
    node.put(SandboxState::Ready).await;
    node.agree().await;
    assert_eq!(node.state(), Some(SandboxState::NotReady));
}

#[tokio::test]
async fn a_network_that_came_back_by_a_call_in_flight_is_not_lost() {
    let node = Node::start().await;
    node.put(SandboxState::Ready).await;
    node.agree_behind_a_call(async || node.book.lock().expect("lock").push(node.attached())).await;
    assert_eq!(node.state(), Some(SandboxState::Ready));
}

#[tokio::test]
async fn a_sandbox_that_a_call_in_flight_removes_does_not_come_back() {
    let node = Node::start().await;
    node.put(SandboxState::Ready).await;
    node.agree_behind_a_call(async || node.sandboxes.uses.store.remove_sandbox(&id()).expect("removed")).await;
    assert_eq!(node.state(), None);
}

#[tokio::test]
async fn a_network_whose_sandbox_comes_by_a_call_in_flight_is_not_taken_down() {
    let node = Node::start().await;
    node.book.lock().expect("lock").push(node.attached());
    node.agree_behind_a_call(async || node.put(SandboxState::Ready).await).await;
    assert_eq!((node.state(), node.fake.asked("detach")), (Some(SandboxState::Ready), 0));
}

#[tokio::test]
async fn a_network_that_nobody_has_is_taken_down() {
    let node = Node::start().await;
    node.book.lock().expect("lock").push(node.attached());
    node.agree().await;
    assert_eq!(node.fake.asked("detach"), 1);
}

#[tokio::test]
async fn what_a_call_in_flight_has_begun_is_not_undone() {
    let node = Node::start().await;
    node.put(SandboxState::Creating).await;
    node.agree().await;
    assert_eq!((node.state(), node.fake.asked("detach")), (Some(SandboxState::Creating), 0));
}

#[tokio::test]
async fn a_sandbox_in_which_no_machine_starts_is_not_ready_if_its_network_is_of_no_use() {
    for (network, then) in [(true, SandboxState::Ready), (false, SandboxState::NotReady)] {
        let node = Node::start().await;
        node.put(SandboxState::Ready).await;
        *node.of_use.lock().expect("lock") = network;
        node.sandboxes.doubt(&id()).await;
        assert_eq!((node.state(), node.fake.asked("recover")), (Some(then), 1));
    }
    let node = Node::start().await;
    node.put(SandboxState::NotReady).await;
    node.sandboxes.doubt(&id()).await;
    assert_eq!((node.state(), node.fake.asked("recover")), (Some(SandboxState::NotReady), 0), "it is known");
}

#[tokio::test]
async fn books_that_agreed_are_compared_again_in_time_and_when_a_machine_ends() {
    let (soon, never) = (Duration::from_millis(20), Duration::from_secs(3600));
    for (case, anew) in [("in time", soon), ("a machine ends", never)] {
        let node = Node::start().await;
        node.put(SandboxState::Ready).await;
        node.book.lock().expect("lock").push(node.attached());
        let store = node.sandboxes.uses.store.clone();
        let running = Container { sandbox: id(), state: ContainerState::Running, exit: None, ..container() };
        store.show_container(running.clone());
        let tap = node.fake.tap();
        let watching = tokio::spawn(tap.clone().keep_watch());
        let comparing = tokio::spawn(with_tapmanager(node.sandboxes.clone(), tap, store.changes(), anew));
        until("a first comparison", || node.fake.asked("list") > 0).await;
        assert_eq!(node.state(), Some(SandboxState::Ready), "{case}");
        node.book.lock().expect("lock").clear();
        if anew == never {
            store.show_container(Container { state: ContainerState::Exited, ..running });
        }
        until(case, || node.state() == Some(SandboxState::NotReady)).await;
        comparing.abort();
        watching.abort();
    }
}
