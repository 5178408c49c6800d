//! A descriptor that the runtime watches: the one place that hands a descriptor to tokio.
//!
//! Used for packet sockets, the servers of the tap protocol and processes. `AsyncFd::register` is an unsafe function because the descriptor must stay open and the same while it is registered; here it is owned, and never
//! given out other than borrowed, so callers need no such care.

#![expect(unsafe_code, reason = "AsyncFd::register is an unsafe function")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// An owned, non-blocking descriptor registered with the runtime.
#[derive(Debug)]
pub struct Ready {
    fd: AsyncFd<OwnedFd>,
}

impl Ready {
    /// Registers `fd`, which must be non-blocking. Must be called in the context of the runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub fn register(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: the AsyncFd owns the descriptor, and an OwnedFd always is the same open descriptor.
        let fd = unsafe { AsyncFd::register(fd) }.map_err(|refused| refused.into_parts().1)?;
        Ok(Self { fd })
    }

    /// Runs `operation` each time that the descriptor may be readable, until it does something other than would-block.
    ///
    /// # Errors
    /// What `operation` fails with.
    pub async fn read<T>(&self, mut operation: impl FnMut(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        self.fd.async_io(Interest::READABLE, |fd| operation(fd.as_fd())).await
    }

    /// Runs `operation` each time that the descriptor may be writable, until it does something other than would-block.
    ///
    /// # Errors
    /// What `operation` fails with.
    pub async fn write<T>(&self, mut operation: impl FnMut(BorrowedFd<'_>) -> io::Result<T>) -> io::Result<T> {
        self.fd.async_io(Interest::WRITABLE, |fd| operation(fd.as_fd())).await
    }

    /// Waits until the descriptor is readable.
    ///
    /// # Errors
    /// When the runtime ends.
    pub async fn readable(&self) -> io::Result<()> {
        self.fd.readable().await.map(drop)
    }

    /// The descriptor, no longer watched.
    #[must_use]
    pub fn into_inner(self) -> OwnedFd {
        self.fd.into_inner()
    }
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.get_ref().as_fd()
    }
}
