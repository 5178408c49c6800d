//! A machine's QEMU as the kernel counts it, found by whose number somebody has told, or else by the file that libvirt keeps it in.
//!
//! libvirt could be asked as well, but it asks QEMU's monitor, and one QEMU that hangs would hold up the figures of all
//! machines. `/proc` answers without QEMU, but for the files that are read out of its memory: its arguments are looked at
//! once.
//!
//! A QEMU that its guest has taken over says there what it likes, at any length: its arguments, the number in its pid file, as many
//! descriptors as it may have. So each is read up to a bound.

pub mod outlets;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::bounded;
use procfs::ProcError;
use procfs::process::{FDTarget, LimitValue, Process, Stat, Status};
use proto::tap::ProcessId;
use uuid::Uuid;
use vmspec::plan::FileId;

use self::outlets::Outlets;

/// Where libvirt's QEMU driver keeps the status of running machines, `NAME.xml`, the pid of each, and that of its daemon.
pub const STATUS_DIR: &str = "/run/libvirt/qemu";
/// Bytes of a pid file that are read: more than a number has.
const MAX_PID_FILE: u64 = 32;
/// Bytes of a process's arguments that are looked at. libvirt names the machine's id among the first of a QEMU's, after some kilobytes
/// where it lists what the processors can.
const MAX_ARGUMENTS: u64 = 64 << 10;
/// Descriptors of a QEMU that are counted. One with all the devices that a machine can have holds some thousands.
const MAX_DESCRIPTORS: usize = 16 << 10;

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

/// More of what a QEMU uses, which takes longer to find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessDetails {
    pub usage: ProcessUsage,
    /// Time on processors outside the kernel, the guest's included.
    pub user: Duration,
    /// Time on processors in the kernel.
    pub system: Duration,
    /// Bytes in memory that are a file's.
    pub file: u64,
    /// Bytes in memory that are shared: a file's, or guest memory that other processes have mapped.
    pub mapped: u64,
    /// Bytes of page tables.
    pub page_tables: u64,
    /// Most bytes that were ever in memory.
    pub peak: u64,
    /// Bytes that were read from a disk.
    pub read: u64,
    /// Bytes that were written to a disk.
    pub written: u64,
    /// Open descriptors, of which no more than some thousands are counted.
    pub descriptors: u64,
    /// Those of them that are sockets.
    pub sockets: u64,
    /// Threads that its user may have; `None` without a limit.
    pub threads_max: Option<u64>,
}

/// Which processes machines are.
#[derive(Debug, Default)]
pub struct Processes {
    machines: Mutex<HashMap<Uuid, Known>>,
}

/// What is known of one machine's.
#[derive(Debug, Default)]
struct Known {
    /// By whoever saw it start.
    told: Option<ProcessId>,
    /// The one that was recognised: by its arguments the first time, then by its number and the time of its start.
    seen: Option<ProcessId>,
}

impl Processes {
    /// What the QEMU of machine `id` uses, whose name in libvirt is `name`; `None` if it does not run. `dir` is where libvirt
    /// keeps the pid files, [`STATUS_DIR`].
    ///
    /// # Errors
    /// When a file cannot be read, or says something else than it should.
    pub fn usage(&self, dir: &Path, name: &str, id: Uuid) -> io::Result<Option<ProcessUsage>> {
        self.look(dir, name, id, usage_of)
    }

    /// The same in detail.
    ///
    /// # Errors
    /// As of [`Self::usage`].
    pub fn details(&self, dir: &Path, name: &str, id: Uuid) -> io::Result<Option<ProcessDetails>> {
        self.look(dir, name, id, details_of)
    }

    /// The process id of the QEMU of machine `id`, as [`Self::usage`] finds it.
    ///
    /// # Errors
    /// When a file cannot be read, or says something else than it should.
    pub fn pid(&self, dir: &Path, name: &str, id: Uuid) -> io::Result<Option<i32>> {
        self.look(dir, name, id, |process, _| Ok(process.pid))
    }

    /// The pipes of the command that machine `id` is for. Whoever has them reads what virtlogd would: only if there is none.
    ///
    /// # Errors
    /// As of [`Self::usage`].
    pub fn outlets(&self, dir: &Path, name: &str, id: Uuid) -> io::Result<Option<Outlets>> {
        Ok(self.look(dir, name, id, outlets::of)?.flatten())
    }

