//! Devices of the node that kubelet has allocated to a container: what a device plugin names by nodes and variables, and CDI by names.
//!
//! They are looked at before the machine is planned: those of VFIO become devices of the guest, and tokens nothing; the rest stay nodes,
//! which are planned as disks (`plan::disks`). What CDI adds is planned as if kubelet had said it. Nothing here is opened or changed.

mod agree;
mod cdi;
mod sort;
mod vfio;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use sriov::Sysfs;
use vmspec::error::{Error, Kind, Result};
use vmspec::host::check_handler;
use vmspec::plan::{CdiEdits, PassedDevice};
use vmspec::settings::Handler;
use vmspec::{ContainerConfig, Device, Mount, pod_dir};

pub(crate) use self::agree::agree;
use self::sort::Sort;

/// Where CDI is described, the later before the earlier.
const CDI: [&str; 2] = ["etc/cdi", "run/cdi"];

/// Where a node has what is looked at.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    cdi: Vec<PathBuf>,
    sysfs: Sysfs,
}

/// What was found of a container's devices.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// As kubelet wants the container, with what CDI adds, and without the nodes that are no disks.
    pub(crate) config: ContainerConfig,
    /// What each node of VFIO is.
    pub(crate) held: Vec<Held>,
    pub(crate) tokens: Vec<String>,
}

/// A node of VFIO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) node: String,
    /// CDI gives it: a device plugin need not name it by a variable.
    pub(crate) by_cdi: bool,
    pub(crate) devices: Vec<PassedDevice>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self::below(Path::new("/"))
    }

    fn below(root: &Path) -> Self {
        Self {
            cdi: CDI.iter().map(|dir| root.join(dir)).collect(),
            sysfs: Sysfs::new(&root.join("sys"), &root.join("dev")),
        }
    }

    /// Looks at the devices of a container of the pod with this UID. Blocks.
    ///
    /// # Errors
    /// When one cannot be given to a machine, or the handler's machines are given none.
    pub(crate) fn find(&self, config: &ContainerConfig, uid: &str, handler: &Handler) -> Result<Found> {
        let mut config = config.clone();
        let from_kubelet = config.devices.len();
        self.add_cdi(&mut config, handler)?;
        let mut found = Found { held: Vec::new(), tokens: Vec::new(), config };
        let mut seen = BTreeSet::new();
        for (nth, device) in std::mem::take(&mut found.config.devices).into_iter().enumerate() {
            let node = device.host_path.clone();
            let devices = match Sort::of(&node) {
                Sort::Token => {
                    found.tokens.push(node);
                    continue;
                }
                Sort::Group(number) => vfio::of_group(&self.sysfs, number),
                Sort::File(name) => vfio::of_file(&self.sysfs, &name).map(|device| vec![device]),
                Sort::Other => {
                    if !pod_dir::is_block_volume(&node, uid) {
                        check_handler(&node, handler)?;
                    }
                    found.config.devices.push(device);
                    continue;
                }
            };
            let what = || format!("device `{node}` cannot be given to a VM");
            let devices = devices.map_err(|cause| Error::because(Kind::State, what(), cause))?;
            if seen.insert(node.clone()) {
                found.held.push(Held { node, by_cdi: nth >= from_kubelet, devices });
            }
        }
        found.tokens.sort();
        found.tokens.dedup();
        Ok(found)
    }

    fn add_cdi(&self, config: &mut ContainerConfig, handler: &Handler) -> Result<()> {
        let Some(first) = config.cdi.first() else { return Ok(()) };
        check_handler(first, handler)?;
        let edits = cdi::edits(&self.cdi, &config.cdi)
            .map_err(|cause| Error::because(Kind::State, "a CDI device cannot be given to a VM", cause))?;
        let policy = handler.defaults.cdi_edits.get().copied().unwrap_or(CdiEdits::Refuse);
        if !edits.rest.is_empty() && policy == CdiEdits::Refuse {
            let rest: Vec<_> = edits.rest.iter().map(|name| format!("`{}`", name.escape_debug())).collect();
            let what = format!(
                "the CDI devices {} ask for {}, which a VM cannot have; `cdi_edits = \"ignore\"` of runtime handler `{}` would \
                 give it the devices without",
                config.cdi.join(", "),
                rest.join(", "),
                handler.name
            );
            return Err(Error::new(Kind::State, what));
        }
        config.devices.extend(edits.nodes.into_iter().map(|node| Device {
            host_path: node.host_path,
            container_path: node.path,
            read_only: node.read_only,
        }));
        config.mounts.extend(edits.mounts.into_iter().map(|mount| Mount {
            container_path: mount.path,
            host_path: mount.host_path,
            readonly: mount.read_only,
            ..Mount::default()
        }));
        let env = &mut config.process.env;
        for variable in edits.env {
            // What CDI says takes the place of what the pod says.
            let name = variable.split('=').next().unwrap_or_default();
            env.retain(|other| other.split('=').next() != Some(name));
            env.push(variable);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
