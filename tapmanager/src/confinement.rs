//! Gives up what the daemon does not need: capabilities, new privileges, and most system calls.
//!
//! Called by `main` after [`crate::spawner::fork`] and before the runtime has threads, for both are a thread's own and
//! its children's. Who takes the daemon over through a packet, a socket or a file can still do to networks what it can,
//! which is a lot, but starts no program, traces nobody, loads no module and gets no right back.
//!
//! A call that is not on the list fails with `EPERM` rather than kill the daemon: the error is logged where it is made.

use std::io;

use common::jail::{self, BpfProgram, Cmp, FilterError};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// What the daemon does that ordinary processes may not: each with its name (capabilities(7)), and why. Everything else is given up.
pub(crate) const KEPT: [(CapabilitySet, &str, &str); 6] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN", "links, taps and filters"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW", "packet sockets for DHCP and router advertisements"),
    (CapabilitySet::SYS_ADMIN, "CAP_SYS_ADMIN", "network namespaces"),
    (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE", "to see a peer's executable"),
    (CapabilitySet::CHOWN, "CAP_CHOWN", "to give the hand-off socket to QEMU's group"),
    (CapabilitySet::MKNOD, "CAP_MKNOD", "device nodes of macvtaps"),
];

/// System calls that are allowed whatever their arguments.
const ALLOWED: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads; that they are no processes is looked at below.
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_membarrier,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    // Files.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_mknodat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Waiting.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    // Networks and namespaces. Which file system `fsopen` opens is said by a string, where no filter looks, and a macvtap
    // needs two: a sysfs of its pod and a tmpfs. They are mounted nowhere, for `move_mount` and `open_tree` are not here;
    // `mount`, which namespaces are kept by, is.
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_ioctl,
    libc::SYS_mount,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
    // About ourselves and the machine.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getrandom,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older forms, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_OF_OLD: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_mknod,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_stat,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_OF_OLD: &[libc::c_long] = &[];

/// Families of sockets: the protocol's own, netlink, packets, and IP for questions about links.
const FAMILIES: [libc::c_int; 5] = [libc::AF_UNIX, libc::AF_NETLINK, libc::AF_PACKET, libc::AF_INET, libc::AF_INET6];
/// glibc names its arenas by it (linux/prctl.h).
const PR_SET_VMA: libc::c_int = 0x5356_4d41;
const PRCTLS: [libc::c_int; 2] = [libc::PR_SET_NAME, PR_SET_VMA];

/// Why the daemon could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The kernel refuses to take a capability away.
    #[error("failed to give up capabilities; run tapmanager as root, with CAP_SETPCAP in its bounding set")]
    Capabilities(#[from] io::Error),
    /// The kernel does not take the filter, or there is none for this machine.
    #[error("failed to install the filter of system calls; set `seccomp = false` if this kernel has none")]
    Filter(#[source] FilterError),
}

/// Confines the calling thread and all that it will start. `filter` says whether system calls are filtered.
///
/// # Errors
/// See [`ConfinementError`].
pub fn confine(filter: bool) -> Result<(), ConfinementError> {
    give_up_capabilities()?;
    if filter { install_filter().map_err(ConfinementError::Filter) } else { Ok(()) }
}

fn kept() -> CapabilitySet {
    KEPT.iter().map(|(capability, ..)| *capability).collect()
}

fn give_up_capabilities() -> io::Result<()> {
    for capability in (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number)) {
        // One that this kernel does not know is not there to be given up.
        if !kept().contains(capability) && capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)?;
        }
    }
    clear_ambient_capability_set()?;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: effective & kept(), permitted: permitted & kept(), inheritable },
    )?)
}

fn install_filter() -> Result<(), FilterError> {
    jail::install_without_clone3(&filter()?)
}

