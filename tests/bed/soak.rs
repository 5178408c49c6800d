//! Tier `soak`: pods come and go, 16 at a time, while each of the four daemons is killed without warning again and again.
//! In the end nothing is left, and machines that stood by were not disturbed.
//!
//! `make test` churns a hundred pods, `make soak` a thousand. What is killed when comes from fixed numbers, counted in calls
//! that have ended and not in time.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use proto::cri::{
    ContainerConfig, ContainerState, ListPodSandboxRequest, PodSandboxConfig, PodSandboxFilter, PodSandboxState,
    PodSandboxStateValue,
};
use tests::case::{Bed, Case};
use tests::command::sh;
use tests::cri::{self, Cri};
use tests::daemon::Daemon;
use tests::node::Node;
use tests::numbers::Numbers;
use tests::pings::Pings;
use tests::runner;
use tests::wait::wait_for;
use tests::world::World;
use tonic::Code;

pub(crate) const CASES: &[Case] = &[Case {
    name: "soak::a_hundred_pods_come_and_go_while_daemons_are_killed",
    deadline: Duration::from_secs(600),
    run: |bed| soak(bed, 100).map(drop),
}];

const THOUSAND_DEADLINE: Duration = Duration::from_secs(3600);
const AT_A_TIME: usize = 16;
/// Every so many pods one has a machine.
const MACHINE_EVERY: usize = 20;
/// A kill after so many calls, at least and at most.
const CALLS_BETWEEN_KILLS: (usize, usize) = (5, 25);
/// What kubelet would try again for all its life.
const POD_DEADLINE: Duration = Duration::from_secs(240);
/// How long a machine may take to run while daemons are killed.
const MACHINE_DEADLINE: Duration = Duration::from_secs(240);
const SETTLE_DEADLINE: Duration = Duration::from_secs(90);
const GRACE: Duration = Duration::from_secs(60);
/// The label of the pods that come and go.
const LABEL: (&str, &str) = ("virtlet.cloud/bed", "soak");

/// `bed soak`: the long run, in view.
///
/// # Errors
/// When something is left, or a machine that stood by was disturbed.
pub(crate) fn in_view() -> Result<()> {
    runner::in_view(&["soak-inside"], THOUSAND_DEADLINE)
}

/// The long run, inside.
///
/// # Errors
/// See [`in_view`].
pub(crate) fn inside(dir: &Path) -> Result<()> {
    runner::inside(dir, |bed| {
        let kills = soak(bed, 1000)?;
        eprintln!("1,000 pods came and went, daemons were killed {kills} times, and nothing is left");
        Ok(())
    })
}

/// How often a daemon was killed.
fn soak(bed: &Bed, pods: usize) -> Result<usize> {
    let mut node = Node::start(bed)?;
    let image = node.pull(bed, "tiny.qcow2")?;
    let before = World::look()?;
    let standing = [node.boot_vm(bed, "standing-1", "")?, node.boot_vm(bed, "standing-2", "")?];
    let machines = qemus()?;
    ensure!(machines.len() == standing.len(), "machines before: {machines:?}");
    let pings = standing.iter().map(|vm| Pings::start(&bed.dir, vm.ip)).collect::<Result<Vec<_>>>()?;
    pings.iter().try_for_each(|pings| pings.wait_answers(3))?;

    let container = cri::container(&image, [].into());
    let logs = bed.dir.join("podlogs");
    let kills = churn(&mut node, pods, &container, &logs)?;

    node.wait_ready()?;
    wait_for("end of all pods that came and went", SETTLE_DEADLINE, || {
        let left = listed(&node.cri, "")?;
        left.iter().try_for_each(|(sandbox, _)| node.cri.remove_sandbox(sandbox))?;
        Ok(left.is_empty().then_some(()))
    })?;
    pings.iter().try_for_each(|pings| pings.wait_answers(3))?;
    pings.into_iter().try_for_each(Pings::stop_and_count_lost)?;
    wait_for("machines as before", SETTLE_DEADLINE, || Ok((qemus()? == machines).then_some(())))
        .with_context(|| format!("there were {machines:?}, and now {:?}", qemus()))?;
    for vm in &standing {
        ensure!(node.cri.state(&vm.container)? == ContainerState::ContainerRunning, "a machine that stood by is off");
        vm.info().context("a guest that stood by")?;
        node.remove_vm(vm, GRACE)?;
    }
    fs::remove_dir_all(logs)?;
    // What libvirtd makes of its own in a start, it forgets if it is killed before the machine is on its record. A cgroup with a
    // process in it cannot be removed.
    sh("find /sys/fs/cgroup -depth -type d -path */machine/qemu-* -exec rmdir {} +")?;
    // Daemons are new processes, and libvirtd writes its status files anew.
    let libvirts = ["file /run/libvirt/qemu/channel/", "file /var/lib/libvirt/qemu/domain-", "process "];
    // What it was writing, or about to remove, when it was killed.
    let half_written = |thing: &str| {
        thing.starts_with("file /run/libvirt/qemu/") && (thing.ends_with(".new") || thing.ends_with(".pid"))
    };
    before.assert_same_but(|thing| {
        thing == "link cni0" || half_written(thing) || libvirts.iter().any(|own| thing.starts_with(own))
    })?;
    Ok(kills)
}

