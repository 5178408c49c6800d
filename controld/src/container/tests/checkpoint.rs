//! Machines that are written down while they run.

use std::path::PathBuf;

use proto::pause::Pause;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use vmspec::error::{Kind, Result};
use vmspec::{ContainerId, Resources};

use super::GRACE;
use super::fake::{Domain, Fault, Node};
use crate::hypervisor::Ending;
use crate::model::ContainerState;

async fn running() -> (Node, ContainerId, CancellationToken) {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    (node, id, CancellationToken::new())
}

/// The same, amid a checkpoint that hangs so.
async fn amid(hangs: fn(&Node, bool)) -> (Node, ContainerId, CancellationToken, JoinHandle<Result<()>>) {
    let (node, id, wanted) = running().await;
    hangs(&node, true);
    let writing = node.checkpointing(id, &wanted);
    node.pass(5).await;
    (node, id, wanted, writing)
}

/// That the guest runs, and nothing is left.
fn assert_over(node: &Node, id: ContainerId) {
    assert_eq!((node.is_paused(id), node.pause(id), node.checkpoint_noted(id)), (None, None, None));
    assert_eq!((node.halves(), node.wrong()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_machine_runs_on_after_its_checkpoint_and_is_not_shown_as_paused_meanwhile() {
    let (node, id, wanted, writing) = amid(Node::no_checkpoints).await;
    assert_eq!(node.checkpoint_noted(id).map(|note| note.dir), Some(PathBuf::from("/checkpoint")));
    assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), None), "that is our affair");
    for refused in [
        node.hold(id).await,
        node.let_go(id).await,
        node.checkpointing(id, &wanted).await.expect("no panic"),
        node.actors().get(id).expect("there").update(Resources::default()).await,
    ] {
        assert_eq!(refused.expect_err("a checkpoint is being made").kind(), Kind::Unavailable);
    }
    node.no_checkpoints(false);
    writing.await.expect("no panic").expect("written");
    assert_over(&node, id);
}

