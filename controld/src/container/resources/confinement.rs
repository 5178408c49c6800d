//! What holds a machine to its resources: a cgroup below the pod's, with QEMU in it, and QEMU's place among those that the kernel kills
//! for want of memory.

use std::fs;
use std::io;
use std::sync::Arc;

use common::{Chain, Reason, off_reactor};
use vmspec::Resources;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Cgroup, Limits};

use crate::container::qemu;
use crate::container::uses::Uses;
use crate::guest::share;
use crate::hypervisor::cgroup::{Cgroups, Counts, scope};
use crate::hypervisor::pinning::pin;
use crate::model::Container;

/// Makes the cgroup of a machine that is to be started, unless systemd makes it once there is QEMU.
pub(in crate::container) async fn prepare(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    if cgroups.scope_of(&cgroup).is_some() {
        return Ok(());
    }
    let limits = limits(uses, container, container.config.resources.as_ref());
    let made = off_reactor(move || cgroups.make(&cgroup, &limits)).await;
    made.map_err(|cause| Error::because(Kind::Internal, "failed to make the machine's cgroup", cause))
}

/// Holds a machine that runs to the resources on its record, as far as it can live with them.
pub(in crate::container) async fn confine(uses: &Arc<Uses>, container: &Container) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    let resources = container.config.resources.as_ref();
    let limits = limits(uses, container, resources);
    let id = container.id;
    let bearable = off_reactor(move || {
        let held = cgroups.held(&cgroup.path);
        let bearable = limits.clone().bearable(held);
        if bearable != limits {
            tracing::warn!(%id, held, ?limits, "machine holds more than its memory limit on record, which is not set");
        }
        bearable
    });
    place(uses, container, resources, bearable.await).await
}

/// Holds a machine that runs to these resources.
pub(in crate::container) async fn set(uses: &Arc<Uses>, container: &Container, resources: &Resources) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else {
        return Err(Error::new(
            Kind::State,
            "the machine has no cgroup, as an earlier release started it; restart the pod",
        ));
    };
    let limits = limits(uses, container, Some(resources));
    let score = resources.oom_score_adj;
    let set = async {
        let pid = qemu::find(uses, container).await?;
        off_reactor(move || {
            cgroups.make(&cgroup, &limits)?;
            set_oom_score(pid, score)
        })
        .await
    };
    set.await
        .map_err(|cause| Error::because(Kind::Internal, "failed to change the limits of the machine's cgroup", cause))
}

/// Holds a machine that runs to these resources, and to no limit that they do not have.
pub(in crate::container) async fn restore(
    uses: &Arc<Uses>,
    container: &Container,
    resources: &Resources,
) -> Result<()> {
    if let Some((cgroups, cgroup)) = of(uses, container) {
        let limits = limits(uses, container, Some(resources));
        let opened = off_reactor(move || cgroups.open(&cgroup.path, &limits)).await;
        opened
            .map_err(|cause| Error::because(Kind::Internal, "failed to lift limits of the machine's cgroup", cause))?;
    }
    set(uses, container, resources).await
}

/// Bytes that a machine holds in memory; `None` if that is not known.
pub(in crate::container) fn held(uses: &Uses, container: &Container) -> Option<u64> {
    let (cgroups, cgroup) = of(uses, container)?;
    cgroups.held(&cgroup.path)
}

/// Moves the QEMU of a machine that runs, of these resources, into its cgroup.
pub(in crate::container) async fn admit(
    uses: &Arc<Uses>,
    container: &Container,
    resources: Option<&Resources>,
) -> Result<()> {
    place(uses, container, resources, limits(uses, container, resources)).await
}

/// Moves QEMU into its cgroup with these limits, wherever it is now, also halfway there.
async fn place(uses: &Arc<Uses>, container: &Container, resources: Option<&Resources>, limits: Limits) -> Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    // Not libvirtd's, which most units protect: QEMU inherits that.
    let score = resources.map_or(0, |resources| resources.oom_score_adj);
    let (own, all) = resources.map_or((None, None), |resources| (resources.own_cpus(), resources.node_cpus()));
    let placed = async {
        let (here, of) = (cgroups.clone(), cgroup.clone());
        let pid = qemu::find(uses, container).await?;
        let is_known =
            off_reactor(move || here.scope_of(&of).map_or(Ok(true), |scope| here.has(scope.path, pid))).await?;
        if let Some(scope) = cgroups.scope_of(&cgroup)
            && !is_known
        {
            let pid = u32::try_from(pid).map_err(Reason::because("QEMU has no process id"))?;
            scope::start(scope, pid).await?;
        }
        let share = container.machine.share.is_some().then(|| share::dir(&uses.config, container.machine.id));
        off_reactor(move || {
            // Its memory is the pod's, too, and libvirt has put it with a QEMU that is not there any more.
            let virtiofsd = share.map(|dir| share::processes(&dir)).unwrap_or_default();
            if cgroups.scope_of(&cgroup).is_some() {
                cgroups.enter(&cgroup.path, pid)?;
                cgroups.make(&cgroup, &limits)?;
            } else {
                cgroups.make(&cgroup, &limits)?;
                cgroups.admit(&cgroup.path, pid)?;
            }
            // Only now: a cgroup that it enters, or that gets other processors, has them for all of its threads.
            if let Some(all) = all
                && let Err(error) = pin(pid, own.as_deref(), &all)
            {
                tracing::warn!(pid, error = %Chain(&error), "vCPUs share the pod's processors");
            }
            for pid in virtiofsd {
                // One that has ended since is watched for.
                if let Err(error) = cgroups.admit(&cgroup.path, pid).and_then(|()| set_oom_score(pid, score)) {
                    tracing::warn!(pid, error = %Chain(&error), "virtiofsd not moved into the machine's cgroup");
                }
            }
            set_oom_score(pid, score)
        })
        .await
    };
    placed.await.map_err(|cause: Reason| misplaced(was_oom_killed(uses, container), cause))
}