/// All lives of all pods, and the kills meanwhile; how many there were.
fn churn(node: &mut Node, pods: usize, container: &ContainerConfig, logs: &Path) -> Result<usize> {
    let Node { libvirt, net, controld, cri, .. } = node;
    let (calls, lanes) = (AtomicUsize::new(0), AtomicUsize::new(AT_A_TIME));
    let mut daemons =
        [("controld", controld), ("tapmanager", &mut net.tapmanager), ("libvirtd", &mut libvirt.libvirtd)]
            .into_iter()
            .chain([("virtlogd", &mut libvirt.virtlogd)])
            .collect::<Vec<_>>();
    thread::scope(|scope| {
        let (cri, calls, lanes) = (&*cri, &calls, &lanes);
        let lane = |lane: usize| {
            scope.spawn(move || {
                let lives = (lane..pods).step_by(AT_A_TIME).map(|n| Life { n, cri, calls, container, logs });
                let lived = lives.into_iter().try_for_each(|life| life.live());
                lanes.fetch_sub(1, Ordering::SeqCst);
                lived
            })
        };
        let running: Vec<_> = (0..AT_A_TIME).map(lane).collect();
        let killed = kill_again_and_again(&mut daemons, calls, lanes);
        let lived = running.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a client panicked"))?);
        lived.collect::<Result<Vec<()>>>()?;
        let killed = killed?;
        ensure!(killed >= pods / CALLS_BETWEEN_KILLS.1, "only {killed} kills among {pods} pods");
        Ok(killed)
    })
}

/// Kills one daemon after the other, in an order of fixed numbers, until no lane is left; how many it killed.
fn kill_again_and_again(
    daemons: &mut [(&str, &mut Daemon)],
    calls: &AtomicUsize,
    lanes: &AtomicUsize,
) -> Result<usize> {
    let mut numbers = Numbers::of(0x9e37_79b9);
    let mut kills = 0;
    loop {
        let (least, most) = CALLS_BETWEEN_KILLS;
        let due = calls.load(Ordering::SeqCst) + least + numbers.below(most - least);
        let over = wait_for("further calls", POD_DEADLINE, || {
            let over = lanes.load(Ordering::SeqCst) == 0;
            Ok((over || calls.load(Ordering::SeqCst) >= due).then_some(over))
        })?;
        if over {
            return Ok(kills);
        }
        let victim = numbers.below(daemons.len());
        let (name, daemon) = daemons.get_mut(victim).context("no such daemon")?;
        daemon.still_runs().with_context(|| format!("before the kill of {name}"))?;
        daemon.kill9()?;
        daemon.start_again()?;
        kills += 1;
    }
}

/// One pod from its first sandbox to its removal, as kubelet goes about it: what fails is tried again.
struct Life<'a> {
    n: usize,
    cri: &'a Cri,
    calls: &'a AtomicUsize,
    container: &'a ContainerConfig,
    logs: &'a Path,
}