fn filter() -> Result<BpfProgram, FilterError> {
    let mut calls = jail::calls(ALLOWED.iter().chain(ALLOWED_OF_OLD));
    calls.insert(libc::SYS_clone, jail::threads_only()?);
    // Its own threads: a panic that aborts, and what glibc tells a thread. Others are not to be killed.
    calls.insert(libc::SYS_tgkill, vec![jail::first_argument(Cmp::Eq, std::process::id().into())?]);
    for (call, values) in [(libc::SYS_socket, &FAMILIES[..]), (libc::SYS_prctl, &PRCTLS)] {
        let rules = values.iter().map(|value| jail::first_argument(Cmp::Eq, value.unsigned_abs().into()));
        calls.insert(call, rules.collect::<Result<_, _>>()?);
    }
    jail::only(calls)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;
    use std::process::Command;
    use std::thread;

    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    /// On a thread that ends with it: what it gives up, the other tests keep.
    fn confined<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        thread::spawn(move || {
            confine(true).expect("confined");
            work()
        })
        .join()
        .expect("joined")
    }

    #[test]
    fn a_confined_thread_starts_no_program_and_gets_nothing_back() {
        let errors = confined(|| {
            let all = CapabilitySet::all();
            set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all })
                .expect_err("capset");
            [
                Command::new("/bin/true").spawn().map(drop).expect_err("exec"),
                socket(AddressFamily::Vsock, SockType::Stream, SockFlag::empty(), None).expect_err("vsock").into(),
                nix::unistd::chroot("/").expect_err("chroot").into(),
                io::Error::from(nix::sys::signal::kill(nix::unistd::Pid::this(), None).expect_err("kill")),
                capability_is_in_bounding_set(CapabilitySet::CHOWN).expect_err("prctl").into(),
            ]
        });
        for error in errors {
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
        }
    }

    #[expect(unsafe_code, reason = "the call has no safe form")]
    fn tgkill(process: u32, thread: u32) -> io::Result<()> {
        // SAFETY: takes three numbers; signal 0 only asks whether it could be sent.
        match unsafe { libc::syscall(libc::SYS_tgkill, process, thread, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    #[test]
    fn a_confined_thread_kills_no_other_process() {
        let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = other.id();
        tgkill(pid, pid).expect("root may, unconfined");
        let refused = confined(move || {
            tgkill(std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs()).expect("its own thread");
            tgkill(pid, pid).expect_err("another process")
        });
        assert_eq!(refused.raw_os_error(), Some(libc::EPERM), "{refused}");
        other.kill().expect("killed");
        other.wait().expect("reaped");
    }

    #[test]
    fn a_confined_thread_does_the_work() {
        confined(|| {
            let dir = tempfile::tempdir().expect("tempdir");
            let file = File::create(dir.path().join("a")).expect("file");
            file.sync_all().expect("sync");
            std::fs::rename(dir.path().join("a"), dir.path().join("b")).expect("rename");
            UdpSocket::bind("127.0.0.1:0").expect("socket");
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
            let answer = runtime.block_on(async { tokio::task::spawn_blocking(|| 42).await });
            assert_eq!(answer.expect("a thread"), 42);
            nix::sys::prctl::set_name(c"confined").expect("a name");
        });
    }

    fn bounding() -> CapabilitySet {
        let all = (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number));
        all.filter(|one| capability_is_in_bounding_set(*one).unwrap_or(false)).collect()
    }

    #[test]
    fn listed_capabilities_are_kept_and_no_others() {
        let (before, bound) = (capabilities(None).expect("read"), bounding());
        let missing = kept() - before.permitted;
        assert!(missing.is_empty(), "this test needs root with the capabilities {missing:?}");
        let confining = thread::spawn(|| {
            confine(false).expect("confined");
            (capabilities(None).expect("read"), bounding())
        });
        let (left, left_bound) = confining.join().expect("joined");
        for (set, before, left) in [
            ("effective", before.effective, left.effective),
            ("permitted", before.permitted, left.permitted),
            ("bounding", bound, left_bound),
        ] {
            assert_eq!(left, before & kept(), "{set}");
        }
        assert_eq!(left.inheritable, CapabilitySet::empty());
        let after = capabilities(None).expect("read");
        assert_eq!(after.permitted, before.permitted, "other threads keep theirs");
    }
}
