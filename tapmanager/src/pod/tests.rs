//! The actor on a fake world and a real journal.

pub(crate) mod fake;
mod health;
mod leaving;
mod passthrough;
mod recovery;
mod sequences;
mod several;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proto::tap::{ErrorCode, IfName, NicStats};
use tempfile::TempDir;

use super::*;
use crate::instance::InstanceId;
use crate::journal::{Attachment, Record, Records};
use crate::net::Choices;
use fake::{Fake, network, nic};

const GRACE: Duration = Duration::from_secs(10);
const CHOICES: Choices = Choices { data_path: DataPath::Tc, queues: 1, anti_spoof: true };

pub(crate) fn settings() -> Settings {
    Settings {
        data_path: DataPath::Tc,
        anti_spoof: true,
        max_queues: 8,
        retry: RetryPolicy { first_pause: Duration::from_secs(2), give_up: Duration::from_secs(300) },
        cni_gc: false,
    }
}

struct House {
    dir: TempDir,
    world: Arc<Fake>,
    pods: Pods<Arc<Fake>>,
    boots: u32,
}

impl House {
    fn new() -> Self {
        Self::with(Faults::none(), Fake::default())
    }

    fn with(faults: Faults, world: Fake) -> Self {
        Self::in_dir(tempfile::tempdir().expect("tempdir"), Arc::new(world), faults, settings(), 0)
    }

    fn set(settings: Settings) -> Self {
        Self::in_dir(tempfile::tempdir().expect("tempdir"), Arc::default(), Faults::none(), settings, 0)
    }

    fn in_dir(dir: TempDir, world: Arc<Fake>, faults: Faults, settings: Settings, boots: u32) -> Self {
        let journal = Journal::open(dir.path()).expect("journal");
        let place = (names(), format!("boot {boots}"));
        let operations = Operations::new(Arc::clone(&world), journal, place, settings, Arc::new(faults));
        Self { dir, world, pods: Pods::new(operations), boots }
    }

    /// The daemon dies and comes back, and all its pods are recovered.
    async fn restart(self) -> Self {
        let house = self.come_back().await;
        house.pods.recovered().await;
        house
    }

    /// The daemon dies and comes back, and no pod is recovered yet.
    async fn come_back(self) -> Self {
        self.pods.close(GRACE).await;
        let settings = self.pods.shared.operations.settings.clone();
        let house = Self::in_dir(self.dir, self.world, Faults::none(), settings, self.boots);
        let loaded = house.pods.shared.operations.journal.load().expect("loads");
        house.pods.take_over(loaded);
        house
    }

    /// The node dies and comes back.
    async fn reboot(mut self) -> Self {
        self.world.reboot();
        self.boots += 1;
        self.restart().await
    }

    fn records(&self) -> Records {
        let loaded = self.pods.shared.operations.journal.load().expect("loads");
        assert!(loaded.unreadable.is_empty(), "{:?}", loaded.unreadable);
        loaded.records
    }

    fn put(&self, pod: &str, phase: PodPhase, at: impl FnOnce(&mut fake::State, &Path)) {
        let netns = netns_of(pod);
        let ifname: IfName = "eth0".parse().expect("name");
        let result = (phase != PodPhase::Attaching).then(|| serde_json::json!({ "link": ifname }));
        let attachment =
            Attachment { network: network("net"), ifname, ask: proto::tap::NetworkAsk::default(), begun: None, result };
        let boot = format!("boot {}", self.boots);
        let mut record = Record::intent(request(pod), boot, netns.clone(), CHOICES, vec![attachment]);
        record.phase = phase;
        record.net = Some(PodNet { netns: netns.clone(), nics: vec![nic(0, "eth0")], dns: proto::tap::Dns::default() });
        self.pods.shared.operations.journal.create(&record).expect("written");
        at(&mut self.world.state(), &netns);
    }

    fn phase(&self, pod: &str) -> Option<PodPhase> {
        self.pods.view(&id(pod)).map(|view| view.phase)
    }

    fn trouble(&self, pod: &str) -> Option<String> {
        self.pods.view(&id(pod)).and_then(|view| view.trouble).map(|trouble| trouble.to_string())
    }