impl Life<'_> {
    fn live(&self) -> Result<()> {
        let mut pod = self.pod()?;
        let uid = uid(&pod);
        self.sandbox(&mut pod)?;
        if self.n.is_multiple_of(MACHINE_EVERY) {
            self.machine(&mut pod)?;
        }
        wait_for(&format!("removal of pod {}", self.n), POD_DEADLINE, || {
            let Ok(there) = listed(self.cri, &uid) else { return Ok(None) };
            for (sandbox, _) in &there {
                let _tried_again = self.counted(|cri| cri.remove_sandbox(sandbox));
            }
            Ok(there.is_empty().then_some(()))
        })
    }

    /// The pod's sandbox once it is ready: the one that is there, or the next attempt.
    fn sandbox(&self, pod: &mut PodSandboxConfig) -> Result<String> {
        let uid = uid(pod);
        wait_for(&format!("sandbox of pod {}", self.n), POD_DEADLINE, || {
            if let Ok(sandbox) = self.counted(|cri| cri.run_sandbox(pod)) {
                return Ok(Some(sandbox));
            }
            // kubelet lists what there is of the pod and goes on with a sandbox that is ready.
            let Ok(there) = listed(self.cri, &uid) else { return Ok(None) };
            if let Some((ready, _)) = there.iter().find(|(_, ready)| *ready) {
                return Ok(Some(ready.clone()));
            }
            for (sandbox, _) in &there {
                let _tried_again = self.counted(|cri| cri.remove_sandbox(sandbox));
            }
            pod.metadata.get_or_insert_default().attempt += 1;
            Ok(None)
        })
    }

    /// Has the pod's machine run. What does not start is followed by a container of the next attempt.
    fn machine(&self, pod: &mut PodSandboxConfig) -> Result<()> {
        let mut last = None;
        let mut attempt = 0;
        let mut made = Vec::new();
        let ran = wait_for("machine that runs", MACHINE_DEADLINE, || {
            let sandbox = self.sandbox(pod)?;
            match self.try_machine(&sandbox, pod, attempt, &mut made) {
                Ok(()) => Ok(Some(())),
                Err(error) => {
                    last = Some(error);
                    attempt += 1;
                    Ok(None)
                }
            }
        });
        let last_error = || last.map_or_else(|| "there was no attempt".to_owned(), |error| format!("{error:#}"));
        ran.with_context(|| {
            format!("machine of pod `soak-{}` after {attempt} attempts, last: {}", self.n, last_error())
        })
    }

    /// Creates and starts one container. What runs counts, also if its start was answered with an error.
    fn try_machine(&self, sandbox: &str, pod: &PodSandboxConfig, attempt: u32, made: &mut Vec<String>) -> Result<()> {
        if made.iter().any(|earlier| matches!(self.cri.state(earlier), Ok(ContainerState::ContainerRunning))) {
            return Ok(());
        }
        let mut config = self.container.clone();
        config.metadata.get_or_insert_default().attempt = attempt;
        config.log_path = format!("vm_{attempt}.log");
        // A controld that was killed is back soon; until then nothing is refused.
        let container = wait_for("answer to the creation of the container", POD_DEADLINE, || {
            match self.counted(|cri| cri.create(sandbox, &config, pod)) {
                Err(away) if away.code() == Code::Unavailable => Ok(None),
                created => Ok(Some(created.context("container not created")?)),
            }
        })?;
        made.push(container.clone());
        let started = self.counted(|cri| cri.start(&container));
        let state = wait_for("state of the container", POD_DEADLINE, || Ok(self.cri.state(&container).ok()))?;
        if state == ContainerState::ContainerRunning {
            return Ok(());
        }
        started.context("container not started")?;
        Err(anyhow!("container started, and then {state:?}"))
    }

    fn pod(&self) -> Result<PodSandboxConfig> {
        let name = format!("soak-{}", self.n);
        let logs = self.logs.join(&name);
        fs::create_dir_all(&logs)?;
        let mut pod = cri::pod(&name, &logs);
        pod.metadata.get_or_insert_default().uid = format!("00000000-0000-4000-9000-{:012}", self.n);
        pod.labels.insert(LABEL.0.into(), LABEL.1.into());
        Ok(pod)
    }

    fn counted<T>(&self, call: impl FnOnce(&Cri) -> T) -> T {
        let answer = call(self.cri);
        self.calls.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

fn uid(pod: &PodSandboxConfig) -> String {
    pod.metadata.clone().unwrap_or_default().uid
}

/// Sandboxes of the soak, or those of one pod, and whether they are ready.
fn listed(cri: &Cri, uid: &str) -> Result<Vec<(String, bool)>> {
    let label_selector = [(LABEL.0.to_owned(), LABEL.1.to_owned())].into();
    let filter = PodSandboxFilter { label_selector, state: None::<PodSandboxStateValue>, ..Default::default() };
    let request = ListPodSandboxRequest { filter: Some(filter) };
    let answer = cri.call(|mut client| async move { client.list_pod_sandbox(request).await })?;
    let of_pod = answer
        .items
        .into_iter()
        .filter(|item| uid.is_empty() || item.metadata.as_ref().is_some_and(|metadata| metadata.uid == uid));
    Ok(of_pod.map(|item| (item.id.clone(), item.state() == PodSandboxState::SandboxReady)).collect())
}

/// The processes of all running domains.
fn qemus() -> Result<Vec<String>> {
    let mut pids = Vec::new();
    for entry in fs::read_dir("/run/libvirt/qemu")? {
        let path = entry?.path();
        let of_machine = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("virtlet-"));
        if of_machine && path.extension().is_some_and(|extension| extension == "pid") {
            // libvirtd removes the file with the machine, and leaves it if it is killed while it stops that.
            let Ok(pid) = fs::read_to_string(path) else { continue };
            if Path::new("/proc").join(pid.trim()).exists() {
                pids.push(pid);
            }
        }
    }
    pids.sort();
    Ok(pids)
}