    /// Files that the QEMU of machine `id` has open by one of these names, whatever directory they are in. Blocks as long as their file systems do.
    ///
    /// # Errors
    /// As of [`Self::usage`].
    pub fn files(&self, dir: &Path, name: &str, id: Uuid, names: &[&OsStr]) -> io::Result<Option<Vec<FileId>>> {
        self.look(dir, name, id, |process, _| files_of(process, names))
    }

    /// Takes this process for that of machine `id`, as long as it runs and has the machine's id among its arguments.
    pub fn tell(&self, id: Uuid, process: ProcessId) {
        self.machines().entry(id).or_default().told = Some(process);
    }

    /// What was told of machine `id`.
    #[must_use]
    pub fn told(&self, id: Uuid) -> Option<ProcessId> {
        self.machines().get(&id)?.told
    }

    /// What was told comes first: the file in `dir` may be the process's own to write, or not be there.
    fn look<T>(
        &self,
        dir: &Path,
        name: &str,
        id: Uuid,
        look_at: impl Fn(&Process, &Stat) -> Result<T, ProcError>,
    ) -> io::Result<Option<T>> {
        if let Some(told) = self.told(id) {
            let seen = self.examine(id, told.pid, |started| started == told.started, &look_at)?;
            if seen.is_some() {
                return Ok(seen);
            }
        }
        let Some(pid) = found(pid_in(&dir.join(format!("{name}.pid"))))? else { return Ok(None) };
        self.examine(id, pid, |_| true, look_at)
    }

    /// One open directory in `/proc` answers all: another process that is given the pid meanwhile is not mixed in.
    fn examine<T>(
        &self,
        id: Uuid,
        pid: i32,
        may_be: impl Fn(u64) -> bool,
        look_at: impl Fn(&Process, &Stat) -> Result<T, ProcError>,
    ) -> io::Result<Option<T>> {
        gone_is_none(Process::new(pid).and_then(|process| {
            let stat = process.stat()?;
            if !may_be(stat.starttime) {
                return Ok(None);
            }
            let now = Some(ProcessId { pid, started: stat.starttime });
            if self.machines().get(&id).and_then(|known| known.seen) != now {
                // libvirt leaves the file behind if it dies with QEMU, and then the pid may be anybody's.
                if !has_argument(&process, &id.to_string())? {
                    return Ok(None);
                }
                self.machines().entry(id).or_default().seen = now;
            }
            look_at(&process, &stat).map(Some)
        }))
    }

    /// Forgets a machine that is no more.
    pub fn forget(&self, id: Uuid) {
        self.machines().remove(&id);
    }

    fn machines(&self) -> MutexGuard<'_, HashMap<Uuid, Known>> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is not there is nothing, and no failure.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// The number in a pid file. It may be the process's own to write: libvirt leaves a QEMU the descriptor.
///
/// # Errors
/// When the file cannot be read, or has no number in it.
pub(crate) fn pid_in(path: &Path) -> io::Result<i32> {
    let text = bounded::first(File::open(path)?, MAX_PID_FILE)?;
    let no_number = || format!("pid file `{}` has no number in it", path.display());
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, no_number()))
}

/// The arguments of a process from the file `cmdline` of its directory in `/proc`, as far as they are looked at.
///
/// # Errors
/// The kernel's.
pub(crate) fn arguments_in(file: File) -> io::Result<Vec<u8>> {
    bounded::first(file, MAX_ARGUMENTS)
}

fn has_argument(process: &Process, wanted: &str) -> Result<bool, ProcError> {
    let arguments = arguments_in(process.open_relative("cmdline")?)?;
    Ok(arguments.split(|byte| *byte == 0).any(|argument| argument == wanted.as_bytes()))
}

fn usage_of(process: &Process, stat: &Stat) -> Result<ProcessUsage, ProcError> {
    Ok(usage_by(stat, &process.status()?))
}

fn usage_by(stat: &Stat, status: &Status) -> ProcessUsage {
    ProcessUsage {
        cpu: ticks(stat.utime.saturating_add(stat.stime)),
        resident: bytes(status.vmrss),
        private: bytes(status.rssanon).saturating_add(bytes(status.rssshmem)),
        swapped: bytes(status.vmswap),
        minor_faults: stat.minflt,
        major_faults: stat.majflt,
        threads: status.threads,
    }
}

