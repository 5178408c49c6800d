//! A running machine, written to a directory as it is at one instant: its memory and devices, and those of its disks that are the pod's
//! own. It runs on afterwards.
//!
//! A container's task calls [`write`] beside its other work, then [`let_run`] and [`clear`], and these two as well when it finds on record
//! that an earlier controld has not come to that. The checkpoint is on record before the guest is paused, and has a directory of its own
//! before it has a file: what is not whole is removed, and a guest that is paused for it goes on.
//!
//! - [`plan`]: what a checkpoint has, and which machines cannot have one. Pure.
//! - [`place`]: the directory, and which ones are none. [`super::places`] says who works in which, and [`super::tally`] counts.
//! - [`copy`]: a disk's content without its holes, and its digest.
//! - [`manifest`]: what the files are of. [`cpu`]: what of the node's own CPU is in there; [`devices`]: what the guest finds beside.
//!
//! [`waking`] is the way back: a pod that goes on from one.
//! - [`source`]: the directory, as it is read.
//! - [`fit`]: whether a checkpoint can go on as a machine of this node. Pure.
//! - [`overlay`]: the root disk's layer, judged.
//! - [`memory`]: the file of the memory, until the guest runs.
//! - [`going_on`]: the start from it.

mod copy;
mod cpu;
mod devices;
mod fit;
mod going_on;
mod manifest;
mod memory;
mod overlay;
mod place;
mod plan;
mod source;
mod waking;

use std::error::Error as StdError;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use common::off_reactor;
use proto::tap::PodNet;
use rustix::fs::statvfs;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::Accelerator;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Applied, Hardware, MachinePlan};

pub(super) use self::going_on::{go_on, launch};
use self::manifest::{DiskMade, Emulator, Machine, Manifest, NicMade, Node};
pub(super) use self::memory::{forget, hand_over, memory_of};
use self::place::Files;
pub(super) use self::plan::which;
pub use self::waking::Waking;
pub(super) use self::waking::{Wanted, open};
use super::places::{Open, Place, given_up};
use super::qemu;
use super::tally::Outcome;
use super::uses::Uses;
use crate::guest::seed;
use crate::hypervisor::process::STATUS_DIR;
use crate::hypervisor::{DomainPhase, NotSaved, Stood};
use crate::model::{CheckpointNote, Container, PodName};
use crate::store::is_disk_full;

/// How long the directory may take to be looked at, and to have its files made or removed.
const LOOK: Duration = Duration::from_secs(10);
/// How long a look waits for earlier ones.
const PLACE: Duration = Duration::from_secs(5);
/// How long a checkpoint waits for others. Its guest runs meanwhile.
const TURN: Duration = Duration::from_secs(60);
/// What a pass over all memory or all disks may take besides, in which they are written, copied, or flushed and hashed.
const PASS: Duration = Duration::from_secs(300);
/// The slowest disk or file server that is waited for, in bytes a second.
const SLOWEST: u64 = 16 << 20;
/// A disk with fewer bytes left is full: libvirt writes a MiB at a time.
const FULL: u64 = 2 << 20;
/// What devices and the head of the file may take in it: most is a screen's memory.
const DEVICES: u64 = 512 << 20;
/// How often the size of the memory's file is looked at while QEMU writes it.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// What stat(2) counts, in bytes.
const BLOCK: u64 = 512;
const NO_ANSWER: &str = "the checkpoint's directory did not answer";

/// Where the manifest of a whole checkpoint in a directory is.
pub(super) fn manifest_in(dir: &Path) -> PathBuf {
    dir.join(place::WHOLE).join(manifest::NAME)
}

/// The digest of the image that a whole checkpoint in a directory is of. Blocks.
///
/// # Errors
/// When there is none that can be read.
pub(super) fn image_in(dir: &Path) -> Result<String> {
    Ok(source::manifest_of(File::open(manifest_in(dir)))?.image_id)
}

/// What is known before the guest is paused.
struct Begun {
    place: Place,
    files: Open<Files>,
    net: Option<PodNet>,
    node: Node,
    /// Where libvirt writes the memory.
    file: PathBuf,
    /// Most bytes of the memory, and of the disks: without holes, and with them.
    memory: u64,
    data: u64,
    all: u64,
}

