//! What libvirt starts for a machine before QEMU, and ends when QEMU has: virtiofsd and swtpm wait for a QEMU that never comes, for ever.

use std::io;

use procfs::ProcError;
use procfs::process::{Process, all_processes};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use uuid::Uuid;

use crate::hypervisor::process::{arguments_in, gone_is_none};

/// By the kernel's name of a process. A virtiofsd that is not executed yet is our wrapper of it.
const PROGRAMS: [&str; 3] = ["virtiofsd", "fswrapper", "swtpm"];

/// Ends those of a machine that has no QEMU and will have none; fine if there are none. Each has the machine's id among its arguments.
///
/// # Errors
/// When processes cannot be listed, or one cannot be looked at or ended; the others are, all the same.
pub(super) fn end(id: Uuid) -> io::Result<()> {
    // As libvirt writes it, and as we do.
    let ids = [id.hyphenated().to_string(), id.simple().to_string()];
    let mut all_ended = Ok(());
    for process in all_processes().map_err(io::Error::other)? {
        let ended = gone_is_none(process.map(Some)).and_then(|process| match process {
            Some(process) => end_one(&process, &ids),
            None => Ok(()),
        });
        if ended.is_err() {
            all_ended = ended;
        }
    }
    all_ended
}

/// Ends a process if it is one of a machine's.
fn end_one(process: &Process, ids: &[String; 2]) -> io::Result<()> {
    let is_ours = || gone_is_none(is_of(process, ids).map(Some)).map(|is_ours| is_ours == Some(true));
    let Some(pid) = Pid::from_raw(process.pid).filter(|_| is_ours().unwrap_or(true)) else { return Ok(()) };
    let opened = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(opened) => opened,
        Err(Errno::SRCH | Errno::INVAL) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The number was another process's before it was opened, or is this one's still.
    if !is_ours()? {
        return Ok(());
    }
    match pidfd_send_signal(&opened, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    tracing::info!(
        pid = process.pid,
        machine = ids[0],
        "a program is ended that was started for a machine whose start was cut off"
    );
    Ok(())
}

fn is_of(process: &Process, ids: &[String; 2]) -> Result<bool, ProcError> {
    if !PROGRAMS.contains(&process.stat()?.comm.as_str()) {
        return Ok(false);
    }
    let arguments = arguments_in(process.open_relative("cmdline")?)?;
    let arguments = String::from_utf8_lossy(&arguments);
    Ok(ids.iter().any(|id| arguments.contains(id)))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::fs::symlink;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Child, Command, Stdio};

    use super::*;

    const ID: Uuid = Uuid::from_u128(0x1234_5678);

    /// A shell by this name that waits, with `argument`.
    fn waiting(dir: &tempfile::TempDir, name: &str, argument: &str) -> Child {
        let path = dir.path().join(name);
        symlink("/bin/sh", &path).expect("made");
        let mut child = Command::new(path);
        child.args(["-c", "echo ready; read -r _", "sh", argument]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().expect("spawned");
        // A process that is about to execute a program has neither its name nor its arguments.
        let mut ready = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut ready).expect("it says so");
        child
    }

    #[test]
    fn those_of_the_machine_end_and_no_others() {
        let [ours, others] = [(); 2].map(|()| tempfile::tempdir().expect("tempdir"));
        let of_ours = [
            waiting(&ours, "virtiofsd", &format!("/run/virtlet/share/{}", ID.simple())),
            waiting(&ours, "swtpm", &format!("dir=/var/lib/libvirt/swtpm/{}/tpm2,mode=0600", ID.hyphenated())),
        ];
        let of_others = [
            waiting(&others, "virtiofsd", "/run/virtlet/share/00000000000000000000000000000000"),
            waiting(&others, "qemu-img", &ID.to_string()),
        ];
        end(ID).expect("ended");
        end(ID).expect("again is fine");
        for mut child in of_ours {
            assert!(!child.wait().expect("waited for").success(), "it was killed");
        }
        for mut child in of_others {
            // At the end of its input it ends by itself.
            drop(child.stdin.take());
            assert_eq!(child.wait().expect("waited for").signal(), None, "it is another's");
        }
    }
}
