#![expect(unsafe_code, reason = "what happens between fork and exec has no safe form")]
//! What a program in a sandbox gives up between fork and exec.

use std::io;

use common::jail::{self, BpfProgram};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;
use tokio::process::Command;

use super::super::ConvertLimits;

/// Standard streams, both ends opened again, and what `qemu-img` wakes itself with.
const OPEN_FILES: u64 = 64;

/// Makes `command` confine itself before it becomes the program.
pub(super) fn confine(command: &mut Command, limits: ConvertLimits, filter: BpfProgram) {
    let before_exec = move || give_up(limits, &filter);
    // SAFETY: between fork and exec only calls that are safe in a signal handler may be made, by a process that was one
    // of many threads. `give_up` makes system calls and nothing else: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(before_exec) };
}

fn give_up(limits: ConvertLimits, filter: &BpfProgram) -> io::Result<()> {
    // Nobody in it, so no capability is left after exec; nor a link, nor a queue of others.
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC)?;
    // After that, which would undo it. The thread that started us waits for us.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    jail::limit([
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_CPU, limits.time.as_secs().max(1)),
        (Resource::RLIMIT_AS, limits.memory),
        (Resource::RLIMIT_FSIZE, limits.output),
        (Resource::RLIMIT_NOFILE, OPEN_FILES),
    ])?;
    // Also takes the right to new privileges.
    jail::install(filter).map_err(|_| io::ErrorKind::PermissionDenied.into())
}