    fn calls(&self, verb: &str) -> usize {
        self.world.state().log.iter().filter(|line| line.split(' ').next() == Some(verb)).count()
    }

    /// What was called since the last time.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.world.state().log)
    }

    /// Waits until the actors have done what is behind their answers.
    async fn settle(&self) {
        let pods: Vec<PodId> = self.pods.shared.lock().iter().flat_map(BTreeMap::keys).cloned().collect();
        for pod in pods {
            // Does nothing for a pod that is gone, but after all that came before.
            let (done, wait) = oneshot::channel();
            self.pods.shared.tell(&pod, Command::LookAfter(done)).await.expect("told");
            wait.await.expect("no panic");
        }
    }

    async fn assert_nothing_left(&self) {
        self.settle().await;
        let state = self.world.state();
        assert_eq!([&state.netns, &state.other_files, &state.joined], [&BTreeSet::new(); 3]);
        assert_eq!(state.added, BTreeSet::new());
        drop(state);
        assert_eq!(self.world.serving(), 0, "guests are served");
        assert_eq!(self.pods.count(), 0, "on record in memory");
        let files = std::fs::read_dir(self.dir.path().join("pods")).expect("dir").count();
        assert_eq!(files, 0, "on record on disk");
    }

    #[track_caller]
    fn assert_whole(&self, pod: &str) {
        let netns = netns_of(pod);
        let record = self.records().remove(&id(pod)).expect("on record");
        let state = self.world.state();
        assert!([&state.netns, &state.joined].iter().all(|set| set.contains(&netns)));
        for attachment in &record.attachments {
            assert!(state.added.contains(&(pod.to_owned(), attachment.ifname.as_str().to_owned())));
            assert!(attachment.result.is_some());
        }
        drop(state);
        assert_eq!(self.phase(pod), Some(PodPhase::Attached));
        assert_eq!(record.phase, PodPhase::Attached);
    }
}

pub(crate) fn names() -> NetnsNames {
    NetnsNames::new("/run/netns".into(), &InstanceId::try_from("0123abcd".to_owned()).expect("an instance"))
}

fn netns_of(pod: &str) -> PathBuf {
    names().path(&id(pod))
}

