//! The start of a machine, step by step, and the way back.
//!
//! Order: the image is on the volume that is the root disk, if one is -> what the seed needs of the cluster's API is read -> the turn to
//! start a machine -> console directory and log (so that nothing is lost from power-on) -> seed -> what is shared with the guest is
//! written down -> tapmanager is told who QEMU is and arms the pod -> define, with the token in the machine's environment -> libvirt is
//! given the keys of the machine's Ceph disks, starts it, and is made to forget the keys -> tapmanager tells which process has come with
//! the token -> QEMU is moved into the pod's cgroup -> the
//! seed is unlinked, QEMU has it open. A definition is made anew at every start, because the token is. The turn comes before that because
//! it may be long in coming: the token lapses, and libvirt shows it to whoever may read from it.
//!
//! A machine whose guest goes on from a checkpoint is started by a restore in place of that, with the same description, and its guest runs last
//! ([`checkpoint`]).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Chain, off_reactor};
use proto::tap::{Nic, PciAddress, PodNet, QemuUser};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::Resources;
use vmspec::annotations::PodAnnotations;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{MachinePlan, Passed, PassedDevice};
use vmspec::seed::{Objects, Wishes, guest_disks};

use super::checkpoint;
use super::gate;
use super::parts::libvirt_log;
use super::qemu;
use super::slots::Slots;
use super::tally::WarmStart;
use super::uses::Uses;
use crate::container::resources::confinement;
use crate::disks::{emptydir, flexvolume, growth, now, persistent, volume_disks};
use crate::files::{io_failed, remove};
use crate::guest::console::follow::{Follower, make_log};
use crate::guest::console::scribe::{Qemu, Scribe};
use crate::guest::console::{COMMAND_END, COMMAND_LOG, SERIAL_LOG};
use crate::guest::{agents, screen, seed, share};
use crate::hypervisor::Beginning;
use crate::model::domain::{DomainSpec, Hostdev, NicPlace, Shared, WrapperEnv};
use crate::model::{Container, Sandbox, SandboxState, Warm, domain};
use crate::store::moments::{Of, Phase};
use crate::tap::Armed;
use crate::volumes::{make_dir, uefi_variables};

/// What a machine writes that is for no command; the first goes to the pod's log.
const SERIAL_FILES: &[&str] = &[SERIAL_LOG];
/// What one writes that is for a command.
const COMMAND_FILES: &[&str] = &[COMMAND_LOG, COMMAND_END];

/// Starts the machine and the copying of its console, until `unwanted` is cancelled.
///
/// What a failed start may have left is for the caller to clear away.
pub(super) async fn machine(
    uses: &Arc<Uses>,
    container: &Container,
    unwanted: &CancellationToken,
) -> Result<Option<Follower>> {
    let key = match (&container.warm, &container.restore) {
        (Some(Warm::Begins(key)), Some(_)) => Some(key),
        _ => None,
    };
    let error = match begun(uses, container, unwanted).await {
        Err(error) if !unwanted.is_cancelled() => error,
        begun => {
            if begun.is_ok() {
                tally(uses, container, if key.is_some() { WarmStart::Begun } else { WarmStart::Booted });
            }
            return begun;
        }
    };
    let Some(key) = key else { return Err(error) };
    tracing::warn!(error = %Chain(&error), "the guest does not begin with a checkpoint; it boots");
    gate::distrust(uses, key, &error).await;
    uses.hypervisor.clear(container.machine.id.uuid()).await?;
    uses.agents.forget(container.machine.id);
    checkpoint::forget(&container.machine).await?;
    let boots = Container { restore: None, ..container.clone() };
    // Whoever finds it finds a machine that boots.
    uses.store.put_container(boots.clone()).await?;
    let begun = begun(uses, &boots, unwanted).await?;
    tally(uses, container, WarmStart::Failed);
    Ok(begun)
}

