//! What running machines use of the node: kubelet evicts pods, scales them and shows `kubectl top` by it.
//!
//! A machine uses what its QEMU uses: guest memory that the guest has freed counts, as long as the node has not got it back.
//! Its writable layer is the folder of its pod's disks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Chain, now_nanos, off_reactor};
use nix::sys::statvfs::statvfs;

use super::confinement;
use crate::hypervisor::cgroup::{Cgroups, Counts};
use crate::hypervisor::process::{ProcessDetails, ProcessUsage, Processes, STATUS_DIR};
use crate::model::Container;
use crate::volumes::{DiskUsage, disk_usage};

/// What a machine uses at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds since the epoch.
    pub at: i64,
    /// Its QEMU; `None` if that has ended.
    pub process: Option<ProcessUsage>,
    pub disk: DiskUsage,
}

/// More of it, for metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// Nanoseconds since the epoch.
    pub at: i64,
    pub process: ProcessDetails,
    /// What the kernel counted of its cgroup.
    pub cgroup: Counts,
    pub disk: DiskUsage,
    pub filesystem: Filesystem,
}

/// The file system that the disks of pods lie on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// In bytes.
    pub size: u64,
    pub inodes: u64,
    pub inodes_free: u64,
}

/// What these containers use. One that cannot be looked at is left out, and the log says why.
pub(in crate::container) async fn of(
    processes: Arc<Processes>,
    containers: Vec<Arc<Container>>,
) -> Vec<(Arc<Container>, Usage)> {
    off_reactor(move || each(containers, |container| usage_of(&processes, container).map(Some))).await
}

/// More of what these containers use that run, whose disks are in `disks`. One that cannot be looked at is left out, and the log says why.
pub(in crate::container) async fn details(
    processes: Arc<Processes>,
    disks: PathBuf,
    cgroups: Option<Cgroups>,
    containers: Vec<Arc<Container>>,
) -> Vec<(Arc<Container>, Details)> {
    off_reactor(move || {
        let filesystem = filesystem_of(&disks);
        each(containers, |container| {
            let cgroup = confinement::counts(cgroups.as_ref(), container);
            details_of(&processes, container, cgroup, filesystem)
        })
    })
    .await
}

fn each<T>(
    containers: Vec<Arc<Container>>,
    look_at: impl Fn(&Container) -> io::Result<Option<T>>,
) -> Vec<(Arc<Container>, T)> {
    let looked_at = |container: Arc<Container>| match look_at(&container) {
        Ok(found) => found.map(|found| (container, found)),
        Err(error) => {
            tracing::warn!(container = %container.id, error = %Chain(&error), "usage not read");
            None
        }
    };
    containers.into_iter().filter_map(looked_at).collect()
}

fn details_of(
    processes: &Processes,
    container: &Container,
    cgroup: Counts,
    filesystem: Filesystem,
) -> io::Result<Option<Details>> {
    let machine = &container.machine;
    let process = processes.details(Path::new(STATUS_DIR), &machine.domain, machine.id.uuid())?;
    let disk = disk_usage(folder_of(container));
    Ok(process.map(|process| Details { at: now_nanos(), process, cgroup, disk, filesystem }))
}

/// Nothing of one that does not answer: the machines' own figures are worth having without.
fn filesystem_of(dir: &Path) -> Filesystem {
    let found = statvfs(dir).inspect_err(|error| tracing::warn!(%error, "file system of the pods' disks not read"));
    found.map_or_else(
        |_| Filesystem::default(),
        |found| Filesystem {
            size: found.blocks() * found.fragment_size(),
            inodes: found.files(),
            inodes_free: found.files_available(),
        },
    )
}

fn folder_of(container: &Container) -> &Path {
    container.machine.root.overlay.parent().unwrap_or(Path::new(""))
}

fn usage_of(processes: &Processes, container: &Container) -> io::Result<Usage> {
    let machine = &container.machine;
    let process = processes.usage(Path::new(STATUS_DIR), &machine.domain, machine.id.uuid())?;
    Ok(Usage { at: now_nanos(), process, disk: disk_usage(folder_of(container)) })
}
