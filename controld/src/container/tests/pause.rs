//! Machines that are on and do not run.

use proto::pause::Pause;
use vmspec::ContainerId;
use vmspec::error::Kind;

use super::GRACE;
use super::fake::{Domain, Fault, Node};
use crate::hypervisor::Ending;
use crate::model::{Container, ContainerState};

async fn running() -> (Node, ContainerId) {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    (node, id)
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_disk_is_full_is_shown_and_goes_on_when_there_is_room() {
    let (node, id) = running().await;
    node.free(0);
    node.pauses(id, Pause::DiskFull);
    node.pass(1).await;
    assert_eq!((node.state(id), node.pause(id)), (ContainerState::Running, Some(Pause::DiskFull)));
    node.pass(600).await;
    assert_eq!(node.is_paused(id), Some(Pause::DiskFull), "there is no room yet");
    node.free(40);
    node.pass(60).await;
    assert_eq!(node.is_paused(id), Some(Pause::DiskFull), "room for the next write is not enough");
    node.free(50);
    // libvirt does not do it at once.
    node.faults(&[Fault::Refused, Fault::Refused]);
    node.pass(60).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_paused_while_controld_was_down_goes_on() {
    let (node, id) = running().await;
    node.free(0);
    node.pauses(id, Pause::DiskFull);
    let node = node.restart();
    node.pass(1).await;
    assert_eq!(node.pause(id), Some(Pause::DiskFull), "libvirt knows");
    node.free(1000);
    node.pass(10).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn who_paused_a_machine_by_hand_lets_it_go_on() {
    let (node, id) = running().await;
    node.pauses(id, Pause::ByHand);
    node.pass(600).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), Some(Pause::ByHand)));
    node.goes_on(id);
    node.pass(1).await;
    assert_eq!(node.pause(id), None);
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_paused_and_resumed_as_a_person_says() {
    let (node, id) = running().await;
    for _ in 0..2 {
        node.hold(id).await.expect("paused");
        assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), Some(Pause::ByHand)), "shown at once");
    }
    let node = node.restart();
    node.pass(1).await;
    assert_eq!(node.pause(id), Some(Pause::ByHand), "libvirt knows");
    for _ in 0..2 {
        node.let_go(id).await.expect("resumed");
        assert_eq!((node.is_paused(id), node.pause(id)), (None, None));
    }
    node.faults(&[Fault::Refused]);
    node.hold(id).await.expect_err("libvirt refused");
    assert_eq!(node.pause(id), None);
    node.hold(id).await.expect("paused");
    node.stop(id, GRACE).await.expect("stopped");
    assert_eq!(node.is_paused(id), None, "it went on, so that it could shut down");
    for refused in [node.hold(id).await, node.let_go(id).await] {
        assert_eq!(refused.expect_err("it has ended").kind(), Kind::State);
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_room_is_not_paused_by_hand() {
    let (node, id) = running().await;
    node.free(0);
    node.pauses(id, Pause::DiskFull);
    node.pass(1).await;
    assert_eq!(node.hold(id).await.expect_err("it waits for room").kind(), Kind::State);
    node.let_go(id).await.expect("a person may know better");
    assert_eq!((node.is_paused(id), node.pause(id)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_paused_machine_can_be_stopped_and_ends() {
    for stopped in [true, false] {
        let (node, id) = running().await;
        node.free(0);
        node.pauses(id, Pause::DiskFull);
        node.pass(1).await;
        if stopped {
            node.stop(id, GRACE).await.expect("stopped");
        } else {
            node.ends(id, Ending::Destroyed);
            node.pass(1).await;
        }
        assert_eq!((node.state(id), node.pause(id)), (ContainerState::Exited, None));
        node.free(1000);
        node.pass(600).await;
        assert_eq!(node.is_paused(id), Some(Pause::DiskFull), "nobody lets go on what has ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_a_start_held_runs_after_the_starts_death_and_one_that_a_person_holds_does_not() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.faults(&[Fault::None, Fault::Late]);
    let starting = node.starting(id);
    node.pass(1).await;
    node.set_domain(id, Domain::On);
    node.pauses(id, Pause::ByHand);
    let node = node.restart();
    node.pass(1).await;
    assert_eq!((node.state(id), node.is_paused(id), node.pause(id)), (ContainerState::Running, None, None));

    node.pauses(id, Pause::ByHand);
    node.pass(1).await;
    let node = node.restart();
    node.pass(1).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), Some(Pause::ByHand)));
    starting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_its_pod_wants_to_wait_waits_also_after_the_starts_death() {
    let node = Node::new();
    let wait = |container: &mut Container| container.machine.hardware.described.start_paused = true;
    let id = node.create_as(0, wait).await.expect("created");
    node.faults(&[Fault::None, Fault::Late]);
    let starting = node.starting(id);
    node.pass(1).await;
    node.set_domain(id, Domain::On);
    node.pauses(id, Pause::ByHand);
    let node = node.restart();
    node.pass(600).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), Some(Pause::ByHand)));
    assert!(node.is_prepared(id), "its NICs have a carrier when a person lets it go on");
    node.let_go(id).await.expect("a person lets it go on");
    node.pass(1).await;
    assert_eq!((node.state(id), node.is_paused(id), node.pause(id)), (ContainerState::Running, None, None));
    starting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_libvirt_has_yet_to_hold_when_it_is_found_does_not_run_unprepared() {
    for waits in [false, true] {
        let node = Node::new();
        let wait = |container: &mut Container| container.machine.hardware.described.start_paused = waits;
        let id = node.create_as(0, wait).await.expect("created");
        node.faults(&[Fault::None, Fault::Late]);
        let starting = node.starting(id);
        node.pass(1).await;
        node.set_domain(id, Domain::On);
        node.coming_up(id, true);
        let node = node.restart();
        node.pass(10).await;
        assert_eq!((node.state(id), node.is_prepared(id)), (ContainerState::Running, false));
        let refused = node.let_go(id).await.expect_err("libvirt still starts it");
        assert_eq!(refused.kind(), Kind::State, "{refused}");
        node.coming_up(id, false);
        node.pauses(id, Pause::ByHand);
        node.pass(60).await;
        assert!(node.is_prepared(id));
        let held = waits.then_some(Pause::ByHand);
        assert_eq!((node.is_paused(id), node.pause(id)), (held, held));
        starting.abort();
    }
}
