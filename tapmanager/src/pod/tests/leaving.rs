//! Pods that cannot be taken away, and what belongs to no pod.

use crate::cni::{Leftover, Writer};
use Occasion::{Asked, Routine};

use proto::tap::{NicKind, Tap};

use super::*;

const BUSY: &[(usize, bool)] = &[(0, false)];
const ABSENT: &[(usize, bool)] = &[(0, true), (1, true)];

/// A house whose actors do not pause between two tries.
fn eager() -> House {
    House::set(Settings { retry: RetryPolicy { first_pause: Duration::ZERO, ..settings().retry }, ..settings() })
}

/// Lets the actors do what is due, until no pod is on record.
async fn emptied(house: &House) {
    let emptied = async {
        while house.pods.count() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GRACE, emptied).await.expect("emptied");
}

#[tokio::test]
async fn a_detach_whose_del_fails_is_tried_again_by_the_next() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail("del", BUSY);
    let body = house.pods.detach(&id("p1")).await.expect_err("fails").body();
    assert_eq!(
        body.message,
        "pod `p1` is not wholly detached yet; that is tried again: failed to run CNI DEL: del fails as the test wants"
    );
    assert_eq!(house.phase("p1"), Some(PodPhase::Detaching));
    assert_eq!(
        house.trouble("p1").expect("trouble"),
        "not wholly taken away after 1 tries, which go on: failed to run CNI DEL: del fails as the test wants"
    );
    recovery::until("no guest is served", || house.world.serving() == 0).await;
    assert!(house.pods.usable(&id("p1")).is_err());
    assert_eq!(house.world.state().netns.len(), 1, "DEL needs the namespace");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_detach_that_failed_is_tried_again_without_being_asked() {
    let house = eager();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail_from("del", BUSY, 0, 3);
    house.pods.detach(&id("p1")).await.expect_err("fails");
    emptied(&house).await;
    assert_eq!(house.calls("del"), 4);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn an_overdue_pod_holds_no_deletion_up_and_is_collected_later() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail_from("del", BUSY, 0, 4);
    house.pods.detach(&id("p1")).await.expect_err("first try");
    house.world.state().now = 299;
    house.pods.detach(&id("p1")).await.expect_err("not yet");
    // The count goes on across a restart, which tries as well.
    let house = house.restart().await;
    assert_eq!(house.records()[&id("p1")].failing.as_ref().map(|failing| (failing.since, failing.tries)), Some((0, 3)));
    house.world.state().now = 300;
    house.pods.detach(&id("p1")).await.expect("answered as if all was well");
    assert_eq!(house.phase("p1"), Some(PodPhase::Detaching));
    assert_eq!(
        house.trouble("p1").expect("trouble"),
        "overdue, not wholly taken away after 4 tries; collect tries again: failed to run CNI DEL: \
         del fails as the test wants"
    );
    assert_eq!(house.world.state().netns.len(), 1, "an address is not silently lost");
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.removed, ["what was left of pod `p1`"]);
    assert_eq!(report.kept, [""; 0]);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_link_whose_name_is_taken_holds_no_detach_up() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.log();
    house.world.fail("del", BUSY);
    house.world.state().name_taken = true;
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
    let log = house.log();
    let dels: Vec<_> = log.iter().filter(|verb| verb.starts_with("del") || *verb == "make_way").collect();
    assert_eq!(dels, ["del eth0", "make_way", "del eth0"], "{log:?}");
}

