//! The screen of a machine that has one: QEMU makes the socket itself, so it has a directory of its own for it, which nobody else enters.
//! What lies there is what QEMU has put there: whoever connects to it looks at what it is, and who listens (`virtletctl vnc`).

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Chain, off_reactor};
use proto::tap::QemuUser;
use serde::Serialize;
use vmspec::MachineId;
use vmspec::plan::MachinePlan;

use crate::config::Config;
use crate::files::remove;
use crate::hypervisor::process::{Processes, STATUS_DIR};

/// A screen, as whoever is to connect to it is told of it.
#[derive(Debug, Serialize)]
pub(crate) struct Screen {
    socket: PathBuf,
    /// The process of QEMU, which is to be the other end; `None` if the machine does not run.
    pid: Option<i32>,
}

impl Screen {
    /// That of a machine that has one.
    pub(crate) async fn of(config: &Config, processes: &Arc<Processes>, machine: &MachinePlan) -> Self {
        let (processes, domain, id) = (processes.clone(), machine.domain.clone(), machine.id);
        let found = off_reactor(move || processes.pid(Path::new(STATUS_DIR), &domain, id.uuid())).await;
        let pid = found.unwrap_or_else(|error| {
            tracing::warn!(machine = %id, error = %Chain(&error), "QEMU behind a screen not found");
            None
        });
        Self { socket: socket(config, id), pid }
    }
}

/// Where a machine's socket is.
pub(crate) fn dir(config: &Config, machine: MachineId) -> PathBuf {
    config.run_dir.join("screen").join(machine.to_string())
}

/// The socket, if the machine has a screen and runs.
pub(crate) fn socket(config: &Config, machine: MachineId) -> PathBuf {
    dir(config, machine).join("vnc.sock")
}

/// Makes the directory for a machine that is to be started, without what an earlier start left. Blocks.
pub(crate) fn prepare(config: &Config, machine: MachineId, qemu: QemuUser) -> io::Result<()> {
    let dir = dir(config, machine);
    remove(&dir)?;
    if let Some(all) = dir.parent() {
        DirBuilder::new().recursive(true).mode(0o711).create(all)?;
        fs::set_permissions(all, fs::Permissions::from_mode(0o711))?;
    }
    DirBuilder::new().mode(0o700).create(&dir)?;
    chown(&dir, Some(qemu.uid), Some(qemu.gid))
}