/// Counts how a VM has begun, if its runtime handler has warm starts and it goes on from no other checkpoint.
fn tally(uses: &Uses, container: &Container, how: WarmStart) {
    if container.restore.is_some() && how == WarmStart::Booted {
        return;
    }
    let sandbox = uses.store.sandbox(&container.sandbox);
    if sandbox.is_some_and(|sandbox| uses.config.handler(&sandbox.config.runtime_handler).defaults.warm) {
        uses.checkpoints.tally().warm_start(how);
    }
}

/// The same, as it is on record.
async fn begun(uses: &Arc<Uses>, container: &Container, unwanted: &CancellationToken) -> Result<Option<Follower>> {
    let during = |phase| uses.store.moments().begin(Of::Machine(container.machine.id), phase);
    let sources = during(Phase::Sources);
    let root = persistent::ready(&uses.disks, container, unwanted).await?;
    let root = until(unwanted, volume_disks::ready(&container.machine)).await?.or(root);
    // Before the turn: others are not to wait for the cluster's API.
    let said = said(uses, container, unwanted).await?;
    sources.done();
    let goes_on = container.restore.is_some();
    let turn = async {
        if goes_on { uses.hypervisor.wake_turn(unwanted).await } else { uses.hypervisor.start_turn(unwanted).await }
    };
    let turn = during(Phase::Turn).over(turn).await?;
    let prepare = during(Phase::Prepare);
    let sandbox = sandbox_of(uses, container)?;
    if sandbox.state != SandboxState::Ready {
        return Err(Error::new(Kind::State, format!("sandbox `{}` was stopped", sandbox.id)));
    }
    let net = sandbox.net.as_ref().ok_or_else(no_network)?;
    let qemu = uses.qemu_user().await?;
    make_dir(&uses.console_dir(container), 0o755)
        .map_err(|cause| Error::because(Kind::Internal, "console directory not made", cause))?;
    // Of a start that failed.
    let end = uses.console_dir(container).join(COMMAND_END);
    remove(&end).map_err(|cause| io_failed("end of an earlier start not removed", cause))?;
    let follower = follow(uses, container, false).await.map_err(|cause| io_failed("pod's log not opened", cause))?;
    let follower = follower.map(|follower| noted(uses, container, follower));

    let started = async {
        let instance = root.and_then(|root| root.uuid);
        let seed = write_seed(uses, container, said, sandbox.clone(), qemu, instance).await?;
        let files = write_files(uses, container, qemu).await?;
        let share = prepare_share(uses, container).await?;
        prepare_screen(uses, container, qemu).await?;
        let looked = volume_disks::work_on(&container.machine, volume_disks::DEADLINE, |plan| {
            now::all(&plan.disks, &plan.hardware)
        });
        let disks = until(unwanted, looked).await?;
        // Says who QEMU is at every start: tapmanager may have lost its state directory since.
        let features = uses.hypervisor.features().await?;
        let iommufd = net.vfio().next().is_some().then_some(features.iommufd);
        let Armed { token, hostdevs } = uses.tap.arm(sandbox.id.clone(), qemu, iommufd).await?;
        let passed = &container.machine.passed;
        let slots = Slots::of(net, passed.devices.len(), &container.machine.hardware.described)?;
        let of_nics = passed_through(net, &hostdevs, &slots);
        let locked_memory = locked_memory(net, &of_nics)?;
        let hostdevs = of_nics.into_iter().chain(allocated(passed, &slots)).collect();
        let spec = DomainSpec {
            plan: container.machine.clone(),
            sandbox: sandbox.id.to_string(),
            pod_uid: sandbox.config.uid.clone(),
            instance: uses.instance,
            accel: uses.accel.get().await,
            vmwrapper: uses.config.vmwrapper.clone(),
            env: WrapperEnv {
                handoff: uses.config.handoff_socket(),
                token,
                emulator: uses.config.emulator.clone(),
                nics: slots.nics,
                deadline: uses.config.machine.handoff_deadline,
            },
            seed: seed.disk,
            files,
            firmware: seed.firmware,
            share,
            root,
            disks,
            console_socket: uses.console_socket(container.machine.id),
            qga_socket: agents::qemu_socket(&agents::dir(&uses.config), container.machine.id),
            agent_socket: agents::our_socket(&agents::dir(&uses.config), container.machine.id),
            screen_socket: screen::socket(&uses.config, container.machine.id),
            console_log: uses.console_dir(container).join(SERIAL_LOG),
            command_log: uses.console_dir(container).join(COMMAND_LOG),
            command_end: end,
            uefi_variables: uefi_variables(&container.machine.root.overlay),
            pvpanic_pci: features.pvpanic_pci,
            waits: container.warm.is_some(),
            memory_nodes: container.config.resources.as_ref().and_then(Resources::memory_nodes),
            locked_memory,
            hostdevs,
        };
        // The emulator may have been replaced since the last start.
        uses.accel.refresh_wrapper(&uses.config).await;
        let xml = domain::xml(&spec)
            .map_err(|cause| Error::because(Kind::Invalid, "the machine cannot be described to libvirt", cause))?;
        confinement::prepare(uses, container).await?;
        prepare.done();
        let description = goes_on.then(|| xml.clone());
        during(Phase::Define).over(uses.hypervisor.define(xml)).await?;
        let opened = volume_disks::work_on(&container.machine, volume_disks::DEADLINE, |plan| {
            let mut files = emptydir::opened(&plan.disks, &plan.hardware)?;
            files.extend(volume_disks::opened(plan)?);
            Ok(files)
        });
        let files = until(unwanted, opened).await?;
        uses.hypervisor.give_files(container.machine.id.uuid(), files).await?;
        let log = libvirt_log(uses, container);
        let beginning = beginning(uses, container).await?;
        let launch = during(Phase::Launch);
        let starting = async {
            match description {
                Some(description) => checkpoint::launch(uses, container, description, (turn, &log), unwanted).await,
                None => uses.hypervisor.start(turn, container.machine.id.uuid(), &log, beginning, unwanted).await,
            }
        };
        if let Err(error) = flexvolume::with_keys(&uses.disks, container, starting).await {
            return Err(with_virtiofsds_words(uses, container, error).await);
        }
        launch.done();
        let admit = during(Phase::Admit);
        let admitted = async {
            if let Err(error) = qemu::learn(uses, container).await {
                tracing::debug!(error = %Chain(&error), "tapmanager does not tell which process is QEMU");
            }
            confinement::admit(uses, container, container.config.resources.as_ref()).await
        };
        // systemd may be long about it.
        tokio::select! {
            admitted = admitted => admitted?,
            () = unwanted.cancelled() => return Err(stopped()),
        }
        admit.done();
        if goes_on {
            // Held to its resources by now.
            let gone_on = unwanted.run_until_cancelled(checkpoint::go_on(uses, container)).await;
            gone_on.unwrap_or_else(|| Err(stopped()))?;
        }
        if seed::is_aside(&uses.config, container.machine.id) {
            return Ok(());
        }
        seed::remove(&uses.config, container.machine.id).map_err(|cause| io_failed("seed not removed", cause))
    };
    match started.await {
        Ok(()) => Ok(follower),
        Err(error) => {
            if let Some(follower) = follower {
                follower.finish(false).await;
            }
            Err(error)
        }
    }
}