fn after(pod: PodId) -> List {
    List { after: Some(pod), ..List::default() }
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
    assert_eq!(net.netns, netns_of("p1"));
    house.assert_whole("p1");
    assert_eq!(house.world.serving(), 1);
    assert_eq!(house.pods.attach(request("p1")).await.expect("again"), net);
    assert_eq!(house.log(), ["networks", "look", "create_netns", "add eth0", "join"]);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
    assert_eq!(house.log(), ["look", "del eth0", "remove_netns"]);
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
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_failure_after_any_step_undoes_all_earlier_ones() {
    let whole = House::new();
    whole.pods.attach(request("p1")).await.expect("attached");
    let steps = whole.pods.shared.operations.faults.steps_seen();
    let mut messages = Vec::new();
    for step in 1..=steps {
        let house = House::with(Faults::after_step(step), Fake::default());
        messages.push(house.pods.attach(request("p1")).await.expect_err("injected").body().message);
        house.assert_nothing_left().await;
        house.pods.attach(request("p1")).await.expect("second try");
        house.assert_whole("p1");
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[tokio::test]
async fn a_failure_of_any_verb_undoes_all_earlier_ones() {
    let mut messages = Vec::new();
    for verb in ["networks", "look", "create_netns", "add", "join"] {
        let house = House::new();
        house.world.fail(verb, &[]);
        messages.push(house.pods.attach(request("p1")).await.expect_err(verb).body().message);
        house.assert_nothing_left().await;
        house.pods.attach(request("p1")).await.expect("second try");
        house.assert_whole("p1");
    }
    insta::assert_snapshot!(messages.join("\n"));
}

#[tokio::test]
async fn what_cannot_be_undone_is_told_and_kept_for_a_detach() {
    let house = House::new();
    house.world.fail("join", &[]);
    house.world.fail("del", &[(0, false)]);
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
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn only_del_of_a_plugin_that_was_never_added_holds_nothing_up() {
    // ADD fails at a plugin, which may be absent; DEL fails at the same, at a later one, at an earlier one.
    for (add, del, left) in [
        ((0, false), (0, false), true),
        ((0, false), (1, false), false),
        ((1, false), (0, false), true),
        ((1, false), (1, false), true),
        ((0, true), (0, true), false),
        ((1, true), (1, true), false),
        ((1, true), (0, false), true),
    ] {
        let house = House::new();
        house.world.fail("add", &[add]);
        house.world.fail_from("del", &[del], 0, 2);
        let message = house.pods.attach(request("p1")).await.expect_err("fails").body().message;
        assert!(message.contains("not undone: failed to run CNI DEL"), "{message}");
        assert_eq!(message.contains("detach the pod"), left, "{message}");
        assert_eq!(house.phase("p1").is_some(), left, "{add:?} {del:?}");
        assert_eq!(house.world.state().netns.len(), usize::from(left), "{add:?} {del:?}");
        assert_eq!(house.records().len(), usize::from(left), "{add:?} {del:?}");
        if left {
            house.pods.detach(&id("p1")).await.expect_err("it fails once more");
            assert_eq!(house.records().len(), 1, "no pod is forgotten while a DEL fails");
            house.pods.detach(&id("p1")).await.expect("detached");
            house.assert_nothing_left().await;
        }
    }
}

#[tokio::test]
async fn what_was_never_added_is_known_after_a_restart() {
    let house = House::new();
    house.world.fail("add", &[(0, false)]);
    // The plugin that failed, and then one that was never added.
    house.world.fail("del", &[(0, false), (1, false)]);
    house.pods.attach(request("p1")).await.expect_err("fails");
    assert_eq!(house.records()[&id("p1")].attachments[0].begun, Some(1));
    house.world.fail("del", &[(1, false)]);
    let house = house.restart().await;
    assert_eq!(house.pods.count(), 0);
    assert!(house.records().is_empty());
}

#[tokio::test]
async fn a_file_in_the_place_of_the_namespace_is_not_touched() {
    let house = House::new();
    let netns = netns_of("p1");
    house.world.state().netns.insert(netns.clone());
    let body = house.pods.attach(request("p1")).await.expect_err("taken").body();
    assert_eq!(body.code, ErrorCode::Conflict);
    assert!(house.world.state().netns.contains(&netns));
    house.world.state().netns.clear();
    house.assert_nothing_left().await;
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
    assert_eq!(house.calls("add"), 1);
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
    assert_eq!(house.calls("add"), 1);
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
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_disk_that_takes_nothing_fails_an_attach_and_no_detach() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let dir = house.dir.path().join("pods");
    std::fs::remove_dir_all(&dir).expect("removed");
    house.pods.attach(request("p2")).await.expect_err("no journal");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.settle().await;
    std::fs::create_dir(&dir).expect("made");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_restart_undoes_finishes_serves_and_reports() {
    let house = House::new();
    let added = |state: &mut fake::State, netns: &Path| {
        let Some(names::NetnsOwner::ThisDaemon(pod)) = names().owner(netns) else { panic!("not ours") };
        state.added.insert((pod.as_str().to_owned(), "eth0".to_owned()));
    };
    let all = |state: &mut fake::State, netns: &Path| {
        state.netns.insert(netns.into());
        added(state, netns);
        state.joined.insert(netns.into());
    };
    house.put("a-cut-off", PodPhase::Attaching, all);
    house.put("b-cut-off-early", PodPhase::Attaching, |_, _| {});
    house.put("c-served", PodPhase::Attached, all);
    house.put("d-removed", PodPhase::Attached, added);
    house.put("e-unmounted", PodPhase::Attached, |state, netns| {
        state.other_files.insert(netns.into());
    });
    house.put("f-leaving", PodPhase::Detaching, all);
    let house = house.restart().await;
    let pods = house.pods.page(&List::default()).pods;
    let pods: Vec<_> = pods.iter().map(|pod| (pod.pod.as_str(), pod.phase)).collect();
    let attached = PodPhase::Attached;
    assert_eq!(pods, [("c-served", attached), ("d-removed", attached), ("e-unmounted", attached)]);
    assert_eq!(house.world.serving(), 1);
    house.assert_whole("c-served");
    house.pods.usable(&id("c-served")).expect("usable");
    for lost in ["d-removed", "e-unmounted"] {
        assert_eq!(house.pods.usable(&id(lost)).expect_err("lost").body().code, ErrorCode::Conflict);
        let body = house.pods.attach(request(lost)).await.expect_err("lost").body();
        assert_eq!(body.code, ErrorCode::Conflict, "{}", body.message);
        house.pods.detach(&id(lost)).await.expect("detached");
    }
    house.pods.detach(&id("c-served")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_reboot_leaves_nothing_of_any_pod() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.put("p2", PodPhase::Attaching, |_, _| {});
    house.put("p3", PodPhase::Detaching, |_, _| {});
    house.log();
    let house = house.reboot().await;
    assert!(!house.log().contains(&"unjoin".to_owned()), "there is no namespace");
    assert_eq!(house.world.state().told.iter().filter(|(_, result)| *result).count(), 2);
    house.assert_nothing_left().await;
    house.pods.attach(request("p1")).await.expect("attached anew");
    house.assert_whole("p1");
}

#[tokio::test]
async fn a_namespace_of_another_boot_is_taken_away_as_well() {
    // Somebody made it again, or mounts outlive what the kernel calls a boot: no machine is in it.
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let netns = house.world.state().netns.clone();
    house.world.reboot();
    house.world.state().netns = netns;
    let house = House { boots: 1, ..house }.restart().await;
    house.assert_nothing_left().await;
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
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn pages_cover_all_pods_once() {
    let house = House::new();
    for n in 0..300 {
        house.put(&format!("p{n:03}"), PodPhase::Attached, |_, _| {});
    }
    house.pods.take_over(house.pods.shared.operations.journal.load().expect("loads"));
    house.pods.recovered().await;
    let first = house.pods.page(&List::default());
    assert_eq!((first.pods.len(), first.more), (192, true));
    assert_eq!(first.pods[0].ip, Some([10, 77, 0, 2].into()));
    let second = house.pods.page(&after(first.pods[191].pod.clone()));
    assert_eq!((second.pods.len(), second.more), (108, false));
    assert_eq!(second.pods[0].pod, id("p192"));
    let none = house.pods.page(&after(id("z")));
    assert_eq!((none.pods.len(), none.more), (0, false));
    assert_eq!(house.pods.count(), 300);
}

#[test]
fn the_longest_page_fits_into_a_packet() {
    let summary = PodSummary {
        pod: id(&"p".repeat(PodId::MAX_LEN)),
        namespace: "n".repeat(request::MAX_NAME),
        name: "n".repeat(request::MAX_NAME),
        owner: Some("o".repeat(PodId::MAX_LEN).parse().expect("owner")),
        phase: PodPhase::Attaching,
        recovering: true,
        ip: Some([0xffff; 8].into()),
        trouble: Some("t".repeat(proto::tap::MAX_TROUBLE)),
    };
    let page = PodPage { pods: vec![summary; usize::from(MAX_PAGE)], more: true };
    proto::tap::encode_reply(Ok(&proto::tap::Reply::Pods(page)), 0).expect("fits");
    let name = "n".repeat(15);
    let nic = |_| NicStats {
        name: name.parse().expect("name"),
        rx_bytes: u64::MAX,
        rx_packets: u64::MAX,
        rx_errors: u64::MAX,
        rx_dropped: u64::MAX,
        tx_bytes: u64::MAX,
        tx_packets: u64::MAX,
        tx_errors: u64::MAX,
        tx_dropped: u64::MAX,
    };
    let stats = PodStats { pod: id(&"p".repeat(PodId::MAX_LEN)), nics: (0..request::MAX_NETWORKS).map(nic).collect() };
    let page = StatsPage { pods: vec![stats; usize::from(MAX_STATS_PAGE)], more: true };
    proto::tap::encode_reply(Ok(&proto::tap::Reply::Stats(page)), 0).expect("fits");
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
