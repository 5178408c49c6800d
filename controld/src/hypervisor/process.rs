//! A machine's QEMU as the kernel counts it.
//!
//! libvirt could be asked as well, but it asks QEMU's monitor, and one QEMU that hangs would hold up the figures of all
//! machines. `/proc` answers for every process.

use std::io;
use std::path::Path;
use std::time::Duration;

use procfs::ProcError;
use procfs::process::Process;
use uuid::Uuid;

pub use super::cut_start::STATUS_DIR;

/// What a QEMU uses, its guest included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUsage {
    /// Time on processors, of all threads since the start.
    pub cpu: Duration,
    /// Bytes in memory, files included.
    pub resident: u64,
    /// Bytes in memory that no file backs: the guest's memory and QEMU's own. They cannot be dropped and read again.
    pub private: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Page faults that no disk had to answer.
    pub minor_faults: u64,
    /// Page faults that a disk answered.
    pub major_faults: u64,
    pub threads: u64,
}

/// What the QEMU of machine `id` uses, whose name in libvirt is `name`; `None` if it does not run. `dir` is where libvirt
/// keeps the pid files, [`STATUS_DIR`].
///
/// # Errors
/// When a file cannot be read, or says something else than it should.
pub fn usage(dir: &Path, name: &str, id: Uuid) -> io::Result<Option<ProcessUsage>> {
    let Some(pid) = found(std::fs::read_to_string(dir.join(format!("{name}.pid"))))? else { return Ok(None) };
    let pid = pid.trim().parse().map_err(|_| io::Error::other(format!("pid file of `{name}` has no number in it")))?;
    gone_is_none(usage_of(pid, &id.to_string()))
}

/// One open directory in `/proc` answers all: another process that is given the pid meanwhile is not mixed in.
fn usage_of(pid: i32, id: &str) -> Result<Option<ProcessUsage>, ProcError> {
    let process = Process::new(pid)?;
    // libvirt leaves the file behind if it dies with QEMU, and then the pid may be anybody's.
    if !process.cmdline()?.iter().any(|argument| argument == id) {
        return Ok(None);
    }
    let (stat, status) = (process.stat()?, process.status()?);
    let bytes = |kib: Option<u64>| kib.unwrap_or_default().saturating_mul(1024);
    let ticks = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok(Some(ProcessUsage {
        cpu: Duration::from_secs_f64(ticks),
        resident: bytes(status.vmrss),
        private: bytes(status.rssanon).saturating_add(bytes(status.rssshmem)),
        swapped: bytes(status.vmswap),
        minor_faults: stat.minflt,
        major_faults: stat.majflt,
        threads: status.threads,
    }))
}

fn gone_is_none<T>(result: Result<Option<T>, ProcError>) -> io::Result<Option<T>> {
    match result {
        Ok(usage) => Ok(usage),
        Err(ProcError::NotFound(_)) => Ok(None),
        // A process that ends while it is read.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    const ID: Uuid = Uuid::from_u128(7);

    /// A process with the machine's id among its arguments, and libvirt's note of it.
    fn machine(id: &str) -> (tempfile::TempDir, Child) {
        let dir = tempfile::tempdir().expect("tempdir");
        let child = Command::new("cat").args(["-", id]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.expect("spawned");
        std::fs::write(dir.path().join("vm.pid"), child.id().to_string()).expect("written");
        (dir, child)
    }

    #[test]
    fn a_machine_is_found_by_its_pid_file_and_its_id() {
        let (dir, mut child) = machine(&ID.to_string());
        let usage = usage(dir.path(), "vm", ID).expect("read").expect("it runs");
        assert_eq!(usage.threads, 1);
        assert!(usage.private > 0 && usage.resident > usage.private, "{usage:?}");
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert_eq!(super::usage(dir.path(), "vm", ID).expect("read"), None, "it has ended");
    }

    #[test]
    fn a_pid_that_another_process_has_is_no_machine() {
        let (dir, mut child) = machine("another");
        assert_eq!(usage(dir.path(), "vm", ID).expect("read"), None);
        assert_eq!(usage(dir.path(), "absent", ID).expect("read"), None);
        child.kill().expect("killed");
        child.wait().expect("waited for");
        std::fs::write(dir.path().join("vm.pid"), "x").expect("written");
        let error = usage(dir.path(), "vm", ID).expect_err("no number");
        assert_eq!(error.to_string(), "pid file of `vm` has no number in it");
    }
}
