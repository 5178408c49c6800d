//! The size of a machine that runs, changed: all of it, or nothing but vCPUs.
//!
//! Order: memory that the guest has to give back -> limits -> vCPUs -> memory that it may take. So the cgroup never has less
//! than what the guest was told that it has. What was changed before a step that failed is changed back, except vCPUs: they
//! are plugged and never unplugged, so the machine has them from then on. A QEMU that emulates ends (`tcg_register_thread`)
//! when one is plugged after another was unplugged, and kubelet tries a resize again.

use std::sync::Arc;
use std::time::Duration;

use common::{Chain, off_reactor};
use tokio::time::{Instant, sleep};
use vmspec::annotations::PodAnnotations;
use vmspec::draft::size;
use vmspec::error::{Error, Kind, Result};
use vmspec::settings::MachineConfig;
use vmspec::{Accelerator, Applied, Resources};

use super::confinement;
use super::processors;
use crate::container::uses::Uses;
use crate::model::Container;

/// How long a guest may take to give memory back. The container's actor hears nothing else meanwhile; kubelet asks again.
const BALLOON_DEADLINE: Duration = Duration::from_secs(3);
/// A cgroup's usage has no event, so it is looked at this often meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Gives a machine that runs these resources in place of those on record; what it has then.
pub(in crate::container) async fn machine(
    uses: &Arc<Uses>,
    container: &Container,
    wanted: &Resources,
) -> (Applied, Result<()>) {
    let id = container.machine.id.uuid();
    let recorded = container.applied();
    let begun = async {
        let after = wanted_size(uses, container, wanted).await?;
        // What is on record of vCPUs was asked for, and may have failed.
        Ok((after, uses.hypervisor.vcpus(id).await?))
    };
    let (after, vcpus) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return (recorded, Err(error)),
    };
    let before = Applied { vcpus, ..recorded };
    let mut change = Change { uses, container, before, after, in_force: before };
    let made = change.make(wanted).await;
    if made.is_err() {
        change.take_back().await;
        // If nobody knows, as many as there may be.
        change.in_force.vcpus = uses.hypervisor.vcpus(id).await.unwrap_or(change.in_force.vcpus);
    } else {
        change.in_force = after;
    }
    // Also after a step that failed, since the machine has them from then on, and those that an earlier change may have left.
    let plugged = container.machine.cpus.boot..change.in_force.vcpus;
    if !plugged.is_empty() {
        processors::bring_online(uses, container, plugged);
    }
    (change.in_force, made)
}

async fn wanted_size(uses: &Arc<Uses>, container: &Container, wanted: &Resources) -> Result<Applied> {
    let annotations = PodAnnotations::parse(&container.machine_annotations)
        .map_err(|cause| Error::because(Kind::Invalid, "the pod's annotations cannot be read", cause))?;
    let sandbox = uses.store.sandbox(&container.sandbox);
    let handler = sandbox.as_ref().map(|sandbox| sandbox.config.runtime_handler.as_str()).unwrap_or_default();
    let node = uses.config.handler(handler).defaults.on(&uses.config.machine);
    let overhead = sandbox.and_then(|sandbox| sandbox.config.memory_overhead).unwrap_or_default();
    resized(container, wanted, overhead, &annotations, uses.accel.get().await, &node)
}

/// What a container's machine that runs has with other resources.
///
/// # Errors
/// When it cannot have that without a restart.
fn resized(
    container: &Container,
    resources: &Resources,
    overhead: u64,
    annotations: &PodAnnotations,
    accel: Accelerator,
    node: &MachineConfig,
) -> Result<Applied> {
    let before = container.config.resources.as_ref().map(|resources| resources.memory_limit).unwrap_or_default();
    let wanted = size::Wanted { resources: Some(resources), overhead, vcpus: annotations.vcpus, ..Default::default() };
    size::again(&container.machine, container.applied(), before, wanted, accel, node)
}

struct Change<'a> {
    uses: &'a Arc<Uses>,
    container: &'a Container,
    before: Applied,
    after: Applied,
    /// What the machine keeps if a step fails.
    in_force: Applied,
}

impl Change<'_> {
    async fn make(&mut self, wanted: &Resources) -> Result<()> {
        if self.after.memory < self.before.memory {
            self.set_memory(self.after.memory).await?;
            self.wait_for_memory(wanted).await?;
        }
        confinement::set(self.uses, self.container, wanted).await?;
        let mut plugged = Ok(());
        if self.after.vcpus > self.before.vcpus {
            let id = self.container.machine.id.uuid();
            // Perhaps some, if libvirt fails; never fewer are asked for than may be there.
            self.in_force.vcpus = self.after.vcpus;
            plugged = self.uses.hypervisor.set_vcpus(id, self.after.vcpus).await;
        }
        // libvirt puts the threads of new vCPUs where it thinks that QEMU is. Those of an earlier change that failed may be there yet.
        confinement::admit(self.uses, self.container, Some(wanted)).await?;
        plugged?;
        if self.after.memory > self.before.memory {
            self.set_memory(self.after.memory).await?;
        }
        Ok(())
    }

    async fn take_back(&self) {
        let resources = self.container.config.resources.clone().unwrap_or_default();
        let taken_back = async {
            confinement::restore(self.uses, self.container, &resources).await?;
            // A guest with more than its limit would be killed for it.
            if self.after.memory == self.before.memory { Ok(()) } else { self.set_memory(self.before.memory).await }
        };
        if let Err(error) = taken_back.await {
            tracing::warn!(error = %Chain(&error), "a change of resources that failed is not taken back as a whole");
        }
    }

    async fn set_memory(&self, bytes: u64) -> Result<()> {
        self.uses.hypervisor.set_memory(self.container.machine.id.uuid(), bytes).await
    }

    /// Waits until what QEMU holds fits into the new limit.
    async fn wait_for_memory(&self, wanted: &Resources) -> Result<()> {
        let Some(limit) = confinement::limits(self.uses, self.container, Some(wanted)).memory else { return Ok(()) };
        let deadline = Instant::now() + BALLOON_DEADLINE;
        loop {
            let (uses, container) = (self.uses.clone(), self.container.clone());
            let held = off_reactor(move || confinement::held(&uses, &container)).await;
            match held {
                Some(held) if held > limit && Instant::now() < deadline => sleep(LOOK_EVERY).await,
                Some(held) if held > limit => {
                    let (held, limit, seconds) = (held >> 20, limit >> 20, BALLOON_DEADLINE.as_secs());
                    let what = format!(
                        "the machine uses {held} MiB, which is more than the new limit of {limit} MiB, and its guest has not \
                         given that back within {seconds} s; free memory in the guest, or restart the pod"
                    );
                    return Err(Error::new(Kind::State, what));
                }
                Some(_) | None => return Ok(()),
            }
        }
    }
}
