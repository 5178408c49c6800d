//! A guard of [`crate::net::filter`] and the redirect behind it as one extended BPF program.
//!
//! Used by [`crate::net`] for the `ebpf` data path: [`load`] gives a program to the kernel and [`super::tc`] hangs it on
//! a link, which then keeps it, so the descriptor need not be kept. No compiler is needed on the node: [`translate`]
//! makes it from the classic program, so both data paths filter by one description. Needs `CAP_BPF` and
//! `CAP_NET_ADMIN`.
//!
//! Frames are not counted here: the clsact qdisc that the program hangs on counts what comes in and what is dropped.

#![expect(unsafe_code, reason = "the bpf system call, which nix and libc do not wrap")]

use std::io;
use std::mem::size_of;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;

use super::bpf::Program;

#[cfg(test)]
pub(crate) mod probe;
mod translate;

use translate::Instruction;

// Of `linux/bpf.h`.
const PROG_LOAD: libc::c_int = 5;
const PROG_TYPE_SCHED_CLS: u32 = 3;
/// Shown by `bpftool prog` as whose the program is.
const NAME: &[u8; 16] = b"virtlet_guard\0\0\0";
/// Nothing that the program calls asks for another.
const LICENSE: &[u8] = b"Apache-2.0\0";
/// Enough for the end of what the verifier has to say, which is what matters.
const LOG_LEN: u32 = 65_536;

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    /// A classic instruction that is not known: one of the assembler's own that was forgotten.
    #[error("classic BPF instruction {code:#x} has no translation")]
    Untranslatable {
        /// Its code.
        code: u16,
    },
    /// The kernel refused.
    #[error("the kernel refused the filter as eBPF ({verdict}); use the data path `tc`")]
    Refused {
        /// The last that its verifier said.
        verdict: String,
        /// Its word.
        #[source]
        cause: io::Error,
    },
}

/// What `PROG_LOAD` reads of `union bpf_attr`.
#[repr(C)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
}

/// Loads `guard` as a program for `cls_bpf` in direct-action mode: what the guard lets go on is redirected out of the
/// link `redirect_to` of the namespace that the filter is put in.
pub(crate) fn load(guard: &Program, redirect_to: u32) -> Result<OwnedFd, EbpfError> {
    let code = translate::translate(guard, redirect_to)?;
    // Without a log at first: writing one takes most of the time.
    submit(&code, &mut []).or_else(|_| {
        let mut log = vec![0; LOG_LEN as usize];
        submit(&code, &mut log).map_err(|errno| EbpfError::Refused { verdict: verdict(&log), cause: errno.into() })
    })
}

fn submit(code: &[Instruction], log: &mut [u8]) -> Result<OwnedFd, Errno> {
    let size = |len: usize| u32::try_from(len).map_err(|_| Errno::E2BIG);
    let mut attr = Load {
        prog_type: PROG_TYPE_SCHED_CLS,
        insn_cnt: size(code.len())?,
        insns: code.as_ptr().addr() as u64,
        license: LICENSE.as_ptr().addr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_size: size(log.len())?,
        log_buf: if log.is_empty() { 0 } else { log.as_mut_ptr().addr() as u64 },
        kern_version: 0,
        prog_flags: 0,
        prog_name: *NAME,
    };
    let fd = bpf(PROG_LOAD, &mut attr)?;
    let fd = libc::c_int::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just opened it for us, with CLOEXEC, and nobody else knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The system call. What `attr` points to must outlive it and be as long as `attr` says.
fn bpf<T>(command: libc::c_int, attr: &mut T) -> Result<libc::c_long, Errno> {
    // SAFETY: `attr` is whole and outlives the call, and holds the addresses and lengths of live buffers: both callers
    // take them from slices that they hold.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attr, size_of::<T>()) };
    Errno::result(result)
}

/// The verifier's last line before its statistics: why it refused.
fn verdict(log: &[u8]) -> String {
    let text = log.split(|byte| *byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default();
    let line = text.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed "));
    line.unwrap_or("it gave no reason").to_owned()
}

#[cfg(test)]
mod tests;
