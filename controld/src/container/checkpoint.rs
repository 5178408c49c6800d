//! A running machine, written to a directory as it is at one instant: its memory and devices, and those of its disks that are the pod's
//! own. It runs on afterwards.
//!
//! A container's task calls [`write`] beside its other work, and [`end`] after it, whatever came of it, and when it finds on record that
//! an earlier controld has not come to that. The directory is on record before the guest is paused, and has a file with our mark before
//! it has anything else: what has no manifest is removed, and a guest that is paused for it goes on.
//!
//! - [`plan`]: what a checkpoint has, and which machines cannot have one. Pure.
//! - [`place`]: the directory, and which ones are none.
//! - [`copy`]: a disk's content without its holes, and its digest.
//! - [`manifest`]: what the files are of. Written last: a directory with it is whole.

mod copy;
mod manifest;
mod place;
mod plan;

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{now_nanos, off_reactor};
use proto::tap::PodNet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use self::manifest::{Made, Manifest, Versions};
use self::place::{Files, MEMORY, Mark};
pub(super) use self::plan::which;
use super::uses::Uses;
use crate::hypervisor::DomainPhase;
use crate::model::{Container, PodName};
use crate::store::is_disk_full;

/// How long the directory may take to be looked at, and to have its files made or removed.
const LOOK: Duration = Duration::from_secs(10);
/// How long the disks may take to be copied, and all files to be flushed and hashed: each is one pass over the largest disks.
const PASS: Duration = Duration::from_secs(1800);

/// Whether a machine can be written to a directory; the directory, without links. Nothing is changed.
///
/// # Errors
/// When the machine has what no checkpoint can have, or the directory is not one that may be written to; all that is wrong is told.
pub(super) async fn judge(uses: &Arc<Uses>, container: &Container, path: &str) -> Result<PathBuf> {
    plan::of(container, net_of(uses, container).as_ref())?;
    let (path, config) = (path.to_owned(), uses.config.clone());
    let ours = [config.state_dir.clone(), config.run_dir.clone(), config.images_dir()];
    looked_at(move || place::judge(&path, &ours)).await
}

/// Writes a machine that runs to a directory that was judged, until `unwanted` gives it up. The guest is paused for a part of that.
///
/// # Errors
/// When it is given up, or a step of it fails: then the guest may be paused, and the directory not empty, until [`end`].
pub(super) async fn write(
    uses: &Arc<Uses>,
    container: &Container,
    dir: &Path,
    unwanted: &CancellationToken,
) -> Result<()> {
    // Threads that copy end with this.
    let _over = unwanted.clone().drop_guard();
    let net = net_of(uses, container);
    let parts = plan::of(container, net.as_ref())?;
    let versions = versions(uses).await?;
    let (at, mark) = (dir.to_owned(), Mark::new(uses.instance, container.id));
    let files = looked_at(move || place::begin(&at, &mark, parts)).await?;
    let id = container.machine.id.uuid();
    wanted_still(unwanted)?;
    let made_at = now_nanos();
    uses.hypervisor.pause(id).await?;
    uses.hypervisor.save_memory(id, &dir.join(MEMORY), unwanted).await?;
    let token = unwanted.clone();
    let files = in_time("the machine's disks were not copied", PASS, move || copied(files, &token)).await?;
    wanted_still(unwanted)?;
    uses.hypervisor.resume(id).await?;
    tracing::info!(
        paused_ms = (now_nanos() - made_at) / 1_000_000,
        "the guest was paused for its checkpoint, and runs on"
    );
    let (token, at) = (unwanted.clone(), dir.to_owned());
    let sandbox = uses.store.sandbox(&container.sandbox);
    let pod = sandbox.map(|sandbox| PodName::of(&sandbox)).unwrap_or_default();
    let (instance, container) = (uses.instance, container.clone());
    in_time("the files of the checkpoint were not finished", PASS, move || {
        let parts = files.finish(&token).map_err(|cause| failed("the files of the checkpoint not finished", cause))?;
        wanted_still(&token)?;
        let made = Made { at: made_at, instance, versions };
        Manifest::of(&container, pod, net.as_ref(), made, parts).write(&at)
    })
    .await
}

/// Lets a guest go on that is paused for a checkpoint, and removes what is there of one without a manifest; fine if there is nothing.
///
/// # Errors
/// When it is not known to run, or something stays.
pub(super) async fn end(uses: &Arc<Uses>, container: &Container, dir: &Path) -> Result<()> {
    let at = dir.to_owned();
    let is_whole = looked_at(move || place::is_whole(&at)).await;
    // The guest ran before the manifest was written. A directory that does not answer is no reason to have it wait.
    if !is_whole.unwrap_or(false) {
        let_run(uses, container.machine.id.uuid()).await?;
    }
    let (at, mark) = (dir.to_owned(), Mark::new(uses.instance, container.id));
    let names: Vec<_> = plan::parts(&container.machine).into_iter().map(|part| part.name).collect();
    looked_at(move || place::clear(&at, &mark, &names)).await
}

async fn let_run(uses: &Uses, id: Uuid) -> Result<()> {
    uses.hypervisor.end_save(id).await?;
    let state = uses.hypervisor.state(id).await?;
    if state.is_some_and(|state| state.phase == DomainPhase::On) { uses.hypervisor.resume(id).await } else { Ok(()) }
}

fn copied(files: Files, unwanted: &CancellationToken) -> Result<Files> {
    files.copy(unwanted).map_err(|cause| failed("the machine's disks not copied", cause))?;
    Ok(files)
}

fn failed(what: &str, cause: impl StdError + Send + Sync + 'static) -> Error {
    let kind = if is_disk_full(&cause) { Kind::Exhausted } else { Kind::Internal };
    Error::because(kind, what, cause)
}

fn wanted_still(unwanted: &CancellationToken) -> Result<()> {
    if unwanted.is_cancelled() { Err(Error::new(Kind::State, "the checkpoint was given up")) } else { Ok(()) }
}

fn net_of(uses: &Uses, container: &Container) -> Option<PodNet> {
    uses.store.sandbox(&container.sandbox).and_then(|sandbox| sandbox.net.clone())
}

async fn versions(uses: &Uses) -> Result<Versions> {
    let features = uses.hypervisor.features().await?;
    let accelerator = uses.accel.get().await.to_string();
    let qemu = features.qemu.map(|version| version.to_string()).unwrap_or_default();
    Ok(Versions { qemu, libvirt: features.version.to_string(), accelerator })
}

/// Works in the directory, of which a file server may not answer.
async fn looked_at<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    in_time("the checkpoint's directory did not answer", LOOK, work).await
}

/// Works on files, and says `what` has not happened if that does not end.
async fn in_time<T: Send + 'static>(
    what: &str,
    deadline: Duration,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let late = |_elapsed| Error::new(Kind::Deadline, format!("{what} within {} s", deadline.as_secs()));
    timeout(deadline, off_reactor(work)).await.map_err(late)?
}
