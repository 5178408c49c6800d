//! Pods of several networks.

use proto::tap::{Dns, NetworkAsk};

use super::*;

pub(super) fn ask(network: &str) -> NetworkAsk {
    NetworkAsk { network: Some(network.to_owned()), ..NetworkAsk::default() }
}

fn three(pod: &str) -> Attach {
    let mut attach = request(pod);
    attach.networks = ["net", "blue", "red"].map(ask).to_vec();
    attach.networks[1].interface = Some("data0".parse().expect("name"));
    attach.sysctls.insert("net.ipv4.ip_forward".into(), "1".into());
    attach
}

#[tokio::test]
async fn networks_are_added_in_order_and_taken_away_in_reverse() {
    let house = House::new();
    let net = house.pods.attach(three("p1")).await.expect("attached");
    let names: Vec<_> = net.nics.iter().map(|nic| nic.name.as_str()).collect();
    assert_eq!(names, ["eth0", "data0", "net2"]);
    house.assert_whole("p1");
    let log = ["networks", "look", "create_netns", "sysctls", "add eth0", "add data0", "add net2", "join"];
    assert_eq!(house.log(), log);
    house.pods.detach(&id("p1")).await.expect("detached");
    house.settle().await;
    assert_eq!(house.log(), ["look", "del net2", "del data0", "del eth0", "remove_netns"]);
    assert!(house.world.state().told.iter().all(|(_, result)| *result));
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_failure_after_any_step_undoes_what_was_added_in_reverse() {
    let whole = House::new();
    whole.pods.attach(three("p1")).await.expect("attached");
    for step in 1..=whole.pods.shared.operations.faults.steps_seen() {
        let house = House::with(Faults::after_step(step), Fake::default());
        house.pods.attach(three("p1")).await.expect_err("injected");
        house.assert_nothing_left().await;
        assert_eq!(house.calls("del"), house.calls("add"), "after {step}");
        house.pods.attach(three("p1")).await.expect("second try");
        house.assert_whole("p1");
    }
}

#[tokio::test]
async fn an_add_that_fails_ends_the_row_and_only_what_began_is_taken_away() {
    for failed in 0..3 {
        let house = House::new();
        house.world.fail_from("add", &[(1, false)], failed, 1);
        house.pods.attach(three("p1")).await.expect_err("fails");
        assert_eq!((house.calls("add"), house.calls("del")), (failed + 1, failed + 1));
        let told: Vec<_> = house.world.state().told.iter().map(|(_, result)| *result).collect();
        assert!(!told[0], "the one that failed has no result");
        assert!(told[1..].iter().all(|result| *result));
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn what_del_did_is_not_done_twice() {
    let house = House::new();
    house.pods.attach(three("p1")).await.expect("attached");
    house.log();
    house.world.fail_from("del", &[(0, false)], 1, 1);
    house.pods.detach(&id("p1")).await.expect_err("the second of three");
    assert_eq!(house.log(), ["look", "del net2", "del data0", "del eth0"]);
    let left: Vec<_> = house.records()[&id("p1")].attachments.iter().map(|left| left.ifname.to_string()).collect();
    assert_eq!(left, ["data0"]);
    let house = house.restart().await;
    assert_eq!(house.log(), ["look", "look", "del data0", "remove_netns"]);
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_power_failure_that_takes_the_results_leaves_no_network_behind() {
    for torn in [&b""[..], b"{"] {
        let house = House::new();
        house.pods.attach(three("p1")).await.expect("attached");
        std::fs::write(house.dir.path().join("pods/p1.note"), torn).expect("torn");
        house.log();
        let house = house.reboot().await;
        let dels: Vec<_> = house.log().into_iter().filter(|line| line.starts_with("del ")).collect();
        assert_eq!(dels, ["del net2", "del data0", "del eth0"]);
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_crash_between_two_adds_is_undone_with_the_results_on_record() {
    // The daemon is killed while the second ADD runs: the actor is not told to end.
    let house = House::with(Faults::none(), Fake::gated());
    let world = Arc::clone(&house.world);
    let cut_off = async {
        while house.calls("add") < 1 || house.records().values().any(|record| record.attachments[0].result.is_none()) {
            world.open_gate();
            tokio::task::yield_now().await;
            if house.records().values().any(|record| record.attachments[0].result.is_some()) {
                break;
            }
        }
    };
    tokio::select! {
        _ = house.pods.attach(three("p1")) => {}
        () = cut_off => {}
    }
    let mut record = house.records().remove(&id("p1")).expect("on record");
    record.attachments.iter_mut().skip(1).for_each(|attachment| attachment.result = None);
    record.phase = PodPhase::Attaching;
    record.net = None;
    // What the crashed one had: the namespace, the first network, perhaps the second.
    let other = House::new();
    other.pods.shared.operations.journal.create(&record).expect("written");
    {
        let mut state = other.world.state();
        state.netns.insert(netns_of("p1"));
        state.added.insert(("p1".into(), "eth0".into()));
        state.added.insert(("p1".into(), "data0".into()));
    }
    let other = other.restart().await;
    assert_eq!(other.log(), ["look", "look", "unjoin", "del data0", "del eth0", "remove_netns"]);
    assert_eq!(other.world.state().told, [("data0".to_owned(), false), ("eth0".to_owned(), true)]);
    other.assert_nothing_left().await;
}

#[tokio::test]
async fn a_restart_changes_neither_names_nor_order_nor_macs() {
    let house = House::new();
    let before = house.pods.attach(three("p1")).await.expect("attached");
    let house = house.restart().await;
    assert_eq!(house.pods.usable(&id("p1")).expect("served again"), before);
    assert_eq!(house.pods.attach(three("p1")).await.expect("the same"), before);
}

#[tokio::test]
async fn resolvers_are_kubelets_or_those_of_the_first_network_that_says_any() {
    let dns = |server: [u8; 4]| Dns { servers: vec![server.into()], ..Dns::default() };
    let house = House::new();
    house.world.state().dns = [("blue".into(), dns([10, 0, 0, 2])), ("red".into(), dns([10, 0, 0, 3]))].into();
    assert_eq!(house.pods.attach(three("p1")).await.expect("attached").dns, dns([10, 0, 0, 2]));
    let mut kubelets = three("p2");
    kubelets.dns = Some(dns([10, 0, 0, 10]));
    assert_eq!(house.pods.attach(kubelets).await.expect("attached").dns, dns([10, 0, 0, 10]));
    let mut none = three("p3");
    none.dns = Some(Dns::default());
    assert_eq!(house.pods.attach(none).await.expect("attached").dns, Dns::default(), "kubelet's word holds");
    assert_eq!(house.pods.attach(request("p4")).await.expect("attached").dns, Dns::default());
}

#[tokio::test]
async fn choices_are_the_pods_within_the_nodes_limit_or_the_nodes() {
    let house = House::set(Settings { data_path: DataPath::Macvtap, anti_spoof: true, max_queues: 4, ..settings() });
    house.pods.attach(request("p1")).await.expect("attached");
    let mut asks = request("p2");
    (asks.data_path, asks.queues, asks.anti_spoof) = (Some(DataPath::Bridge), Some(16), Some(false));
    house.pods.attach(asks).await.expect("attached");
    let records = house.records();
    assert_eq!(records[&id("p1")].choices, Choices { data_path: DataPath::Macvtap, queues: 1, anti_spoof: true });
    assert_eq!(records[&id("p2")].choices, Choices { data_path: DataPath::Bridge, queues: 4, anti_spoof: false });
}

#[tokio::test]
async fn an_address_that_is_a_wish_is_settled_on_record_and_the_same_request_is_the_same() {
    let house = House::new();
    let mut wishing = three("p1");
    for ask in &mut wishing.networks {
        (ask.mac, ask.mac_is_wish) = (Some("02:00:00:00:00:01".parse().expect("an address")), true);
    }
    let net = house.pods.attach(wishing.clone()).await.expect("attached");
    let record = house.records().remove(&id("p1")).expect("on record");
    assert!(record.version() < crate::journal::FORMAT, "an older release can read it");
    assert_eq!(record.request, three("p1"), "none of the networks takes one");
    assert!(record.attachments.iter().all(|attachment| attachment.ask.mac.is_none()));
    assert_eq!(house.pods.attach(wishing.clone()).await.expect("again"), net);
    wishing.networks[0].mac_is_wish = false;
    house.pods.attach(wishing).await.expect_err("what is said is another request");
}
