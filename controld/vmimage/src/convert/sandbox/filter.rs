//! The seccomp filter of a converter: refuses system calls that it never needs and that reach beyond its files.
//!
//! It lists what is refused rather than what is allowed, so that the next release of a C library does not break it. The
//! other restrictions of the sandbox hold without it.

use common::jail::{self, BpfProgram, Cmp, FilterError};

const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_ptrace,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_sched_setscheduler,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Metadata, which Landlock does not watch over.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_utimensat,
    libc::SYS_truncate,
    // The kernel's larger surfaces.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_personality,
    libc::SYS_fanotify_init,
    libc::SYS_inotify_init1,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_syslog,
];

/// Older forms, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const REFUSED_OF_OLD: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_futimesat,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_inotify_init,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_OF_OLD: &[libc::c_long] = &[];

/// The filter: what is refused fails with `EPERM`.
pub(super) fn program() -> Result<BpfProgram, FilterError> {
    let mut calls = jail::calls(REFUSED.iter().chain(REFUSED_OF_OLD));
    // Its own limits may be asked for, not those of others.
    calls.insert(libc::SYS_prlimit64, vec![jail::first_argument(Cmp::Ne, 0)?]);
    jail::all_but(calls)
}