#[tokio::test]
async fn a_collection_reports_what_still_fails() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail_from("del", BUSY, 0, 3);
    house.pods.detach(&id("p1")).await.expect_err("first try");
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.kept, ["pod `p1`: failed to run CNI DEL: del fails as the test wants"]);
    house.world.state().now = 300;
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.kept.len(), 1, "{report:?}");
    assert_eq!(house.world.state().netns.len(), 1, "overdue, but not hopeless");
    assert_eq!(house.pods.collect(Asked).await.removed.len(), 1);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn what_is_hopeless_is_dropped_once_it_is_overdue() {
    for (culprits, gone) in [(ABSENT, false), (BUSY, true)] {
        let house = House::new();
        house.pods.attach(request("p1")).await.expect("attached");
        if gone {
            house.world.state().netns.clear();
        }
        house.world.fail_from("del", culprits, 0, 3);
        house.pods.detach(&id("p1")).await.expect_err("first try");
        assert_eq!(house.pods.collect(Asked).await.kept.len(), 1, "not overdue yet");
        house.world.state().now = 300;
        let report = house.pods.collect(Asked).await;
        assert_eq!(
            report.removed,
            ["pod `p1`, although its networks may keep something of it on the node: failed to run CNI DEL: \
              del fails as the test wants"]
        );
        let links: &[&str] = if gone { &[] } else { &["eth0"] };
        assert_eq!(house.world.state().sent_back, links, "the node's links do not end with the namespace");
        house.world.state().added.clear();
        house.world.state().joined.clear();
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn del_is_told_when_the_namespace_is_gone() {
    for other_file in [false, true] {
        let house = House::new();
        house.pods.attach(request("p1")).await.expect("attached");
        {
            let mut state = house.world.state();
            let netns = std::mem::take(&mut state.netns);
            if other_file {
                state.other_files = netns;
            }
            state.joined.clear();
        }
        house.log();
        house.pods.detach(&id("p1")).await.expect("detached");
        house.settle().await;
        let file_first = if other_file { &["remove_netns"][..] } else { &[] };
        assert_eq!(house.log(), [&["look"], file_first, &["del eth0", "remove_netns"]].concat());
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn only_namespaces_of_our_name_that_belong_to_no_pod_are_collected() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.put("not-taken-up", PodPhase::Attached, |state, netns| {
        state.netns.insert(netns.into());
    });
    let foreign = ["/run/netns/cni-1234", "/run/netns/virtlet-", "/run/netns/virtlet-..", "/run/netns/other"];
    // Of another daemon on the node, and of a release that did not name the daemon.
    let unknown = ["/run/netns/virtlet-89abcdef-p7", "/run/netns/virtlet-p1"];
    house.world.state().netns.extend(unknown.iter().map(PathBuf::from));
    house.world.state().netns.extend(foreign.iter().map(PathBuf::from));
    house.world.state().netns.insert(netns_of("stray"));
    // Records were lost: who knows what runs in it.
    let report = house.pods.collect(Routine).await;
    assert_eq!(report.removed, [""; 0]);
    assert_eq!(report.kept.len(), 4, "{report:?}");
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.removed, ["namespace `/run/netns/virtlet-0123abcd-stray`, which belongs to no pod"]);
    assert_eq!(
        report.kept,
        [
            "namespace `/run/netns/virtlet-89abcdef-p7`: its owner is unknown",
            "namespace `/run/netns/virtlet-p1`: its owner is unknown",
            "namespace `/run/netns/virtlet-0123abcd-not-taken-up`: the journal has a file of its pod that is not \
             understood",
        ]
    );
    let left: Vec<_> = house.world.state().netns.iter().cloned().collect();
    assert_eq!(left.len(), foreign.len() + unknown.len() + 2, "{left:?}");
    house.assert_whole("p1");
    assert_eq!(house.pods.count(), 1, "a stray leaves no actor");
}

#[tokio::test]
async fn plugins_are_told_of_every_pod_on_record_and_only_where_the_node_wants_it() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.log();
    house.pods.collect(Asked).await;
    assert_eq!(house.log(), ["leftovers", "namespaces"], "what is ours alone");
    let house = House::set(Settings { cni_gc: true, ..settings() });
    house.pods.attach(request("p1")).await.expect("attached");
    let mut two = request("p2");
    two.networks = ["blue", "net"].map(several::ask).to_vec();
    house.pods.attach(two).await.expect("attached");
    house.world.fail("gc", &[]);
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.kept, ["gc fails as the test wants"]);
    let told = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(house.world.state().collected, [("net".to_owned(), told(&["p1/eth0", "p2/net1"]))]);
    house.world.state().collected.clear();
    house.pods.collect(Asked).await;
    let expected = [("blue".to_owned(), told(&["p2/eth0"])), ("net".to_owned(), told(&["p1/eth0", "p2/net1"]))];
    assert_eq!(house.world.state().collected, expected);
    // What is not understood may be anybody's attachment.
    std::fs::write(house.dir.path().join("pods/p3.json"), "{}").expect("written");
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.kept, ["networks were not collected, because files of the journal are not understood"]);
}

#[tokio::test]
async fn no_plugin_is_told_while_multus_has_attachments_that_are_on_no_record() {
    let house = House::set(Settings { cni_gc: true, ..settings() });
    let mut one = request("p1");
    one.networks = ["net", "multus"].map(several::ask).to_vec();
    house.pods.attach(one).await.expect("attached");
    let report = house.pods.collect(Asked).await;
    assert_eq!(report.kept, ["networks were not collected, because pods have networks through Multus"]);
    assert_eq!(house.calls("gc"), 0);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.settle().await;
    assert!(house.pods.collect(Asked).await.kept.is_empty());
    assert_eq!(house.calls("gc"), 1);
}

