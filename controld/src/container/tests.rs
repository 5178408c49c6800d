//! Tasks of containers on a node that is not there, with what goes wrong on a real one.

mod checkpoint;
pub(super) mod fake;
mod kubelet;
mod model;
mod pause;
mod restore;
mod update;

use std::time::Duration;

use tonic::codegen::http::HeaderMap;
use vmspec::error::Kind;
use vmspec::plan::{Cpus, Guest, Hardware, Layer, MachinePlan, Memory, RootDisk};
use vmspec::{ContainerConfig, ContainerId, MachineId};

use self::fake::{Domain, Fault, Node};
use crate::config::TracingConfig;
use crate::hypervisor::{Ending, HvEvent};
use crate::model::{CONTAINER_VERSION, Container, ContainerState, ExitReason};
use crate::trace::{self, Tracer};

const GRACE: Duration = Duration::from_secs(10);

/// A container of the one pod of these tests.
pub(crate) fn container(name: &str, attempt: u32) -> Container {
    let (id, machine) = (ContainerId::random(), MachineId::random());
    Container {
        version: CONTAINER_VERSION,
        id,
        sandbox: "pod".parse().expect("pod id"),
        config: ContainerConfig { name: name.into(), attempt, ..ContainerConfig::default() },
        image_id: "sha256:0".into(),
        image_handler: String::new(),
        machine: MachinePlan {
            passed: Default::default(),
            guest: Guest::default(),
            share: None,
            disks: Vec::new(),
            id: machine,
            domain: format!("vm-{machine}"),
            cpus: Cpus::fixed(1),
            memory: Memory::fixed(1 << 27),
            hardware: Hardware::default(),
            root: RootDisk {
                overlay: "/root.qcow2".into(),
                images: vec![Layer { path: "/base".into(), format: "raw".into() }],
                persistent: None,
                volume: None,
            },
            huge_page: None,
            smbios: None,
            cgroup: None,
        },
        machine_annotations: std::collections::BTreeMap::new(),
        state: ContainerState::Created,
        created_at: i64::from(attempt) + 1,
        started_at: 0,
        applied: None,
        boot: String::new(),
        process: None,
        pod_oom_kills: 0,
        exit: None,
        checkpoint: None,
        restore: None,
        warm: None,
        pause: None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_nobody_knows_the_end_of_is_unknown_until_its_machine_is_gone() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    // The define is answered; the start is not, and libvirt does not clear it away, twice.
    node.faults(&[Fault::None, Fault::NoReply, Fault::Refused, Fault::Refused]);
    let error = node.start(id).await.expect_err("no reply");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Uncertain, Some(Domain::On)));
    node.pass(3).await;
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None), "by the task's own clock");
    assert_eq!(node.reason(id), Some(ExitReason::StartError));
}

#[tokio::test(start_paused = true)]
async fn a_start_belongs_in_the_trace_of_its_call() {
    let config = TracingConfig { sampling_rate_per_million: 1_000_000, ..TracingConfig::default() };
    let (tracer, _exporter) = Tracer::start(Some(&config), "1.2.3");
    let span = tracer.begin("/runtime.v1.RuntimeService/StartContainer", &HeaderMap::new()).expect("sampled");
    for place in [None, Some(span.place().clone())] {
        let node = Node::new();
        let id = node.create(0).await.expect("created");
        trace::within(place.clone(), node.start(id)).await.expect("started");
        assert_eq!(node.is_traced(id), place.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_what_may_run_says_done_only_when_it_is_gone() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.faults(&[Fault::None, Fault::NoReply]);
    node.faults(&[Fault::Refused; 3]);
    node.start(id).await.expect_err("no reply");
    node.stop(id, GRACE).await.expect_err("libvirt refuses");
    assert_eq!(node.state(id), ContainerState::Uncertain);
    node.no_more_faults();
    node.stop(id, GRACE).await.expect("stopped");
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None));
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_an_ended_container_is_cleared_away() {
    for on_look in [true, false] {
        let node = Node::new();
        let id = node.create(0).await.expect("created");
        node.start(id).await.expect("started");
        node.ends(id, Ending::Shutdown);
        node.pass(1).await;
        assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None));
        node.set_domain(id, Domain::On);
        if on_look {
            node.actors().hear(&HvEvent::Resync);
            node.pass(1).await;
        } else {
            node.stop(id, GRACE).await.expect("stopped");
        }
        assert_eq!(node.domain(id), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_that_failed_is_repeated_without_a_new_connection() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    node.ends_unheard(id, Ending::Panicked);
    node.faults(&[Fault::Late, Fault::Refused]);
    node.actors().hear(&HvEvent::Resync);
    node.pass(60).await;
    assert_eq!(node.reason(id), Some(ExitReason::GuestPanicked));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_was_still_being_defined_when_controld_died_is_cleared_away() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.faults(&[Fault::Late]);
    let starting = node.starting(id);
    node.pass(1).await;
    let node = node.restart();
    node.pass(1).await;
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None));
    node.pass(fake::LATE.as_secs()).await;
    assert!(node.was_defined(id), "libvirt came to it");
    assert_eq!(node.domain(id), None);
    starting.abort();
}

