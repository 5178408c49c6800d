//! What holds a machine to its resources: a cgroup below the pod's, with QEMU in it, and QEMU's place among those that the kernel kills
//! for want of memory.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use common::{Chain, Reason, off_reactor};
use vmspec::Resources;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::{Cgroup, Limits, MachinePlan};

use crate::container::uses::Uses;
use crate::guest::share;
use crate::hypervisor::cgroup::{Cgroups, Counts, scope};
use crate::hypervisor::pinning::pin;
use crate::hypervisor::process::{STATUS_DIR, pid_of};
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
    let (machine, score) = (container.machine.clone(), resources.oom_score_adj);
    let set = off_reactor(move || {
        cgroups.make(&cgroup, &limits)?;
        set_oom_score(qemu(&machine)?, score)
    });
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
    let machine = container.machine.clone();
    let placed = async {
        let (here, of) = (cgroups.clone(), cgroup.clone());
        let (pid, is_known) = off_reactor(move || {
            let pid = qemu(&machine)?;
            let scope = here.scope_of(&of);
            Ok::<_, Reason>((pid, scope.map_or(Ok(true), |scope| here.has(scope.path, pid))?))
        })
        .await?;
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
    let what = "failed to move QEMU into the machine's cgroup";
    placed.await.map_err(|cause: Reason| Error::because(Kind::Internal, what, cause))
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

fn qemu(machine: &MachinePlan) -> Result<i32, Reason> {
    let found = pid_of(Path::new(STATUS_DIR), &machine.domain, machine.id.uuid());
    found
        .map_err(Reason::because("failed to find QEMU"))?
        .ok_or_else(|| unfound(Path::new(STATUS_DIR), &machine.domain))
}

/// Why there is no QEMU. libvirt removes the file when one ends, and a libvirt with another run directory has it elsewhere.
fn unfound(dir: &Path, domain: &str) -> Reason {
    let file = dir.join(format!("{domain}.pid"));
    if file.exists() {
        return Reason::new("QEMU has ended");
    }
    Reason::new(format!(
        "there is no `{}`: QEMU has ended, or libvirt's run directory is another one than `{}` is in; controld needs that of the \
         node's libvirt there",
        file.display(),
        dir.display()
    ))
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
    fn a_file_that_is_absent_is_not_taken_for_the_end_of_qemu() {
        let dir = tempfile::tempdir().expect("tempdir");
        let why = || Chain(&unfound(dir.path(), "vm")).to_string();
        assert!(why().contains("vm.pid`: QEMU has ended, or libvirt's run directory is another one"), "{}", why());
        fs::write(dir.path().join("vm.pid"), "1").expect("written");
        assert_eq!(why(), "QEMU has ended");
    }
}
