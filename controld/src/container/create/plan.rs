//! What a container would be: its machine, of the pod's configuration, of its image and of what the node has; and what of that can be judged before anything
//! is made.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Chain;
use imagestore::Image;
use uuid::Uuid;
use vmspec::annotations::PodAnnotations;
use vmspec::draft::{self, Draft};
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::Passed;
use vmspec::seed::Wishes;
use vmspec::settings::Handler;
use vmspec::{Accelerator, ContainerConfig, MachineId, Offer, SandboxConfig};

use super::{Containers, Waking};
use crate::container::slots::Slots;
use crate::devices;
use crate::disks::{flexvolume, host_disks, volume_disks};
use crate::files::look;
use crate::guest::{seed, share};
use crate::model::Sandbox;

/// What a container would be, of which nothing is made.
#[derive(Debug)]
pub(in crate::container) struct Drafted {
    pub(in crate::container) image: Image,
    pub(in crate::container) handler: Handler,
    pub(in crate::container) annotations: PodAnnotations,
    pub(super) offer: Offer,
    pub(in crate::container) found: devices::Found,
    pub(in crate::container) draft: Draft,
}

impl Containers {
    /// What a container of a pod would be, of which nothing is made.
    ///
    /// # Errors
    /// When there is no machine that is as it is wished, or no image.
    pub(in crate::container) async fn draft(
        &self,
        sandbox: &SandboxConfig,
        wanted: &ContainerConfig,
        said: &BTreeMap<String, String>,
        waking: Option<&Waking>,
    ) -> Result<Drafted> {
        self.check_platform(&sandbox.runtime_handler)?;
        let image = self.uses.images.find(&wanted.image, &sandbox.runtime_handler)?;
        let handler = self.uses.config.handler(&sandbox.runtime_handler);
        handler.check_annotations(said)?;
        let annotations = PodAnnotations::parse(said)
            .map_err(|cause| Error::because(Kind::Invalid, "the pod cannot become a machine", cause))?;
        let accel = self.uses.accel.get().await;
        let offer = self.offer((&handler, &annotations), &sandbox.uid, accel, waking).await?;
        let (node, asked) = (devices::Node::new(), wanted.clone());
        let (uid, of) = (sandbox.uid.clone(), handler.clone());
        let (config, pod) = (self.uses.config.clone(), sandbox.clone());
        let found = look(move || {
            let found = node.find(&asked, &uid, &of)?;
            Ok(devices::Found { config: host_disks::find(found.config, &pod, &config, &of)?, ..found })
        });
        let found = found.await?;
        let (config, uid, asked) = (self.uses.config.clone(), sandbox.uid.clone(), found.config.clone());
        let flexvolumes = look(move || flexvolume::find(&config, &asked, &uid)).await?;
        let draft = Draft::of(draft::Wishes {
            id: MachineId::random(),
            sandbox,
            container: &found.config,
            annotations: &annotations,
            flexvolumes: &flexvolumes,
            handler: &handler,
            offer: Some(&offer),
            accel,
            node: &self.uses.config.machine,
        })?;
        Ok(Drafted { image, handler, annotations, offer, found, draft })
    }

    /// What the emulator has for machines of a runtime handler, or as a pod says: of the type that the pod's earlier machines had, if it has that, or of the
    /// newest one. A guest that goes on from a checkpoint has the type that it has found.
    async fn offer(
        &self,
        (handler, annotations): (&Handler, &PodAnnotations),
        pod_uid: &str,
        accel: Accelerator,
        waking: Option<&Waking>,
    ) -> Result<Offer> {
        let uses = &self.uses;
        // The emulator may have been replaced since it was asked last.
        uses.accel.refresh_wrapper(&uses.config).await;
        let asked = draft::hardware::machine_type(handler, annotations);
        let machine = match waking {
            Some(waking) => waking.machine_type(&asked)?,
            None => asked,
        };
        let had = if waking.is_some() { None } else { uses.volumes.machine_type(pod_uid, &machine).await };
        if let Some(had) = had {
            match uses.hypervisor.offer(&uses.config.vmwrapper, &had, accel).await? {
                Ok(offer) => return Ok(offer),
                Err(nothing) => {
                    let why = Chain(&nothing);
                    tracing::warn!(pod_uid, %had, error = %why, "the emulator has no machine type of the pod's earlier VMs any more");
                }
            }
        }
        let nothing = match uses.hypervisor.offer(&uses.config.vmwrapper, &machine, accel).await? {
            Ok(offer) => return Ok(offer),
            Err(nothing) => nothing,
        };
        let there = uses.hypervisor.machine_types().await?;
        if !there.contains(machine.as_str()) && waking.is_some() {
            let what = format!(
                "the checkpoint cannot go on here: its machine type is `{machine}`, which the emulator here does not have"
            );
            return Err(Error::new(Kind::State, what));
        }
        if !there.contains(machine.as_str()) {
            return Err(draft::hardware::no_machine_type(handler, annotations, &there));
        }
        let what = format!("the emulator can make no machine of type `{machine}` with accelerator `{accel}`");
        Err(Error::because(Kind::State, what, nothing))
    }