#[tokio::test(start_paused = true)]
async fn an_end_that_cannot_be_written_stays_with_libvirt_until_it_is() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    node.disk_full(true);
    node.ends(id, Ending::Panicked);
    node.pass(1).await;
    assert_eq!(node.state(id), ContainerState::Exited, "kubelet is to see it all the same");
    assert_eq!(node.domain(id), Some(Domain::Off(Ending::Panicked)));
    node.stop(id, GRACE).await.expect("it is off");
    let node = node.restart();
    node.pass(1).await;
    assert_eq!(node.reason(id), Some(ExitReason::GuestPanicked), "libvirt still knew");
    node.disk_full(false);
    node.pass(60).await;
    assert_eq!((node.on_disk(id), node.domain(id)), (Some(ContainerState::Exited), None));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_told_with_what_the_guest_printed_last_and_other_ends_are_not() {
    let node = Node::new();
    for (attempt, ending) in [(0, Ending::Shutdown), (1, Ending::Failed), (2, Ending::Panicked)] {
        let id = node.create(attempt).await.expect("created");
        node.start(id).await.expect("started");
        node.ends(id, ending);
        node.pass(1).await;
        let words = format!("the guest's kernel panicked; see the console log, which ends:\nlast words of {id}");
        assert_eq!(node.message(id) == words, ending == Ending::Panicked, "{}", node.message(id));
        assert_eq!(node.message(id).contains("last words"), ending == Ending::Panicked, "{}", node.message(id));
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_oom_killed_if_the_kernel_has_killed_in_its_pod_since_its_start() {
    let mut node = Node::new();
    node.oom_kill();
    for (attempt, killed, reason) in [(0, false, ExitReason::QemuDied), (1, true, ExitReason::OomKilled)] {
        let id = node.create(attempt).await.expect("created");
        node.start(id).await.expect("started");
        node = node.restart();
        if killed {
            node.oom_kill();
        }
        node.ends(id, Ending::Failed);
        node.pass(1).await;
        assert_eq!(node.reason(id), Some(reason), "attempt {attempt}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_cannot_be_recorded_is_not_made() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.disk_full(true);
    let error = node.start(id).await.expect_err("not recorded");
    assert_eq!(error.kind(), Kind::Exhausted);
    assert!(!node.was_defined(id));
    assert_eq!((node.state(id), node.reason(id)), (ContainerState::Exited, Some(ExitReason::StartError)));
    node.disk_full(false);
    node.pass(60).await;
    assert_eq!(node.on_disk(id), Some(ContainerState::Exited));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_is_shown_running_and_recorded_when_there_is_room() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.full_after_puts(1);
    node.start(id).await.expect("started");
    assert_eq!((node.state(id), node.on_disk(id)), (ContainerState::Running, Some(ContainerState::Starting)));
    node.disk_full(false);
    node.pass(60).await;
    assert_eq!(node.on_disk(id), Some(ContainerState::Running));
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_takes_the_place_of_one_that_was_never_started() {
    let node = Node::new();
    let first = node.create(0).await.expect("created");
    let second = node.create(1).await.expect("created");
    assert_eq!((node.state(first), node.reason(first)), (ContainerState::Exited, Some(ExitReason::StartError)));
    node.start(first).await.expect_err("it has ended");
    node.start(second).await.expect("started");
    node.create(2).await.expect_err("it runs");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_waits_for_its_turn_is_given_up_by_a_stop() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.no_turns(true);
    let starting = node.starting(id);
    node.pass(1).await;
    assert_eq!(node.create(1).await.expect_err("being started").kind(), Kind::State);
    node.stop(id, GRACE).await.expect("stopped");
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None));
    starting.await.expect("answered").expect_err("given up");
}

#[tokio::test(start_paused = true)]
async fn an_old_container_that_was_never_started_starts_once_libvirt_is_back() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.libvirt(false);
    let node = node.restart();
    node.actors().hear(&HvEvent::Resync);
    // It could not be compared with libvirt, so that is due again while it is being started.
    node.pass(6).await;
    node.libvirt(true);
    node.no_turns(true);
    let starting = node.starting(id);
    node.pass(60).await;
    node.no_turns(false);
    starting.await.expect("answered").expect("started");
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Running, Some(Domain::On)));
}

