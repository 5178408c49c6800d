//! A packet socket that is read no faster than a budget allows. Used by [`super::serve`].
//!
//! [`BURST`] frames are taken at once, then one each [`REFILL`]. What comes faster waits in the socket's small buffer,
//! and beyond that the kernel drops it.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::budget::Budget;
use crate::sys::packet::PacketSocket;

/// Longest frame that is read, with its Ethernet header: what is asked here is far shorter on links of any MTU.
const MAX_FRAME: usize = 14 + 1500;
/// Frames that are taken as fast as they come: more than a boot with all of its clients.
pub(super) const BURST: u32 = 64;
/// One more frame is taken each time that this has passed.
pub(super) const REFILL: Duration = Duration::from_millis(25);

/// Receives from one side, at a limited rate.
#[derive(Debug)]
pub(super) struct Receiver<'a> {
    socket: &'a PacketSocket,
    /// Who is heard, for the log.
    side: &'static str,
    budget: Budget,
    /// Whether it was told in the log that the budget is spent.
    throttled: bool,
    buffer: [u8; MAX_FRAME],
}

// === impl Receiver ===

impl<'a> Receiver<'a> {
    /// Hears on `socket`, with a full budget.
    pub(super) fn new(socket: &'a PacketSocket, side: &'static str) -> Self {
        let budget = Budget::new(BURST, REFILL, Instant::now());
        Self { socket, side, budget, throttled: false, buffer: [0; MAX_FRAME] }
    }

    /// The next frame. Nothing is lost if this is dropped before it is ready.
    pub(super) async fn hear(&mut self) -> &[u8] {
        let len = loop {
            let wait = self.budget.wait(Instant::now());
            if !wait.is_zero() {
                if !self.throttled {
                    self.throttled = true;
                    tracing::warn!(side = self.side, "servers of the guest's address are flooded and hear more slowly");
                }
                sleep(wait).await;
            }
            let received = self.socket.recv(&mut self.buffer).await;
            // A failure costs as much as a frame. One comes each time the link goes down.
            self.budget.spend(Instant::now());
            match received {
                Ok(len) => break len,
                Err(error) => tracing::debug!(side = self.side, %error, "packet socket failed"),
            }
        };
        self.buffer.get(..len).unwrap_or_default()
    }
}
