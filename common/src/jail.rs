//! What a process takes from itself for good, so that whoever takes it over can do little: limits, and filters of system
//! calls.
//!
//! A filter holds for the calling thread and for all that this thread starts, so it is installed before other threads.

use std::collections::BTreeMap;

use nix::sys::resource::{Resource, setrlimit};
pub use seccompiler::{BpfProgram, Error as FilterError, SeccompCmpOp as Cmp};
use seccompiler::{SeccompAction, SeccompCmpArgLen, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

/// System calls by number, and the rules for their arguments. One rule that fits is enough; without any the call is
/// listed whatever its arguments.
pub type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// These calls, whatever their arguments.
pub fn calls<'a>(numbers: impl IntoIterator<Item = &'a libc::c_long>) -> Calls {
    numbers.into_iter().map(|number| (*number, Vec::new())).collect()
}

/// A rule about the first argument, of which 32 bits count.
///
/// # Errors
/// When no filter can say so.
pub fn first_argument(compare: Cmp, value: u64) -> Result<SeccompRule, FilterError> {
    let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, compare, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}

/// Rules that let `clone` start threads and no processes.
///
/// # Errors
/// When no filter can say so.
pub fn threads_only() -> Result<Vec<SeccompRule>, FilterError> {
    let thread = libc::CLONE_THREAD.unsigned_abs().into();
    Ok(vec![first_argument(Cmp::MaskedEq(thread), thread)?])
}

/// A filter by which every call fails with `EPERM` that is not one of these.
///
/// # Errors
/// When the filter cannot be compiled for this machine.
pub fn only(allowed: Calls) -> Result<BpfProgram, FilterError> {
    compile(allowed, refuse(libc::EPERM), SeccompAction::Allow)
}

/// A filter by which these calls fail with `EPERM`.
///
/// # Errors
/// When the filter cannot be compiled for this machine.
pub fn all_but(refused: Calls) -> Result<BpfProgram, FilterError> {
    compile(refused, SeccompAction::Allow, refuse(libc::EPERM))
}

/// Installs a filter whose rules see the flags of every new thread and process: those of `clone3` are in memory, where no
/// filter looks. glibc takes `ENOSYS` for an old kernel's answer and calls `clone`.
///
/// Also sets `no_new_privs`, which the kernel wants before a filter.
///
/// # Errors
/// When the kernel does not take it.
pub fn install_without_clone3(filter: &BpfProgram) -> Result<(), FilterError> {
    let no_clone3 = compile(calls(&[libc::SYS_clone3]), SeccompAction::Allow, refuse(libc::ENOSYS))?;
    // The second one may let no third one in.
    install(&no_clone3)?;
    install(filter)
}

/// Installs a filter. May be called between fork and exec.
///
/// # Errors
/// When the kernel does not take it.
pub fn install(filter: &BpfProgram) -> Result<(), FilterError> {
    seccompiler::apply_filter(filter)
}

/// Sets soft and hard limits of this process. May be called between fork and exec.
///
/// # Errors
/// When the kernel does not take one; those before it are set.
pub fn limit<const N: usize>(limits: [(Resource, u64); N]) -> nix::Result<()> {
    limits.into_iter().try_for_each(|(resource, limit)| setrlimit(resource, limit, limit))
}

fn refuse(errno: libc::c_int) -> SeccompAction {
    SeccompAction::Errno(errno.unsigned_abs())
}

fn compile(calls: Calls, otherwise: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, FilterError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(calls, otherwise, listed, arch)?.try_into()?)
}