#[tokio::test(start_paused = true)]
async fn a_console_that_could_not_be_followed_is_tried_again() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    let node = node.restart();
    node.no_console(3);
    node.pass(1).await;
    assert!(!node.is_followed(id), "the test is of a console that cannot be followed");
    node.pass(20).await;
    assert!(node.is_followed(id));
}

#[tokio::test(start_paused = true)]
async fn a_seed_that_a_killed_start_left_goes_once_the_machine_has_read_it() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    let starting = node.starting(id);
    while node.domain(id) != Some(Domain::On) {
        tokio::task::yield_now().await;
    }
    // Killed between libvirt's answer and the removal of the seed.
    let node = node.restart();
    node.coming_up(id, true);
    node.pass(10).await;
    assert_eq!((node.state(id), node.has_seed(id)), (ContainerState::Running, true), "QEMU has yet to open it");
    node.coming_up(id, false);
    node.pass(60).await;
    assert_eq!((node.state(id), node.has_seed(id)), (ContainerState::Running, false));
    starting.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_task_that_is_busy_to_tell_it_something() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.no_turns(true);
    let _starting = node.starting(id);
    node.pass(1).await;
    for _ in 0..100 {
        node.actors().hear(&HvEvent::Resync);
        node.actors().hear(&HvEvent::Lifecycle { id: node.machine(id), ending: None });
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_a_reboot_ended_says_so_however_late_libvirt_is_asked() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    let node = node.reboot("two");
    node.pass(60).await;
    assert_eq!(node.state(id), ContainerState::Running, "nobody could look yet");
    // This one is not the first to see the new boot.
    let node = node.restart();
    node.libvirt(true);
    node.pass(1).await;
    assert_eq!((node.state(id), node.reason(id)), (ContainerState::Exited, Some(ExitReason::NodeRebooted)));
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_panics_is_not_taken_for_done_and_the_next_one_stops() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    node.panics();
    let error = node.stop(id, Duration::ZERO).await.expect_err("panicked");
    assert_eq!(error.kind(), Kind::Internal, "kubelet takes a container that is not found for one that is stopped");
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Running, Some(Domain::On)));
    node.stop(id, Duration::ZERO).await.expect("stopped");
    assert_eq!((node.state(id), node.domain(id)), (ContainerState::Exited, None));
    node.remove(id).await.expect("removed");
    assert_eq!(node.wrong(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_ends_while_its_task_is_started_anew_has_ended() {
    let node = Node::new();
    let id = node.create(0).await.expect("created");
    node.start(id).await.expect("started");
    node.panics();
    node.actors().hear(&HvEvent::Resync);
    tokio::task::yield_now().await;
    node.ends(id, Ending::Panicked);
    node.pass(10).await;
    assert_eq!((node.state(id), node.reason(id)), (ContainerState::Exited, Some(ExitReason::GuestPanicked)));
}
