//! Restarts of the daemon while something hangs, or is not understood.

use common::logged::Lines;

use super::*;

/// As [`House::put`] takes it.
fn whole(state: &mut fake::State, netns: &Path) {
    state.netns.insert(netns.into());
    state.joined.insert(netns.into());
    let Some(names::NetnsOwner::ThisDaemon(pod)) = names().owner(netns) else { panic!("not ours") };
    state.added.insert((pod.as_str().to_owned(), "eth0".to_owned()));
}

/// Lets the actors work until `done`.
pub(super) async fn until(what: &str, done: impl Fn() -> bool) {
    let waited = async {
        while !done() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GRACE, waited).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

#[tokio::test]
async fn what_hangs_at_a_restart_keeps_no_other_pod_waiting() {
    let house = House::new();
    for n in 0..20 {
        let pod = format!("a{n:02}");
        house.put(&pod, PodPhase::Detaching, whole);
        house.world.state().hanging.insert(format!("del {pod}"));
    }
    house.put("leaving", PodPhase::Detaching, whole);
    house.put("running", PodPhase::Attached, whole);
    let house = house.come_back().await;
    // Before anything was looked at.
    let pods = house.pods.page(&List::default()).pods;
    assert_eq!((pods.len(), house.pods.recovering()), (22, 22));
    assert!(pods.iter().all(|pod| pod.recovering));
    assert_eq!(pods[21].phase, PodPhase::Attached);
    assert!(pods[..21].iter().all(|pod| pod.phase == PodPhase::Detaching));

    house.pods.soon_usable(&id("running"), GRACE).await.expect("is served again");
    until("all turns are taken", || house.calls("hangs") >= 8).await;
    house.pods.attach(request("new")).await.expect("attached");
    house.pods.detach(&id("new")).await.expect("detached");
    house.pods.detach(&id("running")).await.expect("detached");
    // It is not its turn, but somebody asks for it.
    house.pods.detach(&id("leaving")).await.expect("detached");
    assert_eq!((house.pods.count(), house.pods.recovering()), (20, 20));
    house.world.free(|_| true);
    house.pods.recovered().await;
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_pod_that_is_being_recovered_is_waited_for_and_never_unknown() {
    let house = House::new();
    house.put("p1", PodPhase::Attached, whole);
    house.world.state().hanging.insert("look p1".to_owned());
    let house = house.come_back().await;
    let body = house.pods.usable(&id("p1")).expect_err("not yet").body();
    assert_eq!(body.code, ErrorCode::Unavailable);
    assert_eq!(body.message, "pod `p1` is being recovered after a restart of tapmanager; ask again");
    // The wait has an end.
    let body = house.pods.soon_usable(&id("p1"), Duration::ZERO).await.expect_err("not yet").body();
    assert_eq!(body.code, ErrorCode::Unavailable);
    let p1 = id("p1");
    let (usable, checked, ()) = tokio::join!(
        house.pods.soon_usable(&p1, GRACE),
        // Queued behind it.
        house.pods.check(&p1),
        async { house.world.free(|_| true) },
    );
    usable.expect("served again");
    assert_eq!(checked.expect("known").findings, [""; 0]);
    assert_eq!(house.pods.recovering(), 0);
}

#[tokio::test]
async fn a_line_of_the_log_names_the_pod_of_the_record() {
    let (lines, _logs) = Lines::of_this_thread();
    let house = House::new();
    house.put("p1", PodPhase::Attached, whole);
    house.come_back().await.pods.recovered().await;
    lines.assert_line(r#" pod{namespace="default" name="vm-p1" pod="p1"}: "#, "pod is served again");
}

#[tokio::test]
async fn a_pod_that_is_recovered_is_asked_in_order() {
    let house = House::new();
    house.put("p1", PodPhase::Attached, whole);
    house.world.state().hanging.insert("look p1".to_owned());
    let house = house.come_back().await;
    until("it is looked at", || house.calls("hangs") == 1).await;
    let p1 = id("p1");
    let (attached, detached, ()) =
        tokio::join!(house.pods.attach(request("p1")), house.pods.detach(&p1), async { house.world.free(|_| true) },);
    assert_eq!(attached.expect("the same").netns, netns_of("p1"));
    detached.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_daemon_that_goes_down_while_pods_wait_for_their_turn_leaves_them_as_they_are() {
    let house = House::new();
    for n in 0..12 {
        let pod = format!("a{n:02}");
        house.put(&pod, PodPhase::Detaching, whole);
        house.world.state().hanging.insert(format!("del {pod}"));
    }
    let house = house.come_back().await;
    until("all turns are taken", || house.calls("hangs") >= 8).await;
    tokio::join!(house.pods.close(GRACE), async { house.world.free(|_| true) });
    assert_eq!(house.records().len(), 4, "those whose turn it was not");
}

#[tokio::test]
async fn a_pod_whose_record_is_not_understood_is_listed_kept_and_forgotten_by_a_person() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let file = house.dir.path().join("pods/p1.json");
    std::fs::write(&file, r#"{"version":9}"#).expect("written");
    std::fs::remove_file(house.dir.path().join("pods/p1.note")).expect("removed");
    let house = house.come_back().await;
    house.pods.recovered().await;
    let owned = List { owner: Some("anybody".parse().expect("owner")), ..List::default() };
    for list in [List::default(), owned] {
        let pods = house.pods.page(&list).pods;
        assert_eq!(
            pods.iter().map(|pod| (pod.phase, pod.owner.is_none())).collect::<Vec<_>>(),
            [(PodPhase::Attached, true)]
        );
        let trouble = pods[0].trouble.as_deref().expect("trouble");
        assert!(trouble.contains("p1.json` is not understood and left alone"), "{trouble}");
    }
    assert_eq!(house.pods.usable(&id("p1")).expect_err("of no use").body().code, ErrorCode::Conflict);
    assert_eq!(house.pods.check(&id("p1")).await.expect_err("of no use").body().code, ErrorCode::Conflict);
    assert_eq!(house.pods.take_up(&id("p1")).await.expect_err("of no use").body().code, ErrorCode::Conflict);
    assert_eq!(house.pods.attach(request("p1")).await.expect_err("taken").body().code, ErrorCode::Conflict);
    house.pods.collect(Occasion::Asked).await;
    // Nothing may hold a deletion up, and nothing is taken away that is not understood.
    house.pods.detach(&id("p1")).await.expect("answered");
    assert_eq!((house.pods.count(), house.world.state().netns.len(), file.exists()), (1, 1, true));

    let report = house.pods.forget(&id("p1")).await.expect("forgotten");
    assert_eq!(report.removed, ["record of pod `p1`"]);
    house.world.state().added.clear();
    assert_eq!(house.world.serving(), 0);
    house.assert_nothing_left().await;
    house.pods.attach(request("p1")).await.expect("attached anew");
}

#[tokio::test]
async fn a_pod_whose_note_cannot_be_read_keeps_its_network() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    let note = house.dir.path().join("pods/p1.note");
    let kept = std::fs::read(&note).expect("note");
    std::fs::remove_file(&note).expect("removed");
    std::os::unix::fs::symlink("elsewhere", &note).expect("link");
    let house = house.restart().await;
    assert_eq!((house.calls("del"), house.world.state().netns.len()), (0, 1));
    let trouble = house.trouble("p1").expect("trouble");
    assert!(trouble.contains("p1.note` is not understood and left alone"), "{trouble}");

    std::fs::remove_file(&note).expect("removed");
    std::fs::write(&note, kept).expect("brought back");
    let house = house.restart().await;
    house.assert_whole("p1");
}

#[tokio::test]
async fn a_record_that_somebody_took_away_is_in_nobodys_way() {
    let house = House::new();
    let file = house.dir.path().join("pods/p1.json");
    std::fs::write(&file, "{").expect("written");
    let house = house.come_back().await;
    assert_eq!(house.pods.count(), 1);
    std::fs::remove_file(&file).expect("removed");
    house.pods.attach(request("p1")).await.expect("attached");
    house.assert_whole("p1");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.settle().await;
    std::fs::write(&file, "{").expect("written");
    let house = house.come_back().await;
    std::fs::remove_file(&file).expect("removed");
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_pod_whose_actor_a_bug_has_ended_is_taken_up_from_its_record() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.state().panicking.insert("check_join");
    assert_eq!(house.pods.check(&id("p1")).await.expect_err("died").body().code, ErrorCode::Internal);
    dead(&house, "p1").await;
    assert_eq!(house.phase("p1"), Some(PodPhase::Attached), "as it was");
    house.pods.check(&id("p1")).await.expect("taken up");
    house.assert_whole("p1");
    until("its servers are those of the new actor", || house.world.serving() == 1).await;

    // Half way: what is on record says how it goes on.
    for verb in ["add", "join"] {
        house.world.state().panicking.insert(verb);
        house.pods.attach(request("p2")).await.expect_err("died");
        dead(&house, "p2").await;
        house.pods.attach(request("p2")).await.expect("made anew");
        house.assert_whole("p2");
        house.world.state().panicking.insert("del");
        house.pods.detach(&id("p2")).await.expect_err("died");
        dead(&house, "p2").await;
        house.pods.detach(&id("p2")).await.expect("finished");
        house.settle().await;
    }
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

/// Waits for the end of the pod's actor: whoever asked hears of it a moment before.
async fn dead(house: &House, pod: &str) {
    let handles = || house.pods.shared.lock();
    until("its actor has ended", || handles().as_ref().is_some_and(|all| all[&id(pod)].commands.is_closed())).await;
}

#[tokio::test]
async fn a_detach_of_a_pod_that_nobody_knows_starts_nothing() {
    let house = House::new();
    house.pods.detach(&id("p1")).await.expect("nothing to do");
    assert_eq!((house.pods.shared.actors.len(), house.log()), (0, Vec::new()));
    house.pods.close(GRACE).await;
    assert!(matches!(house.pods.detach(&id("p1")).await, Err(PodError::Closing)));
}
