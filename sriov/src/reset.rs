//! Resets a function, so that it keeps nothing of the guest that had it.
//!
//! Called by `claim` when a guest ended badly: vfio-pci resets a device when its last user closes it, but does
//! not tell whether that worked.
//!
//! Kernel ABI: `Documentation/ABI/testing/sysfs-bus-pci`, `reset` and (Linux 5.15) `reset_method`. A device that the
//! kernel cannot reset has no file `reset`.

use std::io;

use crate::address::PciAddr;
use crate::sysfs::{self, ReadError, Sysfs};

/// How a reset went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// The function is as after power-on.
    Done,
    /// The kernel knows no way to reset it. Its next driver sets it up anew all the same.
    NoMethod,
}

/// Why a function was not reset.
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// Every way failed.
    #[error(
        "failed to reset `{addr}` (ways: {}); reset its PF or the node before anything uses it again",
        methods.as_deref().unwrap_or("not told")
    )]
    Failed {
        /// The device.
        addr: PciAddr,
        /// What the kernel tried, in this order.
        methods: Option<String>,
        /// Its word on the last.
        #[source]
        cause: io::Error,
    },
    /// A part of sysfs cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl Sysfs {
    /// In which ways the kernel would reset the device, best first; `None` if it does not tell.
    ///
    /// # Errors
    /// If the file is there and cannot be read.
    pub fn reset_methods(&self, addr: PciAddr) -> Result<Option<String>, ReadError> {
        Ok(sysfs::text(&self.device(addr).join("reset_method"))?.filter(|methods| !methods.is_empty()))
    }

    /// Resets the device. The kernel takes up to a second or so for it, and more if the device does not answer.
    ///
    /// # Errors
    /// See [`ResetError`].
    pub fn reset(&self, addr: PciAddr) -> Result<Reset, ResetError> {
        let methods = self.reset_methods(addr)?;
        match self.store(&self.device(addr).join("reset"), "1") {
            Ok(()) => Ok(Reset::Done),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound && self.device(addr).is_dir() => Ok(Reset::NoMethod),
            Err(cause) => Err(ResetError::Failed { addr, methods, cause }),
        }
    }
}

#[cfg(test)]
mod tests;
