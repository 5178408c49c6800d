//! The thread that calls come to on a node whose containers go through us.
//!
//! A call that is passed on is a few short steps, between which it waits for the other runtime. On one thread they follow each other;
//! where there are several each step wakes another thread. And no call about machines is in their way: those have threads of their own.

use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

/// It ends when this is dropped, and all that runs on it.
#[derive(Debug)]
pub(super) struct CallThread {
    /// Of its runtime.
    pub(super) handle: Handle,
    _stop: DropGuard,
}

impl CallThread {
    /// Starts it.
    ///
    /// # Errors
    /// When there can be no thread or no poll of the kernel's.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        thread::Builder::new().name("calls".into()).spawn(move || {
            runtime.block_on(stopped.cancelled());
            // What it has given to threads of its own may hang, on a file server for one.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _stop: stop.drop_guard() })
    }
}
