//! Pods that stand: compared, counted, explained and taken up again.

use super::*;

async fn attached() -> House {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    house.log();
    house
}

#[tokio::test]
async fn a_check_of_a_sound_pod_looks_at_everything_and_finds_nothing() {
    let house = attached().await;
    let report = house.pods.check(&id("p1")).await.expect("checked");
    assert_eq!(report.findings, [""; 0]);
    assert_eq!(
        report.checked,
        ["its namespace", "links, taps and filters", "servers of its guest", "network `net` on `eth0`, by its plugins"]
    );
    assert_eq!(house.pods.check(&id("p2")).await.expect_err("unknown").body().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn what_is_lost_is_trouble_until_it_is_made_again() {
    let house = attached().await;
    house.world.state().lost = vec!["tap `tap0` is gone".into()];
    let report = house.pods.check(&id("p1")).await.expect("checked");
    assert_eq!(report.findings, ["tap `tap0` is gone"]);
    assert_eq!(house.trouble("p1").as_deref(), Some("tap `tap0` is gone"));
    assert_eq!(house.pods.usable(&id("p1")).expect_err("of no use").body().code, ErrorCode::Conflict);
    house.pods.take_up(&id("p1")).await.expect("taken up again");
    assert_eq!(house.calls("repair"), 1);
    assert_eq!(house.trouble("p1"), None);
    assert_eq!(house.world.serving(), 1, "by new servers alone");
    assert_eq!(house.pods.check(&id("p1")).await.expect("checked").findings, [""; 0]);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn what_plugins_say_is_reported_and_is_no_trouble() {
    let house = attached().await;
    house.world.fail("check_network", &[(0, false)]);
    let report = house.pods.check(&id("p1")).await.expect("checked");
    assert_eq!(report.findings, ["network `net` on `eth0`: check_network fails as the test wants"]);
    house.pods.usable(&id("p1")).expect("of use all the same");
}

#[tokio::test]
async fn a_check_that_finds_a_pod_well_again_ends_its_trouble() {
    let house = attached().await;
    house.world.state().lost = vec!["link `eth0` is down".into()];
    house.pods.check(&id("p1")).await.expect("checked");
    house.pods.usable(&id("p1")).expect_err("of no use");
    house.world.state().lost.clear();
    house.pods.check(&id("p1")).await.expect("checked");
    house.pods.usable(&id("p1")).expect("well again");
}

#[tokio::test]
async fn a_server_that_ends_by_itself_is_trouble_and_recover_starts_another() {
    let house = attached().await;
    house.world.state().servers[0].cancel();
    while house.trouble("p1").is_none() {
        tokio::task::yield_now().await;
    }
    assert!(house.trouble("p1").expect("trouble").contains("recover the pod"));
    let report = house.pods.check(&id("p1")).await.expect("checked");
    assert_eq!(report.findings, ["its guest is not served; recover the pod"]);
    house.pods.take_up(&id("p1")).await.expect("taken up again");
    assert_eq!((house.calls("repair"), house.world.serving()), (0, 1));
    house.pods.usable(&id("p1")).expect("of use");
    // Told to end, it is no trouble.
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_recovery_of_a_sound_pod_disturbs_nothing() {
    let house = attached().await;
    house.pods.take_up(&id("p1")).await.expect("the same");
    assert_eq!(house.log(), ["look", "check_join"]);
    assert_eq!(house.pods.take_up(&id("p2")).await.expect_err("unknown").body().code, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_recovery_that_fails_leaves_trouble_and_can_be_tried_again() {
    for verb in ["repair", "rejoin"] {
        let house = attached().await;
        house.world.state().lost = vec!["tap `tap0` is gone".into()];
        house.world.fail(verb, &[]);
        house.pods.take_up(&id("p1")).await.expect_err(verb);
        assert_eq!(house.trouble("p1"), Some(format!("{verb} fails as the test wants")));
        assert_eq!(house.world.serving(), 0);
        house.pods.take_up(&id("p1")).await.expect("second try");
        house.assert_whole("p1");
        assert_eq!(house.world.serving(), 1);
    }
}

#[tokio::test]
async fn what_is_ours_and_lost_is_made_again_without_anybody_asking() {
    let house = attached().await;
    house.pods.look_after().await;
    assert_eq!(house.log(), ["look", "check_join"], "no plugin is run");
    house.world.state().lost = vec!["tap `tap0` is gone".into()];
    house.pods.look_after().await;
    assert_eq!((house.calls("repair"), house.world.serving()), (1, 1));
    house.pods.usable(&id("p1")).expect("of use");
}

#[tokio::test]
async fn a_guest_whose_server_ended_is_served_again_without_anybody_asking() {
    let house = attached().await;
    house.world.state().servers[0].cancel();
    let mut view = house.pods.shared.lock().as_ref().expect("open")[&id("p1")].view.clone();
    view.wait_for(|view| view.as_ref().is_some_and(|view| view.trouble.is_some())).await.expect("noticed");
    house.pods.look_after().await;
    assert_eq!((house.trouble("p1"), house.world.serving(), house.calls("repair")), (None, 1, 0));
}

#[tokio::test]
async fn what_is_not_ours_is_trouble_without_anybody_asking_and_is_left_alone() {
    let house = attached().await;
    house.world.state().changed = vec!["link `eth0` has lost an address".into()];
    house.pods.look_after().await;
    house.pods.usable(&id("p1")).expect("of use all the same");
    (house.world.state().lost, house.world.state().beyond) = (vec!["link `eth0` is gone".into()], true);
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1").as_deref(), Some("link `eth0` is gone"));
    house.world.state().lost.clear();
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1"), None, "the plugin has brought it back");
    house.world.state().netns.clear();
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1").as_deref(), Some("its network namespace is gone; detach the pod"));
    assert_eq!((house.calls("repair"), house.calls("rejoin")), (0, 0));
}

#[tokio::test]
async fn a_look_that_fails_makes_no_trouble_and_ends_none() {
    for verb in ["look", "check_join"] {
        let house = attached().await;
        for (lost, trouble) in [(vec![], None), (vec!["link `eth0` is gone".to_owned()], Some("link `eth0` is gone"))] {
            (house.world.state().lost, house.world.state().beyond) = (lost, true);
            house.pods.look_after().await;
            house.world.fail(verb, &[]);
            house.pods.look_after().await;
            assert_eq!(house.trouble("p1").as_deref(), trouble, "{verb}");
            house.world.fail(verb, &[]);
            let report = house.pods.check(&id("p1")).await.expect("checked");
            assert_eq!(report.findings, [format!("{verb} fails as the test wants")]);
            assert_eq!(house.trouble("p1").as_deref(), trouble, "{verb}");
        }
    }
}

#[tokio::test]
async fn a_repair_that_fails_is_trouble_until_the_next_time() {
    let house = attached().await;
    house.world.state().lost = vec!["tap `tap0` is gone".into()];
    house.world.fail("repair", &[]);
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1").as_deref(), Some("repair fails as the test wants"));
    house.pods.look_after().await;
    assert_eq!((house.trouble("p1"), house.world.serving()), (None, 1));
}

#[tokio::test]
async fn a_namespace_that_is_gone_is_told_and_left_to_detach() {
    let house = attached().await;
    house.world.state().netns.clear();
    let report = house.pods.check(&id("p1")).await.expect("checked");
    assert_eq!(report.findings, ["its network namespace is gone; detach the pod"]);
    let body = house.pods.take_up(&id("p1")).await.expect_err("gone").body();
    assert_eq!(body.code, ErrorCode::Conflict, "{}", body.message);
    house.world.state().joined.clear();
    house.pods.detach(&id("p1")).await.expect("detached");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_pod_in_trouble_is_listed_so_in_few_bytes() {
    let house = attached().await;
    house.world.state().lost = vec![format!("line one\nline \"two\" {}", "x".repeat(300))];
    house.pods.check(&id("p1")).await.expect("checked");
    let trouble = house.pods.page(&List::default()).pods[0].trouble.clone().expect("trouble");
    assert!(trouble.starts_with("line one line \"two\" xxx"), "{trouble}");
    assert!(serde_json::to_string(&trouble).expect("encodes").len() <= MAX_TROUBLE + 2);
}

#[tokio::test]
async fn counters_come_in_pages_of_the_pods_that_can_be_counted() {
    let house = House::new();
    for n in 0..40 {
        house.pods.attach(request(&format!("p{n:03}"))).await.expect("attached");
    }
    house.world.fail("stats", &[]);
    let first = house.pods.stats(&List::default()).await;
    assert_eq!((first.pods.len(), first.more), (31, true), "one cannot be counted");
    assert_eq!(first.pods[30].pod, id("p031"));
    assert_eq!(first.pods[0].nics[0].rx_bytes, 1);
    let second = house.pods.stats(&after(id("p031"))).await;
    assert_eq!((second.pods.len(), second.more), (8, false));
}

#[tokio::test]
async fn counters_of_one_pod_are_read_in_its_namespace_alone() {
    let house = House::new();
    for pod in ["p1", "p2", "p3"] {
        house.pods.attach(request(pod)).await.expect("attached");
    }
    let page = house.pods.stats(&List { pod: Some(id("p2")), ..List::default() }).await;
    assert_eq!(page.pods.iter().map(|pod| pod.pod.as_str()).collect::<Vec<_>>(), ["p2"]);
    assert_eq!((house.calls("stats"), page.more), (1, false));
}

#[tokio::test]
async fn a_pod_is_explained_from_its_record() {
    let house = attached().await;
    let detail = house.pods.inspect(&id("p1")).await.expect("known");
    assert_eq!(detail.request, request("p1"));
    assert_eq!(detail.summary, house.pods.page(&List::default()).pods[0]);
    assert!(detail.net.is_some());
    assert!(detail.explanation[0].starts_with("network `net`"), "{:?}", detail.explanation);
    assert_eq!(house.pods.inspect(&id("p2")).await.expect_err("unknown").body().code, ErrorCode::NotFound);
}

#[test]
fn reports_fit_into_a_packet() {
    let lines = || super::super::command::bounded(vec!["\u{1}\"ü".repeat(300); 1000]);
    let report = CheckReport { findings: lines(), checked: lines() };
    assert_eq!(report.findings.len(), super::super::command::MAX_LINES + 1);
    proto::tap::encode_reply(Ok(&proto::tap::Reply::Checked(report)), 0).expect("fits");
}
