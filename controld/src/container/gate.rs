//! Lets guests go on that wait at the gate, as often as they boot, and has one leave its checkpoint before.
//!
//! That a seed is still to be put into its place a file beside it says: whoever finds that has yet to let the guest go on for the first time. After
//! a reboot the guest's memory has things of its pod, and no checkpoint is made. One that does not wait though it was to has read an empty seed,
//! and boots anew with its own.

mod kept;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use futures_util::future::BoxFuture;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::checkpoint;
use super::uses::Uses;
use crate::config::Config;
use crate::files::io_failed;
use crate::guest::agents::Gate;
use crate::guest::seed;
use crate::model::{CheckpointNote, Container, Warm, span};

/// How long a guest waits for its checkpoint to be made.
const LEAVES_WITHIN: Duration = Duration::from_secs(120);
/// How long a guest may take to its gate, or an agent to say that there is none.
const WAITS_WITHIN: Duration = Duration::from_secs(300);
/// Between two looks at who waits there.
const AGAIN: Duration = Duration::from_secs(1);

/// Has a container's task make a checkpoint, if there is the task still.
#[derive(Clone)]
pub(super) struct Cuts(
    pub(super) Arc<dyn Fn(CheckpointNote, CancellationToken) -> BoxFuture<'static, Result<()>> + Send + Sync>,
);

impl fmt::Debug for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuts")
    }
}

/// The directory of the checkpoint of this name, if there is a whole one.
pub(super) async fn kept(uses: &Uses, key: &str) -> Option<PathBuf> {
    let dir = kept::of(&uses.config, key);
    let looked = dir.clone();
    off_reactor(move || kept::is_whole(&looked)).await.then_some(dir)
}

/// Removes a checkpoint that a pod could not begin with for this reason, if that is of the checkpoint: another pod leaves a new one.
pub(super) async fn distrust(uses: &Uses, key: &str, why: &Error) {
    if matches!(why.kind(), Kind::Unavailable | Kind::Exhausted | Kind::Deadline) {
        return;
    }
    let (config, name) = (uses.config.clone(), key.to_owned());
    match off_reactor(move || kept::forget(&config, &name)).await {
        Ok(()) => tracing::info!(key, "a checkpoint for warm starts that no pod begins with is removed"),
        Err(error) => tracing::warn!(%error, key, "checkpoint for warm starts not removed"),
    }
}

/// Removes the checkpoints of images that are not here any more: no pod begins with one, and kubelet wants the room.
pub(super) async fn go_with_images(uses: &Arc<Uses>) -> Result<()> {
    let uses = uses.clone();
    let forget = move || {
        let here = || uses.images.list("", "").map_err(io::Error::other);
        kept::forget_all(&uses.config, || Ok(here()?.iter().map(|image| image.id.to_string()).collect()))
    };
    let (gone, all_went) = off_reactor(forget).await;
    for key in gone {
        tracing::info!(key, "a checkpoint for warm starts is removed: its image is not here any more");
    }
    all_went.map_err(|cause| io_failed("checkpoints of images that are gone not removed", cause))
}

/// Keeps the gate of a machine that runs, until it is forgotten; again is fine.
pub(super) fn keep(uses: &Arc<Uses>, container: &Container, cuts: Cuts) {
    let Some(warm) = container.warm.clone() else { return };
    let Some(gate) = uses.agents.keep_gate(container.machine.id) else { return };
    let (uses, machine, image) = (uses.clone(), container.machine.id, container.image_id.clone());
    let span = span::of_container(container, uses.store.sandbox(&container.sandbox).as_deref());
    let keeper = Keeper { uses, machine, image, gate, warm, cuts };
    tokio::spawn(async move { tokio::join!(keeper.lets_go_on(), keeper.sees_that_it_waits()) }.instrument(span));
}

/// Who lets one guest go on.
struct Keeper {
    uses: Arc<Uses>,
    machine: MachineId,
    image: String,
    gate: Gate,
    warm: Warm,
    cuts: Cuts,
}

impl Keeper {
    /// Each time that it comes to the gate.
    async fn lets_go_on(&self) {
        while self.gate.waits().await {
            if let Err(error) = self.pass().await {
                tracing::warn!(error = %Chain(&error), "a guest that waits at the gate does not go on; trying again");
            }
            // A guest could come here all day.
            sleep(AGAIN).await;
        }
    }