#[tokio::test(start_paused = true)]
async fn a_guest_is_its_owners_again_while_its_files_are_finished() {
    let (node, id, wanted, writing) = amid(Node::no_finishes).await;
    assert_eq!((node.is_paused(id), node.halves()), (None, 1));
    assert!(node.checkpoint_noted(id).expect("it is not whole").goes_on);
    node.actors().get(id).expect("there").update(Resources::default()).await.expect("given other resources");
    node.hold(id).await.expect("paused by hand");
    assert_eq!(node.pause(id), Some(Pause::ByHand));
    node.let_go(id).await.expect("resumed");
    let refused = node.checkpointing(id, &wanted).await.expect("no panic").expect_err("one is being made");
    assert!(refused.kind() == Kind::Unavailable && refused.to_string().contains("still being written"), "{refused}");
    // By virsh.
    node.pauses(id, Pause::ByHand);
    node.pass(1).await;
    assert_eq!(node.pause(id), Some(Pause::ByHand));
    node.no_finishes(false);
    writing.await.expect("no panic").expect("written");
    assert_eq!((node.is_paused(id), node.checkpoint_noted(id)), (Some(Pause::ByHand), None));
    assert_eq!((node.halves(), node.wrong()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_kill_while_files_are_finished_has_them_removed_and_nobody_resumed() {
    let (node, id, _wanted, writing) = amid(Node::no_finishes).await;
    node.pauses(id, Pause::ByHand);
    node.pass(1).await;
    let node = node.restart();
    node.pass(60).await;
    assert_eq!((node.is_paused(id), node.pause(id)), (Some(Pause::ByHand), Some(Pause::ByHand)));
    assert_eq!((node.checkpoint_noted(id), node.halves(), node.wrong()), (None, 0, Vec::new()));
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_guest_that_a_killed_controld_has_paused_goes_on() {
    let (node, id, _wanted, writing) = amid(Node::no_checkpoints).await;
    let node = node.restart();
    node.pass(5).await;
    assert_over(&node, id);
    assert_eq!(node.state(id), ContainerState::Running);
    writing.abort();
}

#[tokio::test(start_paused = true)]
async fn a_guest_goes_on_however_often_that_has_to_be_tried() {
    let (node, id, wanted, writing) = amid(Node::no_checkpoints).await;
    node.faults(&[Fault::Refused, Fault::Refused, Fault::NoReply]);
    wanted.cancel();
    writing.await.expect("no panic").expect_err("given up");
    assert_eq!(node.is_paused(id), Some(Pause::ByHand), "libvirt refuses");
    node.pass(120).await;
    assert_over(&node, id);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_not_wanted_any_more_leaves_nothing() {
    let (node, id, wanted, writing) = amid(Node::no_checkpoints).await;
    wanted.cancel();
    writing.await.expect("no panic").expect_err("given up");
    assert_over(&node, id);
    assert_eq!(node.domain(id), Some(Domain::On));
}

#[tokio::test(start_paused = true)]
async fn a_stop_or_an_end_amid_a_checkpoint_gives_it_up() {
    for stops in [true, false] {
        let (node, id, _wanted, writing) = amid(Node::no_checkpoints).await;
        if stops {
            node.stop(id, GRACE).await.expect("stopped");
        } else {
            node.ends(id, Ending::Shutdown);
        }
        writing.await.expect("no panic").expect_err("given up");
        node.pass(5).await;
        assert_eq!(node.state(id), ContainerState::Exited);
        assert_over(&node, id);
        node.remove(id).await.expect("removed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_does_not_answer_holds_up_neither_the_guest_nor_a_stop() {
    let (node, id, wanted, writing) = amid(Node::no_checkpoints).await;
    node.no_answer(true);
    wanted.cancel();
    node.pass(1).await;
    assert_eq!(node.is_paused(id), None, "it goes on before files are removed");
    writing.await.expect("no panic").expect_err("given up");
    assert!(node.checkpoint_noted(id).expect("files are left").goes_on);
    node.hold(id).await.expect("paused by hand");
    node.pass(200).await;
    assert_eq!(node.is_paused(id), Some(Pause::ByHand), "that is not ours to end");
    let node = node.restart();
    node.pass(200).await;
    assert_eq!(node.is_paused(id), Some(Pause::ByHand), "nor the next controld's");
    node.let_go(id).await.expect("resumed");
    let refused = node.checkpointing(id, &wanted).await.expect("no panic").expect_err("one is not over");
    assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    node.stop(id, GRACE).await.expect("stopped");
    let refused = node.remove(id).await.expect_err("its files are left");
    assert!(refused.kind() == Kind::Unavailable && refused.to_string().contains("/checkpoint"), "{refused}");
    assert!(node.checkpoint_noted(id).is_some(), "on record as long as they are");
    node.no_answer(false);
    node.pass(120).await;
    assert_over(&node, id);
    node.remove(id).await.expect("removed");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_the_next_try_to_let_a_guest_go_on() {
    let (node, id, wanted, writing) = amid(Node::no_checkpoints).await;
    node.faults(&[Fault::Refused; 100]);
    wanted.cancel();
    writing.await.expect("no panic").expect_err("given up");
    // Half a minute is between two tries by then, and the last one was just now.
    node.pass(62).await;
    assert_eq!(node.is_paused(id), Some(Pause::ByHand), "libvirt refuses");
    node.no_more_faults();
    let beside = node.clone();
    let stopping = tokio::spawn(async move { beside.stop(id, GRACE).await });
    node.pass(1).await;
    assert_eq!(node.is_paused(id), None, "a guest that is paused does not shut down");
    stopping.await.expect("no panic").expect("stopped");
    assert_over(&node, id);
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_removed_amid_its_checkpoint_leaves_nothing() {
    let (node, id, _wanted, writing) = amid(Node::no_checkpoints).await;
    node.remove(id).await.expect("removed");
    writing.await.expect("no panic").expect_err("given up");
    assert_eq!((node.halves(), node.wrong()), (0, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_controld_that_goes_down_has_the_guest_go_on_before() {
    let (node, id, _wanted, writing) = amid(Node::no_checkpoints).await;
    node.actors().get(id).expect("there").end_checkpoint().await.expect("over");
    assert_over(&node, id);
    writing.await.expect("no panic").expect_err("given up");
}

#[tokio::test(start_paused = true)]
async fn who_looks_for_room_leaves_a_guest_alone_that_is_being_written() {
    let (node, id, _wanted, writing) = amid(Node::no_checkpoints).await;
    // What was on its way to the disk found no room; now there is some.
    node.pauses(id, Pause::DiskFull);
    node.pass(600).await;
    assert_eq!(node.is_paused(id), Some(Pause::DiskFull));
    node.no_checkpoints(false);
    writing.await.expect("no panic").expect("written");
    node.pass(1).await;
    assert_over(&node, id);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_or_cannot_be_noted_is_not_written() {
    let (node, id, wanted) = running().await;
    node.disk_full(true);
    let refused = node.checkpointing(id, &wanted).await.expect("no panic").expect_err("not on record");
    assert_eq!(refused.kind(), Kind::Exhausted);
    assert_eq!((node.is_paused(id), node.halves()), (None, 0));
    node.disk_full(false);
    node.pass(60).await;
    node.hold(id).await.expect("paused");
    let refused = node.checkpointing(id, &wanted).await.expect("no panic").expect_err("paused");
    assert_eq!((refused.kind(), node.is_paused(id)), (Kind::State, Some(Pause::ByHand)), "{refused}");
    node.let_go(id).await.expect("resumed");
    node.stop(id, GRACE).await.expect("stopped");
    let refused = node.checkpointing(id, &wanted).await.expect("no panic").expect_err("off");
    assert_eq!(refused.kind(), Kind::State);
    assert_over(&node, id);
}
