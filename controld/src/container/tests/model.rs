//! Anything happens to a node in any order; then it is left alone. kubelet has its wish in the end, whatever came before.

use proptest::prelude::*;
use tokio::task::JoinHandle;

use super::fake::{Fault, Node};
use super::kubelet::{Policy, Wish};
use crate::hypervisor::Ending;

/// Rounds of kubelet's worker that are enough for anything, and seconds between them.
const ROUNDS: (usize, u64) = (60, 10);

#[derive(Debug, Clone)]
enum Happening {
    /// kubelet's worker goes through the pod, unless it is still at it.
    Sync,
    /// kubelet collects ended containers.
    Collect,
    /// Seconds pass.
    Pass(u64),
    /// What becomes of the next calls to libvirt.
    Faults(Vec<Fault>),
    /// controld is killed and started again.
    Controld,
    /// libvirtd goes, or is there again.
    Libvirt(bool),
    /// The database has no room any more, or has it again.
    DiskFull(bool),
    /// Starts have to wait for their turn, or not any more.
    NoTurns(bool),
    /// The node's clock is set forward or back.
    Clock(i64),
    /// The guest ends.
    Ends(Ending),
    /// The pod is deleted.
    Deleted,
}

fn happening() -> impl Strategy<Value = Happening> {
    let fault = prop_oneof![Just(Fault::None), Just(Fault::Refused), Just(Fault::NoReply), Just(Fault::Late)];
    let ending = prop_oneof![Just(Ending::Shutdown), Just(Ending::Panicked), Just(Ending::Failed)];
    prop_oneof![
        6 => Just(Happening::Sync),
        1 => Just(Happening::Collect),
        4 => (0_u64..50).prop_map(Happening::Pass),
        4 => proptest::collection::vec(fault, 1..6).prop_map(Happening::Faults),
        2 => Just(Happening::Controld),
        2 => any::<bool>().prop_map(Happening::Libvirt),
        2 => any::<bool>().prop_map(Happening::DiskFull),
        1 => any::<bool>().prop_map(Happening::NoTurns),
        1 => (-50_i64..50).prop_map(Happening::Clock),
        2 => ending.prop_map(Happening::Ends),
        1 => Just(Happening::Deleted),
    ]
}

async fn live(policy: Policy, story: &[Happening]) -> Result<(), TestCaseError> {
    let mut node = Node::new();
    let mut wish = Wish { policy, deleted: false };
    let mut worker: Option<JoinHandle<()>> = None;
    let mut work = |wish: Wish, node: &Node| {
        if worker.as_ref().is_none_or(JoinHandle::is_finished) {
            worker = Some(tokio::spawn(wish.sync(node.clone())));
        }
    };
    for happening in story {
        match happening {
            Happening::Sync => work(wish, &node),
            Happening::Collect => drop(tokio::spawn(wish.collect(node.clone()))),
            Happening::Pass(seconds) => node.pass(*seconds).await,
            Happening::Faults(faults) => node.faults(faults),
            Happening::Controld => node = node.restart(),
            Happening::Libvirt(up) => node.libvirt(*up),
            Happening::DiskFull(full) => node.disk_full(*full),
            Happening::NoTurns(none) => node.no_turns(*none),
            Happening::Clock(by) => node.clock_set(*by),
            Happening::Ends(ending) => node.all_end(*ending),
            Happening::Deleted => wish.deleted = true,
        }
        tokio::task::yield_now().await;
        prop_assert!(node.wrong().is_empty(), "{:?}", node.wrong());
    }
    node.no_more_faults();
    node.disk_full(false);
    node.no_turns(false);
    node.libvirt(true);
    for _ in 0..ROUNDS.0 {
        work(wish, &node);
        node.pass(ROUNDS.1).await;
        prop_assert!(node.wrong().is_empty(), "{:?}", node.wrong());
    }
    prop_assert!(wish.is_granted(&node), "{wish:?}: {:?} {:?}", node.shown(), node.domains());
    Ok(())
}

fn lives(policy: Policy, story: &[Happening]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(live(policy, story))
}

#[test]
fn a_pod_is_restarted_after_the_clock_was_set_back() {
    let story = [
        Happening::Sync,
        Happening::Pass(10),
        Happening::Clock(-1000),
        Happening::Ends(Ending::Shutdown),
        Happening::Pass(10),
        Happening::Sync,
        Happening::Pass(10),
    ];
    lives(Policy::Always, &story).expect("restarted");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_pod_ends_up_running_or_deleted(
        policy in prop_oneof![Just(Policy::Always), Just(Policy::OnFailure), Just(Policy::Never)],
        story in proptest::collection::vec(happening(), 1..40),
    ) {
        lives(policy, &story)?;
    }
}
