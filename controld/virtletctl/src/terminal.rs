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

/// Signals that ask us to end, with their numbers.
#[derive(Debug)]
pub(super) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Listens from now on; the process no longer ends by itself.
    pub(super) fn listen() -> Result<Self, CtlError> {
        let listen = |kind: SignalKind| Ok((kind.as_raw_value(), signal(kind)?));
        ENDING.into_iter().map(listen).collect::<Result<_, _>>().map(Self).map_err(no_signals)
    }

    /// Waits for one; its number.
    pub(super) async fn next(&mut self) -> i32 {
        let waiting = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async {
                signal.recv().await;
                *number
            })
        });
        select_all(waiting).await.0
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

#[cfg(test)]
mod tests {
    use nix::sys::signal::{Signal, raise};

    use super::*;

    #[tokio::test]
    async fn a_signal_that_ends_us_is_told_by_its_exit_code() {
        let mut signals = Signals::listen().expect("they are heard");
        for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
            raise(signal).expect("sent");
            assert_eq!(CtlError::Interrupted(signals.next().await).exit_code(), code, "{signal}");
        }
    }
}
