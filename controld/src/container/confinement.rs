//! What holds a machine to its resources: a cgroup below the pod's, with QEMU in it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use common::{Reason, off_reactor};

use super::uses::Uses;
use crate::hypervisor::cgroup::{Cgroups, Counts};
use crate::hypervisor::process::{STATUS_DIR, pid_of};
use crate::model::error::{Error, Kind, Result};
use crate::model::plan::{Cgroup, Limits};
use crate::model::{Container, Resources};

/// Makes the cgroup of a machine that is to be started.
pub(super) async fn prepare(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    let limits = limits(uses, container, container.config.resources.as_ref());
    let made = off_reactor(move || cgroups.make(&cgroup.path, &limits)).await;
    made.map_err(|cause| Error::because(Kind::Internal, "failed to make the machine's cgroup", cause))
}

/// Holds a machine that runs to these resources.
pub(super) async fn set(uses: &Arc<Uses>, container: &Container, resources: &Resources) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else {
        return Err(Error::new(
            Kind::State,
            "the machine has no cgroup, as an earlier release started it; restart the pod",
        ));
    };
    let limits = limits(uses, container, Some(resources));
    let set = off_reactor(move || cgroups.set(&cgroup.path, &limits)).await;
    set.map_err(|cause| Error::because(Kind::Internal, "failed to change the limits of the machine's cgroup", cause))
}

/// Bytes that a machine holds in memory; `None` if that is not known.
pub(super) fn held(uses: &Uses, container: &Container) -> Option<u64> {
    let (cgroups, cgroup) = of(uses, container)?;
    cgroups.held(&cgroup.path)
}

/// Moves the QEMU of a machine that runs into its cgroup.
pub(super) async fn admit(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    let (name, id) = (container.machine.domain.clone(), container.machine.id.uuid());
    let admitted = off_reactor(move || {
        let found = pid_of(Path::new(STATUS_DIR), &name, id).map_err(Reason::because("failed to find QEMU"))?;
        let pid = found.ok_or_else(|| Reason::new("QEMU has ended"))?;
        cgroups.admit(&cgroup.path, pid)
    });
    let what = "failed to move QEMU into the machine's cgroup";
    admitted.await.map_err(|cause: Reason| Error::because(Kind::Internal, what, cause))
}

/// The limits of a machine of these resources.
pub(super) fn limits(uses: &Uses, container: &Container, resources: Option<&Resources>) -> Limits {
    let sandbox = uses.store.sandbox(&container.sandbox);
    let overhead = sandbox.and_then(|sandbox| sandbox.config.memory_overhead).unwrap_or_default();
    resources.map(|resources| Limits::of(resources, overhead)).unwrap_or_default()
}

/// Whether the kernel has killed QEMU for want of memory.
pub(super) fn was_oom_killed(uses: &Uses, container: &Container) -> bool {
    counts(uses.cgroups.as_ref(), container).oom_kills > 0
}

/// What the kernel counted of a machine; zeros of one that has no cgroup of ours.
pub(super) fn counts(cgroups: Option<&Cgroups>, container: &Container) -> Counts {
    let counts = cgroups.zip(container.machine.cgroup.as_ref()).map(|(cgroups, cgroup)| cgroups.counts(&cgroup.path));
    counts.unwrap_or_default()
}

/// Removes the cgroup of a machine that is gone.
pub(super) fn remove(uses: &Uses, container: &Container) -> io::Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    cgroups.remove(&cgroup.path, &container.machine.domain).map_err(io::Error::other)
}

fn of(uses: &Uses, container: &Container) -> Option<(Cgroups, Cgroup)> {
    uses.cgroups.clone().zip(container.machine.cgroup.clone())
}
