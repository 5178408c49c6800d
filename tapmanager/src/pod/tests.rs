//! The actor on a fake world and a real journal.

pub(crate) mod fake;
mod sequences;

use std::collections::BTreeSet;
use std::path::Path;

use proto::tap::ErrorCode;
use tempfile::TempDir;

use super::*;
use crate::journal::Record;
use fake::{Fake, network, nics};

const GRACE: Duration = Duration::from_secs(10);

struct House {
    dir: TempDir,
    world: Arc<Fake>,
    pods: Pods<Arc<Fake>>,
}

impl House {
    fn new() -> Self {
        Self::with(Faults::none(), Fake::default())
    }

    fn with(faults: Faults, world: Fake) -> Self {
        Self::in_dir(tempfile::tempdir().expect("tempdir"), Arc::new(world), faults)
    }

    fn in_dir(dir: TempDir, world: Arc<Fake>, faults: Faults) -> Self {
        let journal = Journal::open(dir.path()).expect("journal");
        let tools =
            Tools { world: Arc::clone(&world), journal, netns_dir: "/run/netns".into(), faults: Arc::new(faults) };
        Self { dir, world, pods: Pods::new(tools) }
    }

    /// The daemon dies and comes back.
    async fn restart(self) -> Self {
        self.pods.close(GRACE).await;
        let house = Self::in_dir(self.dir, self.world, Faults::none());
        house.pods.recover(house.records()).await;
        house
    }

    fn records(&self) -> Records {
        let loaded = self.pods.shared.tools.journal.load().expect("loads");
        assert!(loaded.unreadable.is_empty(), "{:?}", loaded.unreadable);
        loaded.records
    }

    fn put(&self, pod: &str, phase: PodPhase, at: impl FnOnce(&mut fake::State, &Path)) {
        let netns = PathBuf::from(format!("/run/netns/virtlet-{pod}"));
        let mut record = Record::intent(request(pod), netns.clone(), network());
        record.phase = phase;
        record.net = Some(PodNet { netns: netns.clone(), nics: nics(), dns: proto::tap::Dns::default() });
        self.pods.shared.tools.journal.create(&record).expect("written");
        at(&mut self.world.state(), &netns);
    }

    fn phase(&self, pod: &str) -> Option<PodPhase> {
        self.pods.view(&id(pod)).map(|view| view.phase)
    }

    #[track_caller]
    fn assert_nothing_left(&self) {
        let state = self.world.state();
        let left = [&state.netns, &state.other_files, &state.added, &state.joined];
        assert_eq!(left, [&BTreeSet::new(); 4]);
        drop(state);
        assert_eq!(self.world.serving(), 0, "DHCP is served");
        assert_eq!(self.pods.count(), 0, "on record in memory");
        let files = std::fs::read_dir(self.dir.path().join("pods")).expect("dir").count();
        assert_eq!(files, 0, "on record on disk");
    }

    #[track_caller]
    fn assert_whole(&self, pod: &str) {
        let netns = PathBuf::from(format!("/run/netns/virtlet-{pod}"));
        let state = self.world.state();
        assert!([&state.netns, &state.added, &state.joined].iter().all(|set| set.contains(&netns)));
        drop(state);
        assert_eq!(self.phase(pod), Some(PodPhase::Attached));
        assert_eq!(self.records()[&id(pod)].phase, PodPhase::Attached);
    }
}

fn id(pod: &str) -> PodId {
    pod.parse().expect("pod id")
}

fn request(pod: &str) -> Attach {
    Attach { namespace: "default".into(), name: format!("vm-{pod}"), hostname: "vm".into(), ..Attach::new(id(pod)) }
}

#[tokio::test]
async fn a_pod_is_attached_once_and_detached_without_a_trace() {
    let house = House::new();
    let net = house.pods.attach(request("p1")).await.expect("attached");
    assert_eq!(net.netns, Path::new("/run/netns/virtlet-p1"));
    house.assert_whole("p1");
    assert_eq!(house.world.serving(), 1);
    assert_eq!(house.pods.attach(request("p1")).await.expect("again"), net);
    let log = house.world.state().log.clone();
    assert_eq!(log, ["default_network", "look", "create_netns", "add", "join"]);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left();
    let log = house.world.state().log.split_off(5);
    assert_eq!(log, ["look", "unjoin", "del", "remove_netns"]);
    house.pods.detach(&id("p1")).await.expect("detached again");
    house.pods.detach(&id("never-seen")).await.expect("detached");
}