/// Whether a machine can be written to a directory; the directory, without links. Nothing is changed.
///
/// # Errors
/// When the machine has what no checkpoint can have, or not its seed yet, or the directory is not one that may be written to; all that is wrong is told.
pub(super) async fn judge(uses: &Arc<Uses>, container: &Container, path: &str) -> Result<PathBuf> {
    plan::of(container, net_of(uses, container).as_ref())?;
    let (config, machine) = (uses.config.clone(), container.machine.id);
    if !off_reactor(move || seed::is_in_place(&config, machine)).await {
        let what =
            "the guest has not come past the gate of warm starts yet, and has no seed so far; try again in a moment";
        return Err(Error::new(Kind::Unavailable, what));
    }
    let config = &uses.config;
    let ours = [config.state_dir.clone(), config.run_dir.clone(), config.images_dir()];
    let (way, named, wanted) = (uses.checkpoints.way(path, PLACE).await?, path.to_owned(), CancellationToken::new());
    let dir = way.work(NO_ANSWER, LOOK, &wanted, move || place::way(&named)).await?;
    drop(way);
    // It counts where it leads.
    let place = uses.checkpoints.place(dir.clone(), vec![dir.clone().into()], PLACE).await?;
    place.work(NO_ANSWER, LOOK, &wanted, move || place::judge(&dir, &ours)).await
}

/// Writes a machine that runs to a directory that was judged, until `unwanted` gives it up: whether the guest is known to go on then, and
/// whether there is a checkpoint. Else files of it may be there until [`clear`]. `goes_on` is cancelled once the guest runs again, before its
/// files are flushed and hashed.
pub(super) async fn write(
    uses: &Arc<Uses>,
    container: &Container,
    note: &CheckpointNote,
    unwanted: &CancellationToken,
    goes_on: &CancellationToken,
) -> (bool, Result<()>) {
    // Threads and calls that are late end with this.
    let _over = unwanted.clone().drop_guard();
    let making = uses.checkpoints.tally().begin(note.id);
    let (runs, written) = made(uses, container, note, unwanted, goes_on).await;
    making.ended(match &written {
        Ok(bytes) => Outcome::Written(*bytes),
        Err(_) if unwanted.is_cancelled() => Outcome::GivenUp,
        Err(_) => Outcome::Failed,
    });
    (runs, written.map(drop))
}

/// The same, with the bytes of the files of a checkpoint.
async fn made(
    uses: &Arc<Uses>,
    container: &Container,
    note: &CheckpointNote,
    unwanted: &CancellationToken,
    goes_on: &CancellationToken,
) -> (bool, Result<u64>) {
    let begun = match begin(uses, container, note, unwanted).await {
        Ok(begun) => begun,
        Err(error) => return (true, Err(error)),
    };
    match cut(uses, container, begun, unwanted).await {
        Ok((begun, stood)) => {
            goes_on.cancel();
            (true, finish(uses, container, begun, stood.since, unwanted).await)
        }
        Err(NotSaved { error, may_stand }) => (!may_stand, Err(error)),
    }
}

/// Makes all files.
async fn begin(
    uses: &Arc<Uses>,
    container: &Container,
    note: &CheckpointNote,
    unwanted: &CancellationToken,
) -> Result<Begun> {
    let net = net_of(uses, container);
    let parts = plan::of(container, net.as_ref())?;
    let node = node(uses, &container.machine.hardware).await?;
    let sources = parts.iter().filter_map(|part| part.path.parent());
    let dirs = sources.chain([&*note.dir]).map(Path::to_owned).collect();
    let had = unwanted.run_until_cancelled(uses.checkpoints.place(note.id.to_string(), dirs, TURN)).await;
    let place = had.unwrap_or_else(|| Err(given_up()))?;
    let unknown =
        |cause| Error::because(Kind::State, "the machine's disks not compared with what QEMU has open", cause);
    qemu::find(uses, container).await.map_err(unknown)?;
    let (dir, id, token) = (note.dir.clone(), note.id, unwanted.clone());
    let (processes, domain, machine) =
        (uses.processes.clone(), container.machine.domain.clone(), container.machine.id.uuid());
    let begin = move || {
        let names: Vec<_> = parts.iter().filter_map(|part| part.path.file_name()).collect();
        let open = processes.files(Path::new(STATUS_DIR), &domain, machine, &names);
        let open = open.map_err(|cause| failed("files that QEMU has open not looked at", cause))?.unwrap_or_default();
        let files = place::begin(&dir, id, parts, &open, &token)?;
        let bytes = files.bytes().map_err(|cause| failed("the machine's disks not looked at", cause))?;
        Ok::<_, Error>((files, bytes))
    };
    let (files, (data, all)) = place.work(NO_ANSWER, LOOK, unwanted, begin).await?;
    let memory = container.machine.memory.max.max(container.applied().memory);
    Ok(Begun { file: files.memory(), files: place.keep(files), place, net, node, memory, data, all })
}

