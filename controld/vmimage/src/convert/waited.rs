//! Runs work on a thread of its own, for as long as a caller waits for it.
//!
//! A thread cannot be ended from outside. So the reader that the work uses checks before each read, of one piece of a
//! table, whether the caller still waits.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use common::off_reactor;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::inspect::bytes::Bytes;

/// Something to read from that fails when nobody waits any more.
pub(super) struct Waited<B> {
    bytes: B,
    waiter: Weak<()>,
}

impl<B: Bytes> Bytes for Waited<B> {
    fn read(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        if self.waiter.strong_count() == 0 {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        self.bytes.read(at, room)
    }
}

/// What `work` makes of `bytes`, or that it takes longer than `time`. After that, and when the future is dropped, the next
/// read fails.
pub(super) async fn on_thread<B, T>(
    bytes: B,
    time: Duration,
    work: impl FnOnce(&Waited<B>) -> T + Send + 'static,
) -> Result<T, Elapsed>
where
    B: Bytes + Send + 'static,
    T: Send + 'static,
{
    let waiter = Arc::new(());
    let bytes = Waited { bytes, waiter: Arc::downgrade(&waiter) };
    let done = timeout(time, off_reactor(move || work(&bytes))).await;
    drop(waiter);
    done
}