#[tokio::test]
async fn another_request_for_an_attached_pod_is_a_conflict() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let mut other = request("p1");
    other.hostname = "else".into();
    let body = house.pods.attach(other).await.expect_err("conflict").body();
    assert_eq!(body.code, ErrorCode::Conflict);
    assert_eq!(
        body.message,
        "pod `p1` cannot be attached; detach it first: it is attached by a request that differs in `hostname`"
    );
    house.assert_whole("p1");
}

#[tokio::test]
async fn a_malformed_request_reaches_no_actor() {
    let house = House::new();
    let mut bad = request("p1");
    bad.name = "a;K8S_POD_NAMESPACE=b".into();
    assert_eq!(house.pods.attach(bad).await.expect_err("refused").body().code, ErrorCode::BadRequest);
    assert!(house.world.state().log.is_empty());
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_failure_after_any_step_undoes_all_earlier_ones() {
    let whole = House::new();
    whole.pods.attach(request("p1")).await.expect("attached");
    let steps = whole.pods.shared.tools.faults.steps_seen();
    let mut messages = Vec::new();
    for step in 1..=steps {
        let house = House::with(Faults::after_step(step), Fake::default());
        messages.push(house.pods.attach(request("p1")).await.expect_err("injected").body().message);
        house.assert_nothing_left();
        house.pods.attach(request("p1")).await.expect("second try");
        house.assert_whole("p1");
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[tokio::test]
async fn a_failure_of_any_verb_undoes_all_earlier_ones() {
    let mut messages = Vec::new();
    for verb in ["default_network", "look", "create_netns", "add", "join"] {
        let house = House::new();
        house.world.fail(verb, &[]);
        messages.push(house.pods.attach(request("p1")).await.expect_err(verb).body().message);
        house.assert_nothing_left();
        house.pods.attach(request("p1")).await.expect("second try");
        house.assert_whole("p1");
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[tokio::test]
async fn what_cannot_be_undone_is_told_and_kept_for_a_detach() {
    let house = House::new();
    house.world.fail("join", &[]);
    house.world.fail("del", &[("first", false)]);
    let body = house.pods.attach(request("p1")).await.expect_err("fails").body();
    assert_eq!(
        body.message,
        "pod `p1` was not attached: failed to join tap and link: join fails as the test wants; \
         not undone: failed to run CNI DEL: del fails as the test wants; detach the pod to try again"
    );
    assert_eq!(house.phase("p1"), Some(PodPhase::Detaching));
    assert_eq!(house.records()[&id("p1")].phase, PodPhase::Detaching);
    assert_eq!(house.world.state().netns.len(), 1, "DEL needs the namespace");
    assert_eq!(house.pods.attach(request("p1")).await.expect_err("leftovers").body().code, ErrorCode::Conflict);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left();
}

#[tokio::test]
async fn del_of_a_plugin_that_was_never_added_holds_nothing_up() {
    // ADD fails at a plugin; DEL fails at the same, at a later one, at an earlier one.
    for (add, del, left) in [("first", "first", false), ("first", "second", false), ("second", "first", true)] {
        let house = House::new();
        house.world.fail("add", &[(add, false)]);
        house.world.fail("del", &[(del, false)]);
        let message = house.pods.attach(request("p1")).await.expect_err("fails").body().message;
        assert!(message.contains("not undone: failed to run CNI DEL"), "{message}");
        assert_eq!(message.contains("detach the pod"), left, "{message}");
        assert_eq!(house.phase("p1").is_some(), left, "{add} {del}");
        // The fake's DEL fails as a whole, so its set is not the point here.
        assert_eq!(house.world.state().netns.len(), usize::from(left), "{add} {del}");
        assert_eq!(house.records().len(), usize::from(left), "{add} {del}");
    }
}

#[tokio::test]
async fn a_detach_whose_del_fails_is_tried_again_by_the_next() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail("del", &[("first", false)]);
    let body = house.pods.detach(&id("p1")).await.expect_err("fails").body();
    assert_eq!(
        body.message,
        "pod `p1` was not wholly detached; detach it again: failed to run CNI DEL: del fails as the test wants"
    );
    assert_eq!(house.phase("p1"), Some(PodPhase::Detaching));
    assert_eq!(house.world.serving(), 0);
    assert!(house.pods.usable(&id("p1")).is_err());
    assert_eq!(house.world.state().netns.len(), 1);
    let house = house.restart().await;
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_plugin_that_stays_absent_is_given_up_on_across_restarts() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let absent = [("first", true), ("second", true)];
    house.world.fail("del", &absent);
    house.pods.detach(&id("p1")).await.expect_err("first try");
    // One that is there but fails begins the count anew.
    house.world.fail("del", &[("first", true), ("second", false)]);
    house.pods.detach(&id("p1")).await.expect_err("second try");
    assert_eq!(house.records()[&id("p1")].plugin_missing, 0);
    house.world.fail("del", &absent);
    house.pods.detach(&id("p1")).await.expect_err("third try");
    house.world.fail("del", &absent);
    let house = house.restart().await;
    assert_eq!(house.records()[&id("p1")].plugin_missing, 2);
    house.world.fail("del", &absent);
    house.pods.detach(&id("p1")).await.expect("given up");
    house.world.state().added.clear();
    house.assert_nothing_left();
}

#[tokio::test]
async fn del_runs_once_for_a_namespace_that_is_gone_whatever_it_says() {
    for other_file in [false, true] {
        let house = House::new();
        house.pods.attach(request("p1")).await.expect("attached");
        {
            let mut state = house.world.state();
            let netns = std::mem::take(&mut state.netns);
            if other_file {
                state.other_files = netns;
            }
            state.log.clear();
        }
        house.world.fail("del", &[("first", false)]);
        house.pods.detach(&id("p1")).await.expect("detached");
        let log = house.world.state().log.clone();
        let file_first = if other_file { &["remove_netns"][..] } else { &[] };
        assert_eq!(log, [&["look"], file_first, &["del", "remove_netns"]].concat());
        let mut state = house.world.state();
        state.added.clear();
        state.joined.clear();
        drop(state);
        house.assert_nothing_left();
    }
}

#[tokio::test]
async fn a_file_in_the_place_of_the_namespace_is_not_touched() {
    let house = House::new();
    let netns = PathBuf::from("/run/netns/virtlet-p1");
    house.world.state().netns.insert(netns.clone());
    let body = house.pods.attach(request("p1")).await.expect_err("taken").body();
    assert_eq!(body.code, ErrorCode::Conflict);
    assert!(house.world.state().netns.contains(&netns));
    house.world.state().netns.clear();
    house.assert_nothing_left();
}

#[tokio::test]
async fn work_goes_on_when_the_client_hangs_up() {
    let house = House::with(Faults::none(), Fake::gated());
    {
        let attach = house.pods.attach(request("p1"));
        assert!(tokio::time::timeout(Duration::from_millis(20), attach).await.is_err(), "nothing opens the gate");
    }
    house.world.open_gate();
    // Queued behind it.
    house.pods.attach(request("p1")).await.expect("the same");
    house.assert_whole("p1");
    assert_eq!(house.world.state().log.iter().filter(|verb| **verb == "add").count(), 1);
}

#[tokio::test]
async fn commands_of_one_pod_are_serialised_and_others_do_not_wait() {
    let house = House::with(Faults::none(), Fake::gated());
    let held = [house.pods.attach(request("p1")), house.pods.attach(request("p1"))];
    let other = async {
        house.world.open_gate();
        house.pods.detach(&id("p2")).await.expect("does not wait for p1");
    };
    let (held, ()) = tokio::join!(futures_util::future::join_all(held), other);
    let nets: Vec<_> = held.into_iter().map(|net| net.expect("attached")).collect();
    assert_eq!(nets[0], nets[1]);
    assert_eq!(house.world.state().log.iter().filter(|verb| **verb == "add").count(), 1);
}

#[tokio::test]
async fn a_client_gone_wild_is_told_to_wait() {
    let house = House::with(Faults::none(), Fake::gated());
    let held: Vec<_> = (0..MAX_WAITING + 3).map(|_| house.pods.attach(request("p1"))).collect();
    let mut held = Box::pin(futures_util::future::join_all(held));
    let opened = async { house.world.open_gate() };
    let (answers, ()) = tokio::join!(&mut held, opened);
    let refused = answers.iter().filter(|answer| matches!(answer, Err(PodError::Busy { .. }))).count();
    assert!((1..=3).contains(&refused), "{refused} were refused");
    assert!(answers.iter().all(|answer| !matches!(answer, Err(error) if !matches!(error, PodError::Busy { .. }))));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_command_is_lost_while_actors_come_and_go() {
    let house = Arc::new(House::new());
    let clients = (0..4).map(|_| {
        let house = Arc::clone(&house);
        tokio::spawn(async move {
            for _ in 0..20 {
                house.pods.attach(request("p1")).await.expect("attached");
                house.pods.detach(&id("p1")).await.expect("detached");
            }
        })
    });
    for client in futures_util::future::join_all(clients).await {
        client.expect("no panic");
    }
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_disk_that_takes_nothing_fails_an_attach_and_no_detach() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let dir = house.dir.path().join("pods");
    std::fs::remove_dir_all(&dir).expect("removed");
    house.pods.attach(request("p2")).await.expect_err("no journal");
    house.pods.detach(&id("p1")).await.expect("detached");
    std::fs::create_dir(&dir).expect("made");
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_restart_undoes_finishes_serves_and_reports() {
    let house = House::new();
    let all = |state: &mut fake::State, netns: &Path| {
        state.netns.insert(netns.into());
        state.added.insert(netns.into());
        state.joined.insert(netns.into());
    };
    house.put("a-cut-off", PodPhase::Attaching, all);
    house.put("b-cut-off-early", PodPhase::Attaching, |_, _| {});
    house.put("c-served", PodPhase::Attached, all);
    house.put("d-rebooted", PodPhase::Attached, |state, netns| {
        state.added.insert(netns.into());
    });
    house.put("e-unmounted", PodPhase::Attached, |state, netns| {
        state.other_files.insert(netns.into());
    });
    house.put("f-leaving", PodPhase::Detaching, all);
    let house = house.restart().await;
    let pods = house.pods.page(None).pods;
    let pods: Vec<_> = pods.iter().map(|pod| (pod.pod.as_str(), pod.phase)).collect();
    let attached = PodPhase::Attached;
    assert_eq!(pods, [("c-served", attached), ("d-rebooted", attached), ("e-unmounted", attached)]);
    assert_eq!(house.world.serving(), 1);
    house.assert_whole("c-served");
    house.pods.usable(&id("c-served")).expect("usable");
    for lost in ["d-rebooted", "e-unmounted"] {
        assert_eq!(house.pods.usable(&id(lost)).expect_err("lost").body().code, ErrorCode::Conflict);
        let body = house.pods.attach(request(lost)).await.expect_err("lost").body();
        assert_eq!(body.code, ErrorCode::Conflict, "{}", body.message);
        house.pods.detach(&id(lost)).await.expect("detached");
    }
    house.pods.detach(&id("c-served")).await.expect("detached");
    house.assert_nothing_left();
}

#[tokio::test]
async fn a_pod_that_cannot_be_served_again_waits_for_its_detach() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail("rejoin", &[]);
    let house = house.restart().await;
    assert_eq!(house.phase("p1"), Some(PodPhase::Attached));
    assert_eq!(house.world.serving(), 0);
    let body = house.pods.usable(&id("p1")).expect_err("no use").body();
    assert_eq!(body.message, "network of pod `p1` is of no use: rejoin fails as the test wants");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left();
}

#[tokio::test]
async fn pages_cover_all_pods_once() {
    let house = House::new();
    for n in 0..300 {
        house.put(&format!("p{n:03}"), PodPhase::Attached, |_, _| {});
    }
    house.pods.recover(house.records()).await;
    let first = house.pods.page(None);
    assert_eq!((first.pods.len(), first.more), (256, true));
    assert_eq!(first.pods[0].ip, Some([10, 77, 0, 2].into()));
    let second = house.pods.page(Some(&first.pods[255].pod));
    assert_eq!((second.pods.len(), second.more), (44, false));
    assert_eq!(second.pods[0].pod, id("p256"));
    let none = house.pods.page(Some(&id("z")));
    assert_eq!((none.pods.len(), none.more), (0, false));
    assert_eq!(house.pods.count(), 300);
}

#[test]
fn the_longest_page_fits_into_a_packet() {
    let summary = PodSummary {
        pod: id(&"p".repeat(PodId::MAX_LEN)),
        namespace: "n".repeat(request::MAX_NAME),
        name: "n".repeat(request::MAX_NAME),
        phase: PodPhase::Attaching,
        ip: Some([0xffff; 8].into()),
        trouble: Some("t".repeat(proto::tap::MAX_TROUBLE)),
    };
    let page = PodPage { pods: vec![summary; usize::from(MAX_PAGE)], more: true };
    proto::tap::encode_reply(Ok(&proto::tap::Reply::Pods(page)), 0).expect("fits");
}

#[tokio::test]
async fn going_down_leaves_pods_as_they_are() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.pods.close(GRACE).await;
    assert_eq!(house.world.serving(), 0);
    assert_eq!(house.world.state().netns.len(), 1);
    assert_eq!(house.records().len(), 1);
    let refused = house.pods.attach(request("p2")).await.expect_err("closing");
    assert_eq!(refused.body().code, ErrorCode::Unavailable);
}
