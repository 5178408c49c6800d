//! Lines of a shell in a guest that has our agent.

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::node::{CRI_SOCKET, Vm};

/// Runs a line, once there is an agent.
pub(super) fn exec(bed: &Bed, vm: &Vm, line: &str) -> Result<Ended> {
    let words = ["--socket", CRI_SOCKET, "exec", &vm.container, "--", "sh", "-c", line];
    finish(&mut command(bed.program("virtletctl"), words), TOOL_DEADLINE)
}

/// Fails unless the line succeeds and prints just this.
pub(super) fn prints(bed: &Bed, vm: &Vm, line: &str, stdout: &str) -> Result<()> {
    let ended = exec(bed, vm, line)?;
    ensure!(ended.code == Some(0) && ended.stdout.trim_end() == stdout, "{line}: {ended:?}");
    Ok(())
}