fn stopped() -> Error {
    Error::new(Kind::State, "the machine was stopped while it was being started")
}

/// Has it noted when the machine has printed its first byte.
fn noted(uses: &Arc<Uses>, container: &Container, mut follower: Follower) -> Follower {
    if let Some(heard) = follower.heard() {
        let (moments, machine) = (uses.store.moments().clone(), container.machine.id);
        tokio::spawn(async move {
            // It fails if the copy ends before.
            if heard.await.is_ok() {
                moments.reached(machine, Phase::Output, true);
            }
        });
    }
    follower
}

/// Looks at the machine's disks until `unwanted` is cancelled: those in volumes may hang.
async fn until<T>(unwanted: &CancellationToken, look: impl Future<Output = Result<T>>) -> Result<T> {
    let stopped = || Error::new(Kind::State, "the machine was stopped while its disks were looked at");
    unwanted.run_until_cancelled(look).await.unwrap_or_else(|| Err(stopped()))
}

/// Makes the disks that are of files of the pod's volumes.
async fn write_files(uses: &Arc<Uses>, container: &Container, qemu: QemuUser) -> Result<BTreeMap<String, PathBuf>> {
    let (uses, plan) = (uses.clone(), container.machine.clone());
    off_reactor(move || seed::disks::write(&uses.config, plan.id, &plan.disks, qemu)).await
}

