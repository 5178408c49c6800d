//! The wish that a command ends, with the signal that brought it.
//!
//! Who runs the command fires it. Commands listen that have something to undo, or that end well by it.

use tokio::signal::unix::SignalKind;
use tokio::sync::watch;

use super::error::CtlError;

/// Fires by a signal.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Sender<Option<i32>>);

impl Interrupt {
    /// Fires, by the signal of this number.
    pub fn fire(&self, signal: i32) {
        self.0.send_replace(Some(signal));
    }

    /// Fails if it has fired.
    pub(super) fn check(&self) -> Result<(), CtlError> {
        match *self.0.borrow() {
            Some(signal) => Err(CtlError::Interrupted(signal)),
            None => Ok(()),
        }
    }

    /// Waits until it fires; the signal's number.
    pub(super) async fn fired(&self) -> i32 {
        match self.0.subscribe().wait_for(Option::is_some).await.as_deref() {
            Ok(Some(signal)) => *signal,
            // Never: a sender is ours.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Does what has no end of its own until it fires. To leave by Ctrl-C is no failure, as with kubectl.
    pub(super) async fn ends(&self, work: impl Future<Output = Result<(), CtlError>>) -> Result<(), CtlError> {
        tokio::select! {
            ended = work => ended,
            signal = self.fired() => {
                if signal == SignalKind::interrupt().as_raw_value() { Ok(()) } else { Err(CtlError::Interrupted(signal)) }
            }
        }
    }
}

impl Default for Interrupt {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}