fn details_of(process: &Process, stat: &Stat) -> Result<ProcessDetails, ProcError> {
    let (status, io) = (process.status()?, process.io()?);
    let (descriptors, sockets) = counted(process.fd()?.map(|descriptor| Some(descriptor.ok()?.target)));
    let threads_max = match process.limits()?.max_processes.soft_limit {
        LimitValue::Value(threads) => Some(threads),
        LimitValue::Unlimited => None,
    };
    Ok(ProcessDetails {
        usage: usage_by(stat, &status),
        user: ticks(stat.utime),
        system: ticks(stat.stime),
        file: bytes(status.rssfile),
        mapped: bytes(status.rssfile).saturating_add(bytes(status.rssshmem)),
        page_tables: bytes(status.vmpte),
        peak: bytes(status.vmhwm),
        read: io.read_bytes,
        written: io.write_bytes,
        descriptors,
        sockets,
        threads_max,
    })
}

/// How many descriptors there are, and how many of them are sockets; one that is closed meanwhile leads nowhere.
fn counted(descriptors: impl Iterator<Item = Option<FDTarget>>) -> (u64, u64) {
    descriptors.take(MAX_DESCRIPTORS).fold((0, 0), |(all, sockets), target| {
        (all + 1, sockets + u64::from(matches!(target, Some(FDTarget::Socket(_)))))
    })
}

/// Others are not looked at: they may be on what hangs.
fn files_of(process: &Process, names: &[&OsStr]) -> Result<Vec<FileId>, ProcError> {
    let mut files = Vec::new();
    for descriptor in process.fd()?.take(MAX_DESCRIPTORS).filter_map(Result::ok) {
        let FDTarget::Path(path) = &descriptor.target else { continue };
        // One that is closed meanwhile leads nowhere.
        if path.file_name().is_some_and(|name| names.contains(&name))
            && let Ok(found) = fs::metadata(format!("/proc/{}/fd/{}", process.pid, descriptor.fd))
        {
            files.push(FileId::of(found.dev(), found.ino()));
        }
    }
    Ok(files)
}

/// Of what the kernel counts in kibibytes.
fn bytes(kib: Option<u64>) -> u64 {
    kib.unwrap_or_default().saturating_mul(1024)
}

