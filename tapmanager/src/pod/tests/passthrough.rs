//! Virtual functions: taken after the join, handed out when a machine is to start, given back before DEL. The fake world
//! fails a DEL of a pod that still has one.

use fake::vf_at;

use super::*;

/// A house in which the link of every pod is a virtual function.
fn house(faults: Faults) -> House {
    let house = House::with(faults, Fake::default());
    house.world.state().vf_links.insert("eth0".to_owned());
    house
}

fn claimed(house: &House) -> Vec<(String, String)> {
    let state = house.world.state();
    state.claimed.iter().map(|(vf, pod)| (vf.to_string(), pod.to_string())).collect()
}

#[tokio::test]
async fn a_virtual_function_is_the_pods_from_attach_to_detach() {
    let house = house(Faults::none());
    let net = house.pods.attach(request("p1")).await.expect("attached");
    assert_eq!(net.vfio().map(|vfio| vfio.device).collect::<Vec<_>>(), [vf_at(0)]);
    let own = vec![(vf_at(0).to_string(), "p1".to_owned())];
    assert_eq!(claimed(&house), own);
    assert!(house.world.state().handed_out.is_empty(), "no machine is to start yet");

    assert_eq!(house.pods.hand_out(&id("p1"), true).await.expect("by descriptor"), []);
    assert_eq!(house.pods.hand_out(&id("p1"), false).await.expect("by libvirt"), [vf_at(0)]);

    let house = house.restart().await;
    assert_eq!((claimed(&house), house.trouble("p1")), (own, None), "a restart touches nothing");
    house.pods.detach(&id("p1")).await.expect("detached");
    assert!(claimed(&house).is_empty());
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_pod_without_any_costs_nothing() {
    let house = House::new();
    house.pods.attach(request("p1")).await.expect("attached");
    assert_eq!(house.pods.hand_out(&id("p1"), true).await.expect("nothing"), []);
    house.pods.detach(&id("p1")).await.expect("detached");
    assert_eq!(["claim", "hand_out", "give_back"].map(|verb| house.calls(verb)), [0; 3]);
}

#[tokio::test]
async fn an_attach_that_fails_at_any_step_gives_it_back() {
    for step in 1.. {
        let house = house(Faults::after_step(step));
        let attached = house.pods.attach(request("p1")).await;
        if attached.is_ok() {
            assert!(step > 6, "the steps of an attach are counted");
            break;
        }
        assert!(claimed(&house).is_empty(), "step {step}");
        house.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn what_cannot_be_given_back_holds_up_del_and_is_tried_again() {
    let house = house(Faults::none());
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.fail("give_back", &[]);
    let error = house.pods.detach(&id("p1")).await.expect_err("not given back");
    assert!(Chain(&error).to_string().contains("failed to give the virtual functions back"), "{error:?}");
    assert_eq!((house.calls("del"), house.phase("p1")), (0, Some(PodPhase::Detaching)));
    house.pods.detach(&id("p1")).await.expect("given back, and detached");
    house.assert_nothing_left().await;
    assert_eq!(house.phase("p1"), None);
}

#[tokio::test]
async fn a_claim_that_fails_half_way_is_undone() {
    let house = house(Faults::none());
    house.world.fail("claim", &[]);
    let error = house.pods.attach(request("p1")).await.expect_err("not claimed");
    assert!(Chain(&error).to_string().contains("failed to take the virtual functions for the machine"), "{error:?}");
    assert!(claimed(&house).is_empty());
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn one_that_is_gone_is_the_pods_trouble() {
    let house = house(Faults::none());
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.state().vanished.insert(vf_at(0));
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1").as_deref(), Some("a VF is gone"));
    house.pods.hand_out(&id("p1"), true).await.expect_err("of no use");
    // Nothing that we make again brings it back, whoever asks.
    let refused = house.pods.take_up(&id("p1")).await.expect_err("not mended");
    assert!(Chain(&refused).to_string().contains("a VF is gone"), "{refused:?}");
    assert_eq!(house.trouble("p1").as_deref(), Some("a VF is gone"));
    house.pods.hand_out(&id("p1"), true).await.expect_err("of no use");
    let house = house.restart().await;
    house.pods.look_after().await;
    assert_eq!(house.trouble("p1").as_deref(), Some("a VF is gone"));
    house.pods.detach(&id("p1")).await.expect("ends cleanly");
    house.assert_nothing_left().await;
}

#[tokio::test]
async fn a_claim_of_a_pod_that_is_on_no_record_is_collected() {
    let house = house(Faults::none());
    house.pods.attach(request("p1")).await.expect("attached");
    house.world.state().claimed.insert(vf_at(3), id("lost"));
    let report = house.pods.collect(Occasion::Routine).await;
    assert!(report.removed.iter().any(|line| line.contains("pod `lost`")), "{report:?}");
    assert_eq!(claimed(&house), [(vf_at(0).to_string(), "p1".to_owned())]);
}