#[tokio::test]
async fn no_plugin_is_told_while_a_pod_is_being_added() {
    let settings = Settings { cni_gc: true, ..settings() };
    let dir = tempfile::tempdir().expect("tempdir");
    let house = House::in_dir(dir, Arc::new(Fake::gated()), Faults::none(), settings, 0);
    let attach = house.pods.attach(request("p1"));
    let collected = async {
        recovery::until("an ADD runs", || house.pods.shared.operations.gc_lock.collect().is_none()).await;
        let report = house.pods.collect(Asked).await;
        house.world.open_gate();
        report
    };
    let (attached, report) = tokio::join!(attach, collected);
    attached.expect("attached");
    assert_eq!(report.kept, ["networks were not collected, because pods are being attached"]);
}

#[tokio::test]
async fn an_add_that_waits_ends_the_collection_of_networks() {
    let house = House::set(Settings { cni_gc: true, ..settings() });
    let mut one = request("p1");
    one.networks = ["blue", "net", "red"].map(several::ask).to_vec();
    house.pods.attach(one).await.expect("attached");
    house.world.state().hanging.insert("gc blue".to_owned());
    let attached = async {
        recovery::until("plugins collect", || house.calls("hangs") == 1).await;
        let waits = async {
            recovery::until("an ADD waits", || house.pods.shared.operations.gc_lock.is_add_waiting()).await;
            house.world.free(|_| true);
        };
        tokio::join!(house.pods.attach(request("p2")), waits).0
    };
    let (report, attached) = tokio::join!(house.pods.collect(Asked), attached);
    attached.expect("attached");
    assert_eq!(report.kept, ["networks from `net` on were not collected, because a pod is to be attached"]);
    assert_eq!(house.calls("gc"), 1);
}

fn leftover(pod: &str, writer: Writer) -> Leftover {
    let ifname = "eth0".parse().expect("name");
    Leftover { network: "net".to_owned(), pod: id(pod), ifname, netns: netns_of(pod), writer }
}

#[tokio::test]
async fn what_the_result_cache_tells_of_is_given_back_if_no_record_does() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.state().leftovers = vec![
        leftover("p1", Writer::Here),
        leftover("dropped", Writer::Here),
        Leftover { netns: netns_of("p1"), ..leftover("theirs", Writer::Other) },
        leftover("old", Writer::Unknown),
    ];
    let report = house.pods.collect(Routine).await;
    assert_eq!(report.removed, ["attachment `eth0` of pod `dropped` to network `net`"]);
    assert_eq!(report.kept, ["attachment `eth0` of pod `old` to network `net`: its owner is unknown"]);
    assert_eq!(house.calls("del_leftover"), 1);
    house.assert_whole("p1");
}

#[tokio::test]
async fn what_a_lost_state_directory_leaves_is_told_and_can_be_forgotten() {
    let house = House::new();
    let lost = leftover("lost", Writer::Other);
    house.world.state().leftovers = vec![lost.clone()];
    house.world.state().netns.insert(lost.netns.clone());
    let told = |report: proto::tap::CollectReport| {
        report.kept.into_iter().filter(|line| line.starts_with("attachment")).count()
    };
    assert_eq!(told(house.pods.collect(Routine).await), 0, "its daemon may live");
    house.world.state().netns.clear();
    for _ in 0..2 {
        let report = house.pods.collect(Asked).await;
        assert!(report.kept[0].ends_with("if no other runs on this node, forget the pod"), "{report:?}");
        assert_eq!(told(report), 1);
    }
    let report = house.pods.forget(&id("lost")).await.expect("forgotten");
    assert_eq!(report.removed, ["attachment `eth0` of pod `lost` to network `net`"]);
}

#[tokio::test]
async fn a_plugin_that_hangs_in_a_collection_keeps_no_pod_from_being_added() {
    let house = House::set(Settings { cni_gc: true, ..settings() });
    for n in 0..3 {
        let pod = format!("stray{n}");
        house.world.state().leftovers.push(leftover(&pod, Writer::Here));
        house.world.state().hanging.insert(format!("del {pod}"));
    }
    let attached = async {
        recovery::until("all of them hang", || house.calls("hangs") == 3).await;
        house.pods.attach(request("p1")).await.expect("attached");
        house.pods.detach(&id("p1")).await.expect("detached");
        house.world.free(|_| true);
    };
    let (report, ()) = tokio::join!(house.pods.collect(Routine), attached);
    assert_eq!(report.removed.len(), 3, "{report:?}");
}

