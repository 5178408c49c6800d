//! The process of a virtiofsd.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use common::{Ready, bounded};
use nix::libc::ESRCH;
use proto::share::PID_FILE;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::hypervisor::process::{arguments_in, pid_in};

/// Bytes of the list of its children that are read: it has one.
const MAX_CHILDREN: u64 = 4096;

/// A virtiofsd that runs, or has run a moment ago.
#[derive(Debug)]
pub(super) struct Virtiofsd {
    pid: i32,
    pub(super) process: OwnedFd,
}

/// The virtiofsd of the share in `dir`; `None` if it has ended. Blocks.
///
/// # Errors
/// When that is not known: nobody says which one it was.
pub(crate) fn virtiofsd(dir: &Path) -> io::Result<Option<Virtiofsd>> {
    let pid = pid_in(&dir.join(PID_FILE))?;
    let Some(process) = open(pid)? else { return Ok(None) };
    // Opened before it is looked at: the number may be another process's by now.
    let arguments = match File::open(format!("/proc/{pid}/cmdline")).and_then(arguments_in) {
        Ok(arguments) => arguments,
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // By the machine's id: the directory may be spelled otherwise since.
    let id = dir.file_name().unwrap_or_default().as_encoded_bytes();
    let is_ours = arguments.split(|byte| *byte == 0).any(|argument| argument.ends_with(id));
    Ok(is_ours.then_some(Virtiofsd { pid, process }))
}

/// The processes of the virtiofsd of the share in `dir`: libvirt's child, and the one that serves, in namespaces of its own. Blocks.
pub(crate) fn processes(dir: &Path) -> Vec<i32> {
    let Ok(Some(Virtiofsd { pid, .. })) = virtiofsd(dir) else { return Vec::new() };
    let children = File::open(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.and_then(|file| bounded::first(file, MAX_CHILDREN)).unwrap_or_default();
    std::iter::once(pid).chain(numbers(&String::from_utf8_lossy(&children))).collect()
}

/// The numbers in a list of the kernel's, which has a space after each: the last one may be cut off.
fn numbers(list: &str) -> impl Iterator<Item = i32> {
    list.split_inclusive(' ').filter_map(|number| number.strip_suffix(' ')?.parse().ok())
}

/// `None` if there is no such process.
pub(crate) fn open(pid: i32) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(opened) => Ok(Some(opened)),
        // The number may be a thread's by now.
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for the end of a process.
///
/// # Errors
/// When the runtime cannot watch it.
pub(crate) async fn end_of(process: OwnedFd) -> io::Result<()> {
    // Readable once the process has ended (pidfd_open(2)).
    Ready::register(process)?.readable().await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn a_number_that_is_cut_off_is_no_process() {
        assert_eq!(numbers("12 345 ").collect::<Vec<_>>(), [12, 345]);
        assert_eq!(numbers("12 34").collect::<Vec<_>>(), [12]);
        assert_eq!(numbers("").count(), 0);
    }

    #[test]
    fn arguments_are_read_no_further_than_virtiofsd_has_some() {
        let dir = tempfile::tempdir().expect("dir");
        let mut process = Command::new("sh");
        process.args(["-c", "echo; read x", "-", &"x".repeat(100_000)]).arg(dir.path());
        let mut process = process.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
        let mut began = [0];
        process.stdout.take().expect("piped").read_exact(&mut began).expect("began");
        fs::write(dir.path().join(PID_FILE), process.id().to_string()).expect("written");
        let found = virtiofsd(dir.path());
        process.kill().expect("killed");
        process.wait().expect("reaped");
        assert!(found.expect("looked").is_none(), "no virtiofsd has such arguments");
    }

    #[tokio::test]
    async fn a_process_is_virtiofsd_if_it_was_given_the_share() {
        let dir = tempfile::tempdir().expect("dir");
        assert!(virtiofsd(dir.path()).is_err(), "nothing is said");
        let mut process = Command::new("sh");
        process.args(["-c", "echo; read x", "-"]).arg(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = process.spawn().expect("runs");
        // A process that is about to execute a program shows no arguments yet.
        let mut began = [0];
        process.stdout.take().expect("piped").read_exact(&mut began).expect("began");
        fs::write(dir.path().join(PID_FILE), process.id().to_string()).expect("written");
        let other = tempfile::tempdir().expect("dir");
        fs::copy(dir.path().join(PID_FILE), other.path().join(PID_FILE)).expect("copied");
        assert!(virtiofsd(other.path()).expect("looked").is_none(), "its number is another one's");
        let found = virtiofsd(dir.path()).expect("looked").expect("runs");
        process.kill().expect("killed");
        process.wait().expect("reaped");
        timeout(Duration::from_secs(10), end_of(found.process)).await.expect("its end is seen").expect("watched");
        assert!(virtiofsd(dir.path()).expect("looked").is_none(), "it has ended");
        fs::write(dir.path().join(PID_FILE), "x").expect("written");
        assert!(virtiofsd(dir.path()).is_err(), "no number");
    }
}
