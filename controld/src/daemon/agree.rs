//! When our book of networks and tapmanager's are compared: after each new connection until they agree, when a machine has
//! ended, and from time to time.
//!
//! tapmanager finds out by itself that a pod's network is lost, and tells nobody. A machine that runs in it is left as it is;
//! once it has ended, kubelet must know before it makes another in that sandbox.

use std::time::{Duration, Instant};

use common::Chain;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use crate::sandbox::{Sandboxes, Settling};
use crate::store::feed::{Record, Shown};
use crate::tap::Tap;

/// When a tapmanager that did not answer, or did not know yet, is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// After this long somebody is told of pods that tapmanager still recovers. Its own steps have shorter deadlines.
const RECOVERED: Duration = Duration::from_secs(600);
/// When it is asked again from then on: it may take a pod up yet, or lose it.
const SLOWLY: Duration = Duration::from_secs(30);

/// When books that agreed are compared again. tapmanager itself looks at its pods no more often.
pub(crate) const ANEW: Duration = Duration::from_secs(300);

/// Pods that tapmanager recovers are waited for.
#[derive(Debug)]
struct Wait {
    since: Instant,
    told: bool,
}

/// Compares for ever: `anew` after the last time at the latest.
pub(crate) async fn with_tapmanager(sandboxes: Sandboxes, tap: Tap, mut changes: Receiver<Shown>, anew: Duration) {
    let (mut agreed, mut compared) = (0, 0);
    let mut settling = Settling::default();
    let mut waiting: Option<Wait> = None;
    loop {
        if agreed != 0 {
            tokio::select! {
                _another = tap.connected(agreed) => {}
                () = machine_ended(&mut changes) => {}
                () = tokio::time::sleep(anew) => {}
            }
            agreed = 0;
            settling.begin_anew();
        }
        let connection = tap.connected(0).await;
        if connection != compared {
            settling.begin_anew();
            compared = connection;
        }
        match sandboxes.agree(&mut settling).await {
            Ok(recovering) if recovering.is_empty() => (agreed, waiting) = (connection, None),
            Ok(recovering) => {
                let waiting = waiting.get_or_insert_with(|| {
                    tracing::info!(pods = ?recovering, "waiting for pods at tapmanager");
                    Wait { since: Instant::now(), told: false }
                });
                let (pause, tell) = waiting.next(Instant::now());
                if tell {
                    let seconds = RECOVERED.as_secs();
                    tracing::error!(pods = ?recovering, "pods not settled with tapmanager within {seconds} s; asking on");
                }
                tokio::time::sleep(pause).await;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "sandboxes not compared with tapmanager yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Waits until a machine has ended, or may have. All that have ended by then are one occasion.
async fn machine_ended(changes: &mut Receiver<Shown>) {
    loop {
        match changes.recv().await {
            Ok(shown) if !is_end(&shown.record) => {}
            Ok(_) | Err(RecvError::Lagged(_)) => break,
            // At shutdown.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    while changes.try_recv().is_ok() {}
}

fn is_end(record: &Record) -> bool {
    match record {
        Record::Container { before: Some(before), now } => {
            before.state.may_run() && now.as_ref().is_none_or(|now| !now.state.may_run())
        }
        Record::Container { .. } | Record::Sandbox { .. } => false,
    }
}

impl Wait {
    /// How long to wait before the next question, and whether somebody is to be told now, which is once.
    fn next(&mut self, now: Instant) -> (Duration, bool) {
        if now.duration_since(self.since) <= RECOVERED {
            return (AGAIN, false);
        }
        (SLOWLY, !std::mem::replace(&mut self.told, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_that_take_long_are_told_of_once_and_asked_for_ever() {
        let since = Instant::now();
        let mut wait = Wait { since, told: false };
        let asked = [0, 600, 601, 1000, 1_000_000].map(|at| wait.next(since + Duration::from_secs(at)));
        assert_eq!(asked, [(AGAIN, false), (AGAIN, false), (SLOWLY, true), (SLOWLY, false), (SLOWLY, false)]);
    }
}