    /// Lets it go on, with its seed in place.
    async fn pass(&self) -> Result<()> {
        let mut left = false;
        if let Warm::Leaves(key) = &self.warm
            && self.is_aside().await
        {
            // After a reboot it has seen to its disk, or somebody at its console has.
            left = !self.gate.was_rebooted();
            if left && let Err(error) = self.leave(key).await {
                tracing::warn!(error = %Chain(&error), "no checkpoint for warm starts was made; the guest goes on");
            }
            self.at_seed(seed::put).await?;
            self.at_seed(seed::forget_aside).await?;
        }
        let open = self.gate.open().await;
        if left && let Warm::Leaves(key) = &self.warm {
            self.tidy(key).await;
        }
        open
    }

    /// Has it boot anew, with its seed, if it does not wait and so has read the empty one: its image has no gate, or nobody was there for as long
    /// as an agent waits.
    async fn sees_that_it_waits(&self) {
        if !matches!(self.warm, Warm::Leaves(_)) || !(self.is_aside().await || self.is_to_begin_anew().await) {
            return;
        }
        if !self.is_to_begin_anew().await {
            let is_passed = timeout(WAITS_WITHIN, self.gate.is_passed()).await.unwrap_or(true);
            if !is_passed || !self.is_aside().await {
                return;
            }
            self.uses.agents.has_no_gate(&self.image);
            tracing::warn!(
                image = self.image,
                "the guest did not wait at the gate, and has read no seed; it boots anew, and pods of this image have no warm starts until controld's next start"
            );
        }
        while let Err(error) = self.begin_anew().await
            && !self.gate.is_forgotten()
        {
            tracing::warn!(error = %Chain(&error), "a guest without its seed does not boot anew yet; trying again");
            sleep(AGAIN).await;
        }
    }

    async fn begin_anew(&self) -> Result<()> {
        self.at_seed(seed::put).await?;
        // From here on no checkpoint is made of it, and whoever finds this resets it.
        self.at_seed(seed::note_used).await?;
        self.uses.hypervisor.reset(self.machine.uuid()).await?;
        self.at_seed(seed::forget_aside).await
    }

    async fn is_aside(&self) -> bool {
        let (config, machine) = (self.uses.config.clone(), self.machine);
        off_reactor(move || seed::is_aside(&config, machine)).await
    }

    async fn is_to_begin_anew(&self) -> bool {
        let (config, machine) = (self.uses.config.clone(), self.machine);
        off_reactor(move || seed::is_used(&config, machine)).await
    }

    async fn at_seed(&self, step: fn(&Config, MachineId) -> io::Result<()>) -> Result<()> {
        let (config, machine) = (self.uses.config.clone(), self.machine);
        let done = off_reactor(move || step(&config, machine)).await;
        done.map_err(|cause| io_failed("the guest's seed not put into its place", cause))
    }

    /// Leaves the checkpoint of this name, unless there is one by now.
    async fn leave(&self, key: &str) -> Result<()> {
        let (uses, config, name) = (&self.uses, self.uses.config.clone(), key.to_owned());
        let dir = off_reactor(move || kept::begin(&config, &name)).await;
        let Some(dir) = dir.map_err(|cause| io_failed("no directory for a checkpoint", cause))? else { return Ok(()) };
        let unwanted = uses.checkpoints.token();
        let mut making = (self.cuts.0)(checkpoint::note(dir.clone()), unwanted.clone());
        let made = match timeout(LEAVES_WITHIN, &mut making).await {
            Ok(made) => made,
            Err(_elapsed) => {
                unwanted.cancel();
                making.await
            }
        };
        made?;
        tracing::info!(key, "a checkpoint for warm starts was made of the guest at the gate");
        Ok(())
    }

    /// Once a checkpoint was left, or was not, and the guest does not wait any more: others may be too many now, or its image gone.
    async fn tidy(&self, key: &str) {
        let (config, name) = (self.uses.config.clone(), key.to_owned());
        if let Err(error) = off_reactor(move || kept::ended(&config, &name)).await {
            tracing::warn!(%error, "checkpoints for warm starts that are not used any more not removed; the next one tries again");
        }
        self.uses.images.look_again();
    }
}
