//! When our book of networks and tapmanager's are compared: after each new connection, until they agree.

use std::time::{Duration, Instant};

use common::Chain;

use crate::sandbox::{Sandboxes, Settling};
use crate::tap::Tap;

/// When a tapmanager that did not answer, or did not know yet, is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// After this long somebody is told of pods that tapmanager still recovers. Its own steps have shorter deadlines.
const RECOVERED: Duration = Duration::from_secs(600);
/// When it is asked again from then on: it may take a pod up yet, or lose it.
const SLOWLY: Duration = Duration::from_secs(30);

/// Pods that tapmanager recovers are waited for.
#[derive(Debug)]
struct Wait {
    since: Instant,
    told: bool,
}

/// Compares for ever.
pub(super) async fn with_tapmanager(sandboxes: Sandboxes, tap: Tap) {
    let (mut agreed, mut compared) = (0, 0);
    let mut settling = Settling::default();
    let mut waiting: Option<Wait> = None;
    loop {
        let connection = tap.connected(agreed).await;
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
