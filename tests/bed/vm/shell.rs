//! Lines of a shell in a guest that has our agent.

use std::time::Duration;

use anyhow::{Result, ensure};
use tests::case::Bed;
use tests::command::{Ended, TOOL_DEADLINE, command, finish};
use tests::node::{BOOT_DEADLINE, CRI_SOCKET, Vm};
use tests::wait::wait_guest;

/// A VM that has just started, once our agent answers in its guest.
pub(super) fn answers(bed: &Bed, vm: Vm) -> Result<Vm> {
    answers_within(bed, vm, BOOT_DEADLINE)
}

/// [`answers`] with another deadline.
pub(super) fn answers_within(bed: &Bed, vm: Vm, deadline: Duration) -> Result<Vm> {
    wait_guest("our agent", deadline, || Ok((exec(bed, &vm, "true")?.code == Some(0)).then_some(())))?;
    Ok(vm)
}

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
