//! The process that decompresses, from within: `PROGRAM decompress KIND`, packed bytes on standard input, plain ones on
//! standard output, and at the end one line on standard error that says how it went ([`Outcome`]).
//!
//! First it gives up all that decompressing does not need. What is left are the calls of [`ALLOWED`], so whoever takes
//! it over through its input can compute, read, write to its three pipes, and end. It can open no file, make no socket,
//! start no process and reach no other.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, RawFd};
use std::process::ExitCode;
use std::str::FromStr;

use common::jail::{self, BpfProgram, FilterError};
use common::{Chain, Reason};
use nix::sys::prctl;
use nix::sys::resource::Resource;
use nix::sys::signal::Signal;

use super::{Compression, DecodeError, Decoder};
use crate::error::printable;

/// The program's first word.
pub(super) const SUBCOMMAND: &str = "decompress";
/// Bytes that are read, and written, at a time.
const PIECE: usize = 256 * 1024;
/// Memory that it may write to, and so the stacks of its threads too. Decoders take 128 MiB at most.
const MEMORY: u64 = 512 << 20;
/// Address space: what programs and libraries take, and what glibc reserves and never touches.
const ADDRESSES: u64 = 4 << 30;
/// Seconds of all processors together: more than the largest image takes.
const TIME: u64 = 24 * 3600;
/// The standard streams are below.
const FIRST_OTHER: RawFd = 3;

/// What decompressing takes, threads included; everything else fails with `EPERM`.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    // Its flags are seen to by the other filter.
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// How it went, as the line on standard error has it.
#[derive(Debug)]
pub(super) enum Outcome {
    Done,
    Failed(Failure),
}

/// A [`DecodeError`] between processes.
#[derive(Debug)]
pub(super) enum Failure {
    Truncated,
    Trailing,
    Memory,
    Broken(String),
    Start(String),
}

impl Failure {
    pub(super) fn of(self, by: Compression) -> DecodeError {
        match self {
            Self::Truncated => DecodeError::Truncated { by },
            Self::Trailing => DecodeError::Trailing { by },
            Self::Memory => DecodeError::Memory { by },
            Self::Broken(cause) => DecodeError::Broken { by, cause: io::Error::other(cause) },
            Self::Start(cause) => DecodeError::Start { by, cause: io::Error::other(cause) },
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Truncated { .. } => Self::Truncated,
            DecodeError::Trailing { .. } => Self::Trailing,
            DecodeError::Memory { .. } => Self::Memory,
            DecodeError::Broken { cause, .. } => Self::Broken(cause.to_string()),
            DecodeError::Start { cause, .. } => Self::Start(cause.to_string()),
            // Of the other side.
            died @ DecodeError::Died { .. } => Self::Broken(died.to_string()),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => writeln!(out, "done"),
            Self::Failed(Failure::Truncated) => writeln!(out, "truncated"),
            Self::Failed(Failure::Trailing) => writeln!(out, "trailing"),
            Self::Failed(Failure::Memory) => writeln!(out, "memory"),
            Self::Failed(Failure::Broken(why)) => writeln!(out, "broken {}", printable(why)),
            Self::Failed(Failure::Start(why)) => writeln!(out, "start {}", printable(why)),
        }
    }
}

/// Reads the line of a process that may have been taken over: anything else is none.
impl FromStr for Outcome {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let line = line.strip_suffix('\n').filter(|line| !line.contains('\n')).ok_or(())?;
        let (word, why) = line.split_once(' ').unwrap_or((line, ""));
        let why = || printable(why);
        Ok(match word {
            "done" => Self::Done,
            "truncated" => Self::Failed(Failure::Truncated),
            "trailing" => Self::Failed(Failure::Trailing),
            "memory" => Self::Failed(Failure::Memory),
            "broken" => Self::Failed(Failure::Broken(why())),
            "start" => Self::Failed(Failure::Start(why())),
            _ => return Err(()),
        })
    }
}

/// All of the process: `kind` is what the bytes on standard input are compressed by. To be called first in `main`,
/// while there are no threads.
#[must_use]
pub fn run_apart(kind: &str) -> ExitCode {
    let outcome = match decompress(kind) {
        Ok(()) => Outcome::Done,
        Err(failure) => Outcome::Failed(failure),
    };
    let said = io::stderr().write_all(outcome.to_string().as_bytes());
    if said.is_ok() && matches!(outcome, Outcome::Done) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn decompress(kind: &str) -> Result<(), Failure> {
    let by = Compression::ALL.into_iter().find(|by| by.to_string() == kind);
    let by = by.ok_or_else(|| Failure::Start(format!("`{}` is no compression", printable(kind))))?;
    close_others().map_err(|error| Failure::Start(error.to_string()))?;
    // The handles of the standard library have small buffers.
    let own = || Ok((io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?));
    let (input, output) = own().map_err(|error: io::Error| Failure::Start(error.to_string()))?;
    confine().map_err(|error| Failure::Start(Chain(&error).to_string()))?;
    let mut output = File::from(output);
    let mut plain = Decoder::new(by, BufReader::with_capacity(PIECE, File::from(input)))?;
    let mut piece = vec![0; PIECE];
    loop {
        let count = match plain.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) => {
                let broken = |cause: io::Error| Failure::Broken(cause.to_string());
                return Err(error.downcast::<DecodeError>().map_or_else(broken, Failure::from));
            }
        };
        output.write_all(&piece[..count]).map_err(|error| Failure::Broken(error.to_string()))?;
    }
}

/// Descriptors that were left open by whoever started the daemon, or by a fault of it, are none of ours.
fn close_others() -> io::Result<()> {
    let names = std::fs::read_dir("/proc/self/fd")?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse::<RawFd>().ok());
    // The directory's own is closed by now.
    for number in numbers.filter(|number| *number >= FIRST_OTHER) {
        let _ = nix::unistd::close(number);
    }
    Ok(())
}

/// Takes from this process what decompressing does not need, for good.
///
/// # Errors
/// When the kernel does not do so; then nothing may be read.
pub fn confine() -> Result<(), Reason> {
    limit().map_err(Reason::because("failed to limit the process"))?;
    let filter = allowed().map_err(Reason::because("failed to make a filter of system calls"))?;
    jail::install_without_clone3(&filter).map_err(Reason::because("failed to install a filter of system calls"))
}

fn limit() -> nix::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // No core either, not even to a program that the kernel starts for it.
    prctl::set_dumpable(false)?;
    jail::limit([
        (Resource::RLIMIT_CORE, 0),
        (Resource::RLIMIT_FSIZE, 0),
        (Resource::RLIMIT_DATA, MEMORY),
        (Resource::RLIMIT_AS, ADDRESSES),
        (Resource::RLIMIT_CPU, TIME),
    ])
}

fn allowed() -> Result<BpfProgram, FilterError> {
    let mut calls = jail::calls(ALLOWED);
    calls.insert(libc::SYS_clone, jail::threads_only()?);
    jail::only(calls)
}