#[tokio::test]
async fn a_namespace_without_a_record_stays_while_its_networks_are_not_given_back() {
    let house = House::new();
    house.world.state().leftovers.push(leftover("stray", Writer::Here));
    house.world.state().netns.insert(netns_of("stray"));
    house.world.fail("del_leftover", BUSY);
    let report = house.pods.collect(Asked).await;
    assert_eq!(
        report.kept,
        ["attachment `eth0` of pod `stray` to network `net`: del_leftover fails as the test wants"]
    );
    assert_eq!(house.world.state().netns.len(), 1, "DEL needs it");
    assert_eq!(house.pods.collect(Asked).await.removed.len(), 2);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn what_nothing_else_can_take_away_is_forgotten_on_a_persons_word() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    assert_eq!(house.pods.forget(&id("p1")).await.expect_err("detach it").body().code, ErrorCode::Conflict);
    house.world.fail_from("del", BUSY, 0, 2);
    house.pods.detach(&id("p1")).await.expect_err("fails");
    let report = house.pods.forget(&id("p1")).await.expect("forgotten");
    assert!(report.removed[0].contains("although its networks may keep something of it"), "{report:?}");
    assert_eq!(house.pods.count(), 0);
    {
        let mut state = house.world.state();
        state.added.clear();
        state.joined.clear();
        // Of another daemon: by the name of its file alone.
        state.netns = ["/run/netns/virtlet-89abcdef-p7".into(), netns_of("p2")].into();
        state.leftovers =
            vec![Leftover { netns: "/run/netns/virtlet-89abcdef-p7".into(), ..leftover("p7", Writer::Other) }];
    }
    for name in ["virtlet-0123abcd-p2", "other"] {
        let body = house
            .pods
            .forget_namespace(&name.parse().expect("name"))
            .await
            .expect_err("not of an unknown owner")
            .body();
        assert_eq!(body.code, ErrorCode::Conflict, "{}", body.message);
    }
    let report = house.pods.forget_namespace(&"virtlet-89abcdef-p7".parse().expect("name")).await.expect("forgotten");
    assert_eq!(
        report.removed,
        ["attachment `eth0` of pod `p7` to network `net`", "namespace `/run/netns/virtlet-89abcdef-p7`"]
    );
    house.pods.forget(&id("p2")).await.expect("of a pod without a record");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_detach_is_answered_when_the_networks_have_the_pod_back() {
    let house = House::with(Faults::none(), Fake::gated_at("remove_netns"));
    house.pods.attach(request("p1")).await.expect("attached");
    house.pods.detach(&id("p1")).await.expect("detached, and its namespace is there");
    assert_eq!(house.world.state().netns.len(), 1);
    assert_eq!(house.world.state().added, BTreeSet::new());
    assert_eq!(house.pods.count(), 0, "it is nobody's any more");
    let record = &house.records()[&id("p1")];
    assert_eq!((record.phase, record.attachments.len()), (PodPhase::Detaching, 0), "no DEL is to be run again");
    // What is asked next waits for the rest.
    let again = house.pods.attach(request("p1"));
    let (again, ()) = tokio::join!(again, async { house.world.open_gate() });
    again.expect("attached anew");
    house.assert_whole("p1");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.world.open_gate();
    house.pods.close(GRACE).await;
    assert_eq!(house.world.state().netns, BTreeSet::new(), "going down waits for it");
}

#[tokio::test]
async fn what_is_behind_the_answer_is_repeated_and_no_del_is() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail("remove_netns", &[]);
    house.pods.detach(&id("p1")).await.expect("the networks have it back");
    house.settle().await;
    assert_eq!(
        house.trouble("p1").expect("shown again"),
        "not wholly taken away after 1 tries, which go on: failed to remove the namespace: \
         remove_netns fails as the test wants"
    );
    house.log();
    let house = house.restart().await;
    assert_eq!(house.log(), ["look", "look", "remove_netns"]);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn only_what_would_outlive_del_is_taken_off_before() {
    for (data_path, outlives) in
        [(DataPath::Tc, false), (DataPath::Ebpf, false), (DataPath::Bridge, true), (DataPath::Macvtap, true)]
    {
        let house = House::new();
        house.put("p1", PodPhase::Attached, |state, netns| {
            state.netns.insert(netns.into());
        });
        let mut record = house.records().remove(&id("p1")).expect("on record");
        record.net.as_mut().expect("attached").nics[0].kind = NicKind::Tap(Tap { data_path, queues: 1 });
        house.pods.shared.operations.journal.note(&record).expect("written");
        let house = house.restart().await;
        house.pods.detach(&id("p1")).await.expect("detached");
        assert_eq!(house.calls("unjoin"), usize::from(outlives), "{data_path:?}");
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_full_disk_holds_no_detach_up() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    // Stands for a full disk: the note cannot be opened.
    let note = house.dir.path().join("pods/p1.note");
    std::fs::remove_file(&note).expect("removed");
    std::os::unix::fs::symlink("nowhere", &note).expect("link");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn an_attach_whose_undo_failed_is_undone_without_being_asked() {
    let house = eager();
    house.world.fail("join", &[]);
    house.world.fail("del", BUSY);
    house.pods.attach(request("p1")).await.expect_err("fails");
    emptied(&house).await;
    house.assert_nothing_left().await;
}