    /// Images may be pulled for machines that this program cannot make.
    fn check_platform(&self, handler: &str) -> Result<()> {
        let images = &self.uses.config.images;
        let handler = self.uses.config.handler(handler).name;
        let platform = images.platform(&handler);
        if platform.uname_arch() == "x86_64" {
            return Ok(());
        }
        let what = format!("machines of runtime handler `{handler}` would be {platform}, which cannot be made yet");
        Err(Error::new(Kind::State, what))
    }

    /// Whether the draft of a container can become a machine of its pod: what it has of devices and NICs.
    ///
    /// # Errors
    /// When it cannot.
    pub(super) async fn judge(
        &self,
        sandbox: &Arc<Sandbox>,
        wanted: &ContainerConfig,
        drafted: &Drafted,
        begins_warm: bool,
    ) -> Result<Passed> {
        let Drafted { handler, annotations, found, draft, .. } = drafted;
        let passed = devices::agree(sandbox.net.as_ref(), found, draft.memory(), handler)?;
        if let Some(net) = &sandbox.net {
            Slots::of(net, passed.devices.len(), &draft.hardware().described)?;
        }
        self.check_seed(sandbox, wanted, (annotations, handler), draft, begins_warm).await?;
        self.check_mounts(&sandbox.config, handler, draft).await?;
        Ok(passed)
    }

    /// Whether directories that the guest shares, and those of its disks, are where kubelet has them.
    async fn check_mounts(&self, pod: &SandboxConfig, handler: &Handler, draft: &Draft) -> Result<()> {
        let share = draft.share().cloned();
        let in_volumes: Vec<_> = draft.volume_root().into_iter().chain(draft.of_volumes()).cloned().collect();
        if share.is_none() && in_volumes.is_empty() {
            return Ok(());
        }
        let (uses, pod, of) = (self.uses.clone(), pod.clone(), handler.clone());
        look(move || {
            volume_disks::check_subpaths(&in_volumes, &pod.uid)?;
            let of_disks = in_volumes.iter().filter_map(|wanted| wanted.mount());
            let shared = share.iter().flat_map(|share| share.mounts.iter().cloned());
            let mounts: Vec<_> = shared.chain(of_disks).collect();
            share::check_subpaths(&mounts, &pod, &of.defaults)?;
            share.map_or(Ok(()), |share| share::check(&uses.config, &share))
        })
        .await
    }

    /// Makes the seed once to find what is wrong with it now rather than at the start. The agent is the node's, and its size known.
    async fn check_seed(
        &self,
        sandbox: &Arc<Sandbox>,
        config: &ContainerConfig,
        (annotations, handler): (&PodAnnotations, &Handler),
        draft: &Draft,
        begins_warm: bool,
    ) -> Result<()> {
        let Some(net) = sandbox.net.clone() else {
            return Err(Error::new(Kind::State, format!("sandbox `{}` has no network", sandbox.id)));
        };
        let objects = self.uses.objects(&sandbox.config, annotations).await?;
        let (sandbox, config, annotations) = (sandbox.clone(), config.clone(), annotations.clone());
        let (handler, share, disks) = (handler.clone(), draft.share().cloned(), draft.guest_disks());
        // Which one is seen at the start.
        let instance = draft.has_lasting_root().then(Uuid::nil);
        look(move || {
            let wishes = Wishes {
                sandbox: &sandbox.config,
                container: &config,
                annotations: &annotations,
                objects: &objects,
                handler: &handler,
                net: &net,
                share: share.as_ref(),
                disks: &disks,
                instance,
            };
            let seed = seed::assemble(wishes, None)?;
            if begins_warm { seed::check_warm(&seed) } else { Ok(()) }
        })
        .await
    }
}
