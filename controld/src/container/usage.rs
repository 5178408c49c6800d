//! What running machines use of the node: kubelet evicts pods, scales them and shows `kubectl top` by it.
//!
//! A machine uses what its QEMU uses: guest memory that the guest has freed counts, as long as the node has not got it back.
//! Its writable layer is the folder of its pod's disks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Chain, now_nanos, off_reactor};

use super::Containers;
use crate::hypervisor::process::{self, ProcessUsage, STATUS_DIR};
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

impl Containers {
    /// Where the disks of pods lie.
    #[must_use]
    pub fn disks_dir(&self) -> &Path {
        self.uses.volumes.dir()
    }

    /// What these containers use. One that cannot be looked at is left out, and the log says why.
    pub async fn usage(&self, containers: Vec<Arc<Container>>) -> Vec<(Arc<Container>, Usage)> {
        off_reactor(move || {
            let with_usage = |container: Arc<Container>| match usage_of(&container) {
                Ok(usage) => Some((container, usage)),
                Err(error) => {
                    tracing::warn!(container = %container.id, error = %Chain(&error), "usage not read");
                    None
                }
            };
            containers.into_iter().filter_map(with_usage).collect()
        })
        .await
    }
}

fn usage_of(container: &Container) -> std::io::Result<Usage> {
    let machine = &container.machine;
    let process = process::usage(Path::new(STATUS_DIR), &machine.domain, machine.id.uuid())?;
    let folder = machine.root.parent().map(PathBuf::from).unwrap_or_default();
    Ok(Usage { at: now_nanos(), process, disk: disk_usage(&folder) })
}