/// Writes down what the guest sees of the pod's volumes, if it sees any; the directory that libvirt is told of.
async fn prepare_share(uses: &Arc<Uses>, container: &Container) -> Result<Option<Shared>> {
    let Some(share) = container.machine.share.clone() else { return Ok(None) };
    let (uses, container) = (uses.clone(), container.clone());
    let prepared = off_reactor(move || share::prepare(&uses.config, &container, &share)).await;
    prepared.map(Some).map_err(|cause| io_failed("the pod's volumes not made ready for the guest", cause))
}

/// Makes the place of the screen's socket, if there is a screen.
async fn prepare_screen(uses: &Arc<Uses>, container: &Container, qemu: QemuUser) -> Result<()> {
    if container.machine.hardware.extras.graphics.is_none() {
        return Ok(());
    }
    let (config, machine) = (uses.config.clone(), container.machine.id);
    let prepared = off_reactor(move || screen::prepare(&config, machine, qemu)).await;
    prepared.map_err(|cause| io_failed("place of the screen's socket not made", cause))
}

/// libvirt does not tell why virtiofsd ended.
async fn with_virtiofsds_words(uses: &Arc<Uses>, container: &Container, error: Error) -> Error {
    if container.machine.share.is_none() {
        return error;
    }
    let (config, domain) = (uses.config.clone(), container.machine.domain.clone());
    match off_reactor(move || share::said_last(&config, &domain)).await {
        Some(said) => {
            let what = format!("the machine did not start, and its file sharing daemon said: {said}");
            Error::because(error.kind(), what, error)
        }
        None => error,
    }
}

/// Those of the pod's NICs that libvirt passes through, each at its place.
fn passed_through(net: &PodNet, by_libvirt: &[PciAddress], slots: &Slots) -> Vec<Hostdev> {
    let hostdev = |(nic, place): (&Nic, &NicPlace)| {
        let device = nic.vfio()?.device;
        let hostdev = Hostdev { device: PassedDevice::Pci(device), place: *place, rom: false };
        by_libvirt.contains(&device).then_some(hostdev)
    };
    net.nics.iter().zip(&slots.nics).filter_map(hostdev).collect()
}

/// The devices that kubelet allocated, in slots that no NIC is in.
fn allocated(passed: &Passed, slots: &Slots) -> Vec<Hostdev> {
    let hostdev =
        |(slot, device): (&usize, &PassedDevice)| Hostdev { device: *device, place: NicPlace::at(*slot), rom: true };
    slots.devices.iter().zip(&passed.devices).map(hostdev).collect()
}

/// What QEMU may lock for devices that vmwrapper gives it; libvirt sees to that for its own. The kernel counts what iommufd
/// pins by user, and libvirt's QEMUs have one, but compares with the process's limit. So the limit is all memory of the
/// node; how much it really is, is the pod's cgroup's affair.
fn locked_memory(net: &PodNet, hostdevs: &[Hostdev]) -> Result<Option<u64>> {
    if net.vfio().count() == hostdevs.len() {
        return Ok(None);
    }
    let info = nix::sys::sysinfo::sysinfo()
        .map_err(|cause| io_failed("memory of the node not known", io::Error::from(cause)))?;
    Ok(Some(info.ram_total()))
}