pub(super) fn ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// `None` of a process that is gone.
pub(crate) fn gone_is_none<T>(result: Result<Option<T>, ProcError>) -> io::Result<Option<T>> {
    match result {
        Ok(found) => Ok(found),
        Err(ProcError::NotFound(_)) => Ok(None),
        // A process that ends while it is read.
        Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => Ok(None),
        Err(error) => Err(io::Error::other(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Child, Command, Stdio};

    use super::*;

    const ID: Uuid = Uuid::from_u128(7);

    /// A process with the machine's id among its arguments, and libvirt's note of it.
    fn machine(id: &str) -> (tempfile::TempDir, Child) {
        machine_with(&[id])
    }

    fn machine_with(arguments: &[&str]) -> (tempfile::TempDir, Child) {
        let dir = tempfile::tempdir().expect("tempdir");
        let script = ["-c", "echo ready; read -r _", "sh"];
        let child =
            Command::new("sh").args(script).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("spawned");
        // The kernel counts memory in lots: a process that has done nothing may have none.
        let mut ready = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut ready).expect("it says so");
        std::fs::write(dir.path().join("vm.pid"), child.id().to_string()).expect("written");
        (dir, child)
    }

    #[test]
    fn a_machine_is_found_by_its_pid_file_and_its_id() {
        let (dir, mut child) = machine(&ID.to_string());
        let processes = Processes::default();
        let usage = processes.usage(dir.path(), "vm", ID).expect("read").expect("it runs");
        assert_eq!(usage.threads, 1);
        let details = processes.details(dir.path(), "vm", ID).expect("read").expect("it runs");
        assert!(details.descriptors >= 3 && details.sockets == 0, "{details:?}");
        assert!(usage.resident > 0 && usage.private <= usage.resident, "{usage:?}");
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert_eq!(processes.usage(dir.path(), "vm", ID).expect("read"), None, "it has ended");
    }

    #[test]
    fn a_machine_is_found_by_what_is_told_where_libvirt_has_no_file() {
        let (dir, mut child) = machine(&ID.to_string());
        let pid = i32::try_from(child.id()).expect("a pid");
        let started = Process::new(pid).and_then(|process| process.stat()).expect("it runs").starttime;
        std::fs::remove_file(dir.path().join("vm.pid")).expect("removed");
        let found = |told| {
            let processes = Processes::default();
            processes.tell(ID, told);
            processes.pid(dir.path(), "vm", ID).expect("read")
        };
        assert_eq!(found(ProcessId { pid, started }), Some(pid));
        assert_eq!(found(ProcessId { pid, started: started + 1 }), None, "a later process has its number");
        let own = Process::myself().and_then(|process| process.stat()).expect("own figures");
        let other = ProcessId { pid: own.pid, started: own.starttime };
        assert_eq!(found(other), None, "it has not the machine's id among its arguments");
        // What is told wrongly hides nothing.
        std::fs::write(dir.path().join("vm.pid"), pid.to_string()).expect("written");
        assert_eq!(found(other), Some(pid));
        child.kill().expect("killed");
        child.wait().expect("waited for");
        assert_eq!(found(ProcessId { pid, started }), None, "it has ended");
    }

    #[test]
    fn what_is_told_comes_before_a_file_that_the_process_may_write() {
        let (dir, mut child) = machine(&ID.to_string());
        let (other_dir, mut other) = machine(&ID.to_string());
        let pid = i32::try_from(child.id()).expect("a pid");
        let started = Process::new(pid).and_then(|process| process.stat()).expect("it runs").starttime;
        let processes = Processes::default();
        processes.tell(ID, ProcessId { pid, started });
        let found = processes.pid(other_dir.path(), "vm", ID).expect("read");
        processes.forget(ID);
        let of_file = processes.pid(other_dir.path(), "vm", ID).expect("read");
        drop(dir);
        for process in [&mut child, &mut other] {
            process.kill().expect("killed");
            process.wait().expect("waited for");
        }
        assert_eq!((found, of_file), (Some(pid), i32::try_from(other.id()).ok()));
    }

    #[test]
    fn a_pid_that_another_process_has_is_no_machine() {
        let (dir, mut child) = machine("another");
        let processes = Processes::default();
        assert_eq!(processes.usage(dir.path(), "vm", ID).expect("read"), None);
        assert_eq!(processes.usage(dir.path(), "absent", ID).expect("read"), None);
        child.kill().expect("killed");
        child.wait().expect("waited for");
        std::fs::write(dir.path().join("vm.pid"), "x").expect("written");
        let error = processes.usage(dir.path(), "vm", ID).expect_err("no number");
        assert!(error.to_string().ends_with("vm.pid` has no number in it"), "{error}");
    }

    #[test]
    fn of_what_a_process_says_no_more_is_read_than_a_machine_has_to_say() {
        let id = ID.to_string();
        // The kernel takes none that is longer than 128 KiB.
        let long = "x".repeat(100_000);
        for (arguments, is_found) in [([id.as_str(), &long], true), ([long.as_str(), &id], false)] {
            let (dir, mut child) = machine_with(&arguments);
            let found = Processes::default().usage(dir.path(), "vm", ID).expect("read");
            child.kill().expect("killed");
            child.wait().expect("waited for");
            assert_eq!(found.is_some(), is_found);
        }
        // Longer than memory.
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("vm.pid");
        std::fs::write(&path, "1\n").expect("written");
        File::options().write(true).open(&path).and_then(|file| file.set_len(1 << 40)).expect("extended");
        let error = pid_in(&path).expect_err("no number");
        assert!(error.to_string().ends_with("vm.pid` has no number in it"), "{error}");
    }

    #[test]
    fn open_files_are_known_by_what_they_are() {
        let dir = tempfile::tempdir().expect("tempdir");
        let [disk, other] = ["disk.img", "other"].map(|name| File::create(dir.path().join(name)).expect("made"));
        let of = |file: &File| file.metadata().map(|found| FileId::of(found.dev(), found.ino())).expect("looked at");
        let open = || {
            let names = [OsStr::new("root.qcow2"), OsStr::new("disk.img")];
            Process::myself().and_then(|process| files_of(&process, &names)).expect("own files")
        };
        let id = of(&disk);
        assert!(open().contains(&id) && !open().contains(&of(&other)));
        drop(disk);
        assert!(!open().contains(&id), "it is closed");
    }

    #[test]
    fn descriptors_are_counted_up_to_a_bound() {
        let some = [Some(FDTarget::Socket(7)), None, Some(FDTarget::Path("/dev/kvm".into()))];
        assert_eq!(counted(some.into_iter()), (3, 1));
        let without_end = std::iter::repeat_with(|| Some(FDTarget::Socket(7)));
        assert_eq!(counted(without_end), (MAX_DESCRIPTORS as u64, MAX_DESCRIPTORS as u64));
    }
}