/// Writes memory, devices and disks as they are at one instant; when the guest has stood still for that.
async fn cut(
    uses: &Uses,
    container: &Container,
    begun: Begun,
    unwanted: &CancellationToken,
) -> Result<(Begun, Stood), NotSaved> {
    let id = container.machine.id.uuid();
    let Begun { place, files, file, .. } = begun;
    let token = unwanted.child_token();
    let still = token.clone();
    let had = unwanted.run_until_cancelled(uses.checkpoints.write(&file, TURN)).await;
    let turn = had.unwrap_or_else(|| Err(given_up())).map_err(|error| NotSaved { error, may_stand: false })?;
    // It goes with libvirt's call, whoever waits for that.
    let copy = place.holding(move || {
        let _turn = turn;
        files.files()?.copy(&still).map_err(|cause| failed("the machine's disks not copied", cause))?;
        Ok::<_, Error>(files)
    });
    let deadline = pass(begun.memory.saturating_add(begun.data));
    let saved = {
        let mut saving = pin!(uses.hypervisor.save(id, &file, deadline, &token, copy));
        tokio::select! {
            saved = &mut saving => saved,
            error = overgrown(&place, &file, most(begun.memory)) => {
                token.cancel();
                let may_stand = saving.await.is_err_and(|not_saved| not_saved.may_stand);
                Err(NotSaved { error, may_stand })
            }
        }
    };
    let (stood, files) = match saved {
        // Whoever gave it up waits for no directory.
        Err(NotSaved { error, may_stand: false }) if !unwanted.is_cancelled() => {
            return Err(NotSaved { error: of_full_disk(&place, &file, error).await, may_stand: false });
        }
        saved => saved?,
    };
    let paused = Duration::from_nanos(stood.until.saturating_sub(stood.since).unsigned_abs());
    uses.checkpoints.tally().paused(paused);
    tracing::info!(paused_ms = paused.as_millis(), "the guest was paused for its checkpoint, and runs on");
    Ok((Begun { place, files, file, ..begun }, stood))
}

/// libvirt tells by words alone that a disk was full, so it is looked at.
async fn of_full_disk(place: &Place, file: &Path, error: Error) -> Error {
    let path = file.to_owned();
    let look = off_reactor(place.holding(move || statvfs(&path)));
    match timeout(LOOK, look).await {
        Ok(Ok(found)) if found.f_bfree.saturating_mul(found.f_frsize) < FULL => {
            Error::because(Kind::Exhausted, "the disk is full, or was too small for the machine's memory", error)
        }
        _ => error,
    }
}

/// Waits until a file is larger than it may be: libvirt bounds nothing of what a QEMU writes there that its guest has taken over.
async fn overgrown(place: &Place, file: &Path, most: u64) -> Error {
    let mut turns = interval(LOOKS_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let path = file.to_owned();
        // Where one hangs there is no second one.
        let found = off_reactor(place.holding(move || fs::symlink_metadata(path))).await;
        if found.is_ok_and(|found| found.len().max(found.blocks().saturating_mul(BLOCK)) > most) {
            return too_large(most);
        }
    }
}

fn too_large(most: u64) -> Error {
    let what = format!(
        "QEMU wrote more than {most} bytes, which is what memory and devices of this machine can take; has its guest taken it over?"
    );
    Error::new(Kind::Exhausted, what)
}

/// Makes a checkpoint of the files; how many bytes they have.
async fn finish(
    uses: &Uses,
    container: &Container,
    begun: Begun,
    since: i64,
    unwanted: &CancellationToken,
) -> Result<u64> {
    let Begun { place, files, net, node, memory, all, .. } = begun;
    let sandbox = uses.store.sandbox(&container.sandbox);
    let pod = sandbox.map(|sandbox| PodName::of(&sandbox)).unwrap_or_default();
    let (container, token) = (container.clone(), unwanted.clone());
    let finish = move || {
        let files = files.files()?;
        let parts = files
            .finish(most(memory), &token)
            .map_err(|cause| failed("the files of the checkpoint not finished", cause))?;
        let bytes = parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
        let manifest = Manifest::of(&container, pod, net.as_ref(), since, node, parts);
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|cause| Error::because(Kind::Internal, "the checkpoint's manifest not written", cause))?;
        files.publish(&text, &token)?;
        Ok(bytes)
    };
    let bytes = memory.saturating_add(all);
    place.work("the files of the checkpoint were not finished", pass(bytes), unwanted, finish).await
}

/// Ends what libvirt still writes of a machine's memory, and lets the guest go on; fine if it does, or is gone.
///
/// # Errors
/// When it is not known to run.
pub(super) async fn let_run(uses: &Uses, container: &Container) -> Result<()> {
    let id = container.machine.id.uuid();
    uses.hypervisor.end_save(id).await?;
    let state = uses.hypervisor.state(id).await?;
    if state.is_some_and(|state| state.phase == DomainPhase::On) { uses.hypervisor.resume(id).await } else { Ok(()) }
}

