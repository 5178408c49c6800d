//! Which processors the threads of a QEMU may use that are its guest's virtual CPUs.
//!
//! The machine's cgroup has the pod's processors, and the kernel moves threads among them. A container that kubelet's CPU manager has
//! given processors of its own gets one for each virtual CPU. This is sched_setaffinity(2) and not libvirt's `vcpupin`: libvirt would
//! set it in cgroups that QEMU has left, and a thread that enters a cgroup with a `cpuset` loses what was set before.

use std::fs;
use std::io;
use std::path::Path;

use common::Reason;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// Threads of a QEMU that are looked at, which starts as many as it may have: twice the virtual CPUs of the largest machine.
const MAX_THREADS: usize = 8192;
/// How QEMU names the thread of a virtual CPU: its number, and what runs it.
const NAME: &str = "CPU ";

/// Gives each virtual CPU of a QEMU one of `own`, in their order; all of them `all` if the numbers differ or there are none of
/// their own. It may be repeated.
///
/// # Errors
/// When QEMU has ended, or the kernel refuses.
pub fn pin(pid: i32, own: Option<&[u32]>, all: &[u32]) -> Result<(), Reason> {
    let threads = threads(Path::new("/proc"), pid).map_err(Reason::because("failed to look at QEMU's threads"))?;
    let each = own.filter(|own| own.len() == threads.len());
    for (place, (number, thread)) in threads.iter().enumerate() {
        let cpus = each.and_then(|own| own.get(place..=place)).unwrap_or(all);
        let set = set_of(cpus)?;
        match sched_setaffinity(Pid::from_raw(*thread), &set) {
            // It was unplugged.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(cause) => {
                return Err(Reason::new(format!("vCPU {number} may not be on processors {cpus:?} alone")).with(cause));
            }
        }
    }
    Ok(())
}

fn set_of(cpus: &[u32]) -> Result<CpuSet, Reason> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize)
            .map_err(Reason::because("a processor's number is beyond what the kernel's call takes"))?;
    }
    Ok(set)
}

/// Number and thread id of each virtual CPU, in the order of their numbers.
fn threads(proc: &Path, pid: i32) -> io::Result<Vec<(u16, i32)>> {
    let mut threads = Vec::new();
    for entry in fs::read_dir(proc.join(pid.to_string()).join("task"))?.take(MAX_THREADS) {
        let entry = entry?;
        // A thread that has ended meanwhile has no name.
        let Ok(name) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let number = name.strip_prefix(NAME).and_then(|rest| rest.split('/').next()?.parse().ok());
        let thread = entry.file_name().to_string_lossy().parse().ok();
        threads.extend(number.zip(thread));
    }
    threads.sort_unstable();
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_virtual_cpus_are_told_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        for (thread, name) in [("7", "qemu-system-x86"), ("11", "CPU 10/KVM"), ("9", "CPU 2/TCG"), ("8", "CPU x/KVM")] {
            let task = dir.path().join("7/task").join(thread);
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
        }
        assert_eq!(threads(dir.path(), 7).unwrap(), [(2, 9), (10, 11)]);
        assert!(threads(dir.path(), 8).is_err());
    }

    #[test]
    fn no_more_threads_are_looked_at_than_a_machine_has() {
        let dir = tempfile::tempdir().unwrap();
        for thread in 0..=MAX_THREADS {
            let task = dir.path().join("7/task").join(thread.to_string());
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), "CPU 1/KVM\n").unwrap();
        }
        assert_eq!(threads(dir.path(), 7).unwrap().len(), MAX_THREADS);
    }

    #[test]
    fn a_number_that_the_kernels_call_does_not_take_is_an_error() {
        assert!(set_of(&[0, 1]).is_ok());
        assert!(set_of(&[100_000]).is_err());
    }
}
