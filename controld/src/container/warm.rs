//! Warm starts: pods whose guests do not boot, but go on from where an earlier pod's guest of the same image and machine has waited.
//!
//! Early in its boot, before anything in it reads its pod's seed, such a guest's agent waits at the *gate* until it hears that it may go on. SMBIOS
//! tells it to ([`proto::agent::WARM_FAMILY`]). What has happened by then is the same for all pods of an image and a machine.
//!
//! 1. The first pod leaves a checkpoint there ([`Warm::Leaves`]). Until that is made its seed is an empty one of the same name and size, as kernels
//!    read some of each disk: nothing of the pod is in the checkpoint. Its own seed is written into the same file then.
//! 2. Later ones are made of that as by RestorePod ([`Warm::Begins`]), are told at the gate all that makes them other machines, and go on.
//!
//! Whatever is in the way of this, a pod boots as any other. [`gate`](super::gate) keeps the checkpoints, and lets guests go on.

use std::collections::BTreeMap;
use std::time::Duration;

use common::Chain;
use proto::vm::CloudInit;
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Described, MachinePlan};
use vmspec::seed::SeedKind;

use super::create::Drafted;
use super::{Containers, Create, Waking, checkpoint, gate};
use crate::model::{Sandbox, Warm};

/// How long a pod waits for others that are made of the same checkpoint, before it boots.
const TURN: Duration = Duration::from_secs(20);
/// When checkpoints that could not be removed are tried again.
const AGAIN: Duration = Duration::from_secs(60);

impl Containers {
    /// The checkpoint that the first container of a pod begins with, if its runtime handler has warm starts and there is one.
    pub(super) async fn warm_start(&self, create: &Create) -> Option<Waking> {
        let sandbox = self.ready_sandbox(&create.sandbox).ok()?;
        if !self.uses.config.handler(&sandbox.config.runtime_handler).defaults.warm
            || !self.uses.store.containers_of(&create.sandbox).is_empty()
        {
            return None;
        }
        // What is wrong with it the other way tells.
        let drafted = self.draft(&sandbox.config, &create.config, &create.annotations, None).await.ok()?;
        let key = self.warm_key(&sandbox, &drafted, &create.config.name).await.ok()?;
        let dir = gate::kept(&self.uses, &key).await?;
        let open = timeout(TURN, checkpoint::open(&self.uses, dir.to_str()?)).await;
        let late = |_| Err(Error::new(Kind::Deadline, "others are being made of it"));
        match open.unwrap_or_else(late) {
            Ok(waking) => Some(waking.warm(key)),
            Err(error) => {
                tracing::warn!(pod = %create.sandbox, error = %Chain(&error), "checkpoint for warm starts not opened; the pod boots");
                gate::distrust(&self.uses, &key, &error).await;
                None
            }
        }
    }

    /// Removes checkpoints for warm starts whose images are not here any more, whenever those change; does not end.
    pub async fn forget_warm_starts_with_images(self) {
        loop {
            let gone = gate::go_with_images(&self.uses).await;
            let changed = self.uses.images.changed();
            match gone {
                Ok(()) => changed.await,
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "checkpoints for warm starts not removed with their images; trying again");
                    let _sooner = timeout(AGAIN, changed).await;
                }
            }
        }
    }

    /// What a container that boots has to do with warm starts; `is_new` says that no guest has seen its disks.
    pub(super) async fn warm(&self, sandbox: &Sandbox, drafted: &Drafted, name: &str, is_new: bool) -> Option<Warm> {
        if !drafted.handler.defaults.warm {
            return None;
        }
        let key = if is_new {
            self.warm_key(sandbox, drafted, name).await
        } else {
            Err(Error::new(Kind::State, "it is not the pod's first container, and its disks have been used"))
        };
        key.inspect_err(|why| tracing::info!(pod = %sandbox.id, why = %Chain(why), "the pod has no warm start"))
            .ok()
            .map(Warm::Leaves)
    }

    /// The name of what pods have in common that begin with one checkpoint: all that RestorePod compares but for addresses, what else its hardware
    /// is, the kind of seed, and their namespace: who has a guest's console before the gate may make of it what he likes.
    ///
    /// # Errors
    /// When the pod cannot begin with one, nor leave one.
    async fn warm_key(&self, sandbox: &Sandbox, drafted: &Drafted, name: &str) -> Result<String> {
        let (plan, root) = self.plan_of(name, &sandbox.config, drafted)?;
        if let Some(why) = obstacle(sandbox, drafted, &plan) {
            return Err(Error::new(Kind::State, why));
        }
        let image = drafted.image.id.to_string();
        if !self.uses.agents.may_have_gate(&image) {
            return Err(Error::new(Kind::State, "guests of its image do not wait at the gate"));
        }
        let found = checkpoint::found(&self.uses, &plan, sandbox.net.as_ref()).await?;
        let seed = drafted.handler.defaults.seed_kind(&drafted.annotations).to_string();
        // Addresses are learned, and the seed is each pod's own.
        let described =
            Described { mac: None, dhcp: BTreeMap::new(), cloud_init: CloudInit::default(), ..plan.hardware.described };
        let described = serde_json::to_string(&described)
            .map_err(|cause| Error::because(Kind::Internal, "the pod's description is not written down", cause))?;
        let text = format!("{:?} {image} {root} {seed} {described} {found}", sandbox.config.namespace);
        Ok(format!("{:x}", Sha256::digest(text)).chars().take(32).collect())
    }
}

/// Why a pod cannot begin with a checkpoint, nor leave one.
fn obstacle(sandbox: &Sandbox, drafted: &Drafted, plan: &MachinePlan) -> Option<String> {
    let Drafted { annotations, handler, .. } = drafted;
    let defaults = &handler.defaults;
    let told = [
        (sandbox.config.attempt != 0, "its sandbox is not the first, and its disks may have been used"),
        (plan.guest.command.is_some(), "its VM is for a command"),
        (defaults.credentials, "its handler gives keys as credentials of systemd, which are read before the gate"),
        (!plan.hardware.described.serial.is_empty(), "its VM has a serial number of its own"),
        (!matches!(defaults.seed_kind(annotations), SeedKind::NoCloud | SeedKind::ConfigDrive), "its seed is no disk"),
    ];
    let of_pod = told.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why.to_owned());
    let refused = || drafted.cannot_go_on().map(str::to_owned);
    let no_checkpoint = || checkpoint::refused(plan, sandbox.net.as_ref());
    of_pod.or_else(refused).or_else(no_checkpoint)
}
