//! Our terminal, as sessions with machines use it.

mod keys;
mod raw;
mod size;

use std::io;

use futures_util::future::select_all;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) use self::keys::read as keys;
pub(super) use self::raw::Raw;
pub(super) use self::size::size;

use super::error::CtlError;

/// What ends us from outside, and must not leave a terminal that shows no typing.
const ENDING: [SignalKind; 4] =
    [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];

/// Signals that ask us to end.
#[derive(Debug)]
pub(super) struct Signals(Vec<Signal>);

impl Signals {
    /// Listens from now on; the process no longer ends by itself.
    pub(super) fn listen() -> Result<Self, CtlError> {
        ENDING.map(signal).into_iter().collect::<Result<_, _>>().map(Self).map_err(no_signals)
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        select_all(self.0.iter_mut().map(|signal| Box::pin(signal.recv()))).await;
    }
}

/// Tells when the terminal has another size.
pub(super) fn resized() -> Result<Signal, CtlError> {
    signal(SignalKind::window_change()).map_err(no_signals)
}

fn no_signals(cause: io::Error) -> CtlError {
    CtlError::Terminal { action: "listen to signals", cause }
}

pub(super) fn no_raw(cause: io::Error) -> CtlError {
    CtlError::Terminal { action: "make the terminal raw", cause }
}

pub(super) fn no_keys(cause: io::Error) -> CtlError {
    CtlError::Terminal { action: "read the keyboard", cause }
}
