//! Machines whose guests go on from checkpoints.

use proto::pause::Pause;

use super::fake::{Domain, Fault, Node};
use crate::model::{Container, ContainerState, RestoreNote};

fn from_checkpoint(container: &mut Container) {
    container.restore =
        Some(RestoreNote { dir: "/checkpoint".into(), is_clone: true, learns: Vec::new(), is_warm: false });
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_has_gone_on_is_as_any_other() {
    let node = Node::new();
    let id = node.create_as(0, from_checkpoint).await.expect("created");
    assert!(node.goes_on_from(id).is_some());
    node.start(id).await.expect("started");
    assert_eq!((node.state(id), node.goes_on_from(id)), (ContainerState::Running, None));
    node.hold(id).await.expect("paused");
    let node = node.restart();
    node.pass(10).await;
    assert_eq!((node.is_paused(id), node.is_prepared(id)), (Some(Pause::ByHand), false), "nobody lets it go on");
}

#[tokio::test(start_paused = true)]
async fn what_a_killed_controld_had_yet_to_do_to_a_guest_is_done_whether_or_not_it_runs_by_then() {
    for runs in [false, true] {
        let node = Node::new();
        let id = node.create_as(0, from_checkpoint).await.expect("created");
        node.faults(&[Fault::None, Fault::Late]);
        let starting = node.starting(id);
        node.pass(1).await;
        node.set_domain(id, Domain::On);
        if !runs {
            node.pauses(id, Pause::ByHand);
        }
        let node = node.restart();
        node.pass(1).await;
        assert!(node.is_prepared(id), "its NICs have no carrier");
        assert_eq!((node.state(id), node.is_paused(id)), (ContainerState::Running, None));
        assert_eq!((node.goes_on_from(id), node.pause(id)), (None, None));
        starting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_let_go_on_however_often_controld_is_killed() {
    let node = Node::new();
    let id = node.create_as(0, from_checkpoint).await.expect("created");
    node.faults(&[Fault::None, Fault::Late]);
    let starting = node.starting(id);
    node.pass(1).await;
    node.set_domain(id, Domain::On);
    node.pauses(id, Pause::ByHand);
    let node = node.restart();
    // It is asked for, and not let go on.
    node.faults(&[Fault::None, Fault::Refused]);
    node.pass(0).await;
    assert_eq!((node.on_disk(id), node.is_prepared(id)), (Some(ContainerState::Running), false));
    assert!(node.goes_on_from(id).is_some());
    node.no_more_faults();
    let node = node.restart();
    node.pass(1).await;
    assert_eq!((node.is_prepared(id), node.is_paused(id), node.goes_on_from(id)), (true, None, None));
    starting.abort();
}