/// Copies what the pod's log has to the pod's log, if the pod has one: the console, or the output of the machine's command. `is_running`
/// says that the machine was there before this process.
pub(super) async fn follow(uses: &Arc<Uses>, container: &Container, is_running: bool) -> io::Result<Option<Follower>> {
    let Some(sandbox) = uses.store.sandbox(&container.sandbox) else { return Ok(None) };
    let Some(log) = container.log_path(&sandbox.config) else { return Ok(None) };
    let prints_nothing = container.machine.hardware.described.devices.no_serial;
    if prints_nothing && container.machine.guest.command.is_none() {
        return off_reactor(move || make_log(&log)).await.map(|()| None);
    }
    let (watcher, dir, limit) = (uses.watcher.clone(), uses.console_dir(container), uses.config.machine.console_log);
    let is_for_command = container.machine.guest.command.is_some();
    let MachinePlan { id, domain, .. } = &container.machine;
    let scribe = Scribe::new(uses.consoles.clone(), id.to_string(), dir.clone());
    let (names, scribe) = if is_for_command {
        let qemu = Qemu { processes: uses.processes.clone(), domain: domain.clone(), id: id.uuid() };
        (COMMAND_FILES, scribe.of_command(qemu))
    } else {
        (SERIAL_FILES, scribe)
    };
    off_reactor(move || Follower::start(&watcher, &dir, names, log, limit, (Some(scribe), is_running))).await.map(Some)
}

/// The agent that a pod wants installed in its guest.
fn read_agent(program: &Path) -> Result<Vec<u8>> {
    std::fs::read(program).map_err(|cause| {
        let what = format!(
            "the pod wants the agent installed, and `{}` was not read; install `virtlet-agent` on the node or set \
             `guest_agent`",
            program.display()
        );
        Error::because(Kind::Invalid, what, cause)
    })
}

/// How the machine's guest begins.
pub(super) async fn beginning(uses: &Uses, container: &Container) -> Result<Beginning> {
    let (machine, sandbox) = (&container.machine, sandbox_of(uses, container)?);
    let net = sandbox.net.as_ref().ok_or_else(no_network)?;
    let described = &machine.hardware.described;
    let down = Slots::of(net, machine.passed.devices.len(), described)?.down;
    Ok(Beginning { growth: growth::at_start(container).await, down, paused: described.start_paused })
}

fn sandbox_of(uses: &Uses, container: &Container) -> Result<Arc<Sandbox>> {
    let sandbox = uses.store.sandbox(&container.sandbox);
    sandbox.ok_or_else(|| Error::new(Kind::NotFound, format!("no sandbox `{}`", container.sandbox)))
}

fn no_network() -> Error {
    Error::new(Kind::State, "the sandbox has no network")
}

/// What the pod says, with what it names of the cluster's API as that is now.
async fn said(uses: &Uses, container: &Container, unwanted: &CancellationToken) -> Result<(PodAnnotations, Objects)> {
    let annotations = PodAnnotations::parse(&container.machine_annotations)
        .map_err(|cause| Error::because(Kind::Invalid, "the pod cannot become a machine", cause))?;
    let sandbox = sandbox_of(uses, container)?;
    let objects = tokio::select! {
        read = uses.objects(&sandbox.config, &annotations) => read?,
        () = unwanted.cancelled() => return Err(Error::new(Kind::State, "the machine was stopped while its seed's sources were read")),
    };
    Ok((annotations, objects))
}

async fn write_seed(
    uses: &Uses,
    container: &Container,
    (annotations, objects): (PodAnnotations, Objects),
    sandbox: Arc<Sandbox>,
    qemu: QemuUser,
    instance: Option<Uuid>,
) -> Result<seed::Written> {
    let handler = uses.config.handler(&sandbox.config.runtime_handler);
    let net = sandbox.net.clone().ok_or_else(no_network)?;
    let (config, container) = (uses.config.clone(), container.clone());
    let disks = guest_disks(&container.machine.disks, &container.machine.hardware);
    off_reactor(move || {
        let agent = annotations.guest_agent.then(|| read_agent(&config.guest_agent)).transpose()?;
        let wishes = Wishes {
            sandbox: &sandbox.config,
            container: &container.config,
            annotations: &annotations,
            objects: &objects,
            handler: &handler,
            net: &net,
            share: container.machine.share.as_ref(),
            disks: &disks,
            instance,
        };
        let made = seed::assemble(wishes, agent.as_deref())?;
        seed::write(&config, container.machine.id, &made, container.warm.as_ref(), qemu)
    })
    .await
}