/// Why a machine has no place. What the kernel kills amid this is gone for whoever looks next.
fn misplaced(oom_killed: bool, cause: Reason) -> Error {
    let (kind, what) = if oom_killed {
        let what = "the kernel killed QEMU as it came into the machine's cgroup, whose memory limit has no room for it; raise the \
                    limit, or RuntimeClass `overhead.podFixed`";
        (Kind::Exhausted, what)
    } else {
        (Kind::Internal, "failed to move QEMU into the machine's cgroup")
    };
    Error::because(kind, what, cause)
}

/// The limits of a machine of these resources.
pub(in crate::container) fn limits(uses: &Uses, container: &Container, resources: Option<&Resources>) -> Limits {
    let sandbox = uses.store.sandbox(&container.sandbox);
    let overhead = sandbox.and_then(|sandbox| sandbox.config.memory_overhead).unwrap_or_default();
    resources.map(|resources| Limits::of(resources, overhead)).unwrap_or_default()
}

/// Whether the kernel has killed QEMU for want of memory.
pub(in crate::container) fn was_oom_killed(uses: &Uses, container: &Container) -> bool {
    // A scope's cgroup goes with QEMU, and what was counted of it stays with the pod's.
    let of_machine = counts(uses.cgroups.as_ref(), container).oom_kills;
    of_machine > 0 || pod_oom_kills(uses, container) > container.pod_oom_kills
}

/// How many processes of the pod the kernel has killed for want of memory, if its machine has a scope; otherwise 0.
pub(in crate::container) fn pod_oom_kills(uses: &Uses, container: &Container) -> u64 {
    let Some((cgroups, cgroup)) = of(uses, container) else { return 0 };
    cgroups.scope_of(&cgroup).map_or(0, |scope| cgroups.counts(scope.slice_path).oom_kills)
}

/// What the kernel counted of a machine; zeros of one that has no cgroup of ours.
pub(in crate::container) fn counts(cgroups: Option<&Cgroups>, container: &Container) -> Counts {
    let counts = cgroups.zip(container.machine.cgroup.as_ref()).map(|(cgroups, cgroup)| cgroups.counts(&cgroup.path));
    counts.unwrap_or_default()
}

/// Removes the cgroup of a machine that is gone.
pub(in crate::container) fn remove(uses: &Uses, container: &Container) -> io::Result<()> {
    let Some((cgroups, cgroup)) = of(uses, container) else { return Ok(()) };
    cgroups.remove(&cgroup, &container.machine.domain).map_err(io::Error::other)
}

/// Says how soon the kernel kills a process when the node is out of memory: from -1000, never, to 1000, first (proc(5)).
fn set_oom_score(pid: i32, score: i64) -> Result<(), Reason> {
    let at = format!("/proc/{pid}/oom_score_adj");
    match fs::write(&at, score.to_string()) {
        // The machine runs as well, and goes sooner when memory runs out.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(pid, score, "QEMU's oom_score_adj not lowered, for which controld needs CAP_SYS_RESOURCE");
            Ok(())
        }
        Err(cause) => Err(Reason::new(format!("failed to write `{score}` to `{at}`")).with(cause)),
        Ok(()) => Ok(()),
    }
}

fn of(uses: &Uses, container: &Container) -> Option<(Cgroups, Cgroup)> {
    uses.cgroups.clone().zip(container.machine.cgroup.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qemu_that_the_kernel_killed_on_its_way_is_told_so() {
        let gone = || Reason::new("QEMU has ended");
        let (killed, other) = (misplaced(true, gone()), misplaced(false, gone()));
        assert_eq!((killed.kind(), other.kind()), (Kind::Exhausted, Kind::Internal));
        assert!(Chain(&killed).to_string().starts_with("the kernel killed QEMU"), "{killed}");
        assert_eq!(Chain(&other).to_string(), "failed to move QEMU into the machine's cgroup: QEMU has ended");
    }
}
