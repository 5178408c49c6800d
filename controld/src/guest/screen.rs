//! The screen of a machine that has one: QEMU makes the socket itself, so it has a directory of its own for it, which nobody else enters.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;

use proto::tap::QemuUser;
use vmspec::MachineId;

use crate::config::Config;
use crate::files::remove;

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