/// Removes what is there of a checkpoint that is not whole; fine if there is nothing.
///
/// # Errors
/// When something stays, or the directory does not answer.
pub(super) async fn clear(uses: &Uses, container: &Container, note: &CheckpointNote) -> Result<()> {
    let place = uses.checkpoints.place(note.id.to_string(), vec![note.dir.clone()], PLACE).await?;
    let (dir, id) = (note.dir.clone(), note.id);
    let names: Vec<_> = plan::parts(&container.machine).into_iter().map(|part| part.name).collect();
    place.work(NO_ANSWER, LOOK, &CancellationToken::new(), move || place::clear(&dir, id, &names)).await
}

/// All that a guest finds on a machine of this node that has this plan and network, but for addresses: one that has found the same can go on
/// there. In a form that is the same for the same.
///
/// # Errors
/// When libvirt does not tell.
pub(super) async fn found(uses: &Uses, plan: &MachinePlan, net: Option<&PodNet>) -> Result<String> {
    let Node { emulator, cpu } = node(uses, &plan.hardware).await?;
    let applied = Applied { vcpus: plan.cpus.boot, memory: plan.memory.boot };
    let nics: Vec<_> =
        net.map(NicMade::all).unwrap_or_default().into_iter().map(|nic| (nic.name, nic.queues)).collect();
    let found = (emulator, Machine::of(plan, applied, cpu), nics, DiskMade::all(plan));
    serde_json::to_string(&found)
        .map_err(|cause| Error::because(Kind::Internal, "what the guest finds is not written down", cause))
}

/// Why a machine of this plan has no checkpoint, if so.
pub(super) fn refused(plan: &MachinePlan, net: Option<&PodNet>) -> Option<String> {
    Some(plan::refusals(plan, net)).filter(|refused| !refused.is_empty()).map(|refused| refused.join("; "))
}

/// Whether something may be done to a machine that is not to happen amid a checkpoint of it.
///
/// # Errors
/// When one is being made.
pub(super) fn not_amid(container: &Container, what: &str) -> Result<()> {
    if !container.is_written() {
        return Ok(());
    }
    let what = format!("a checkpoint of container `{}` is being made, so it is not {what}; try again", container.id);
    Err(Error::new(Kind::Unavailable, what))
}

/// What a new checkpoint is called.
pub(super) fn note(dir: PathBuf) -> CheckpointNote {
    CheckpointNote { dir, id: Uuid::new_v4(), goes_on: false }
}

/// Most bytes of a file with so much memory, its devices' own (screens, firmware, ROMs), and a header for each page.
fn most(memory: u64) -> u64 {
    memory.saturating_add(memory / 64).saturating_add(DEVICES)
}

/// How long a pass over so many bytes may take.
fn pass(bytes: u64) -> Duration {
    PASS + Duration::from_secs(bytes / SLOWEST)
}

fn failed(what: &str, cause: impl StdError + Send + Sync + 'static) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, what, cause)
}

fn wanted_still(unwanted: &CancellationToken) -> Result<()> {
    if unwanted.is_cancelled() { Err(given_up()) } else { Ok(()) }
}

fn net_of(uses: &Uses, container: &Container) -> Option<PodNet> {
    uses.store.sandbox(&container.sandbox).and_then(|sandbox| sandbox.net.clone())
}

async fn node(uses: &Uses, hardware: &Hardware) -> Result<Node> {
    let features = uses.hypervisor.features().await?;
    let accelerator = uses.accel.get().await;
    let cpu = if accelerator == Accelerator::Kvm && cpu::is_nodes(hardware) {
        let told = off_reactor(|| fs::read_to_string(cpu::FILE)).await;
        Some(cpu::of(&told.map_err(|cause| failed("the node's CPU not looked at", cause))?))
    } else {
        None
    };
    let emulator = Emulator {
        qemu: features.qemu.map(|version| version.to_string()).unwrap_or_default(),
        libvirt: features.version.to_string(),
        accelerator: accelerator.to_string(),
    };
    Ok(Node { emulator, cpu })
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_memory_that_is_larger_than_its_machine_is_seen_and_no_other() {
        let checkpoints = crate::container::Checkpoints::default();
        let place = checkpoints.place("one".into(), Vec::new(), LOOK).await.expect("a place");
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(100).expect("grown");
        let seen = |most| timeout(LOOK, overgrown(&place, file.path(), most));
        seen(100).await.expect_err("it is as large as it may be");
        assert_eq!(seen(99).await.expect("it is larger").kind(), Kind::Exhausted);
        assert!(most(512 << 20) < 1100 << 20 && most(u64::MAX) == u64::MAX);
    }

    #[test]
    fn a_pass_has_time_for_its_bytes() {
        let seconds = |bytes| pass(bytes).as_secs();
        assert_eq!([seconds(0), seconds(512 << 20), seconds(512 << 30)], [300, 332, 300 + 32_768]);
        assert!(pass(u64::MAX) > PASS);
    }
}
