//! When our book of networks and tapmanager's are compared: after each new connection, until they agree.

use std::time::{Duration, Instant};

use crate::error::Chain;
use crate::sandbox::Sandboxes;
use crate::tap::Tap;

/// When a tapmanager that did not answer, or did not know yet, is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long pods that tapmanager recovers are waited for. Its own steps have shorter deadlines.
const RECOVERED: Duration = Duration::from_secs(600);

/// Compares for ever.
pub(super) async fn with_tapmanager(sandboxes: Sandboxes, tap: Tap) {
    let mut agreed = 0;
    let mut waiting: Option<Instant> = None;
    loop {
        let connection = tap.connected(agreed).await;
        match sandboxes.agree().await {
            Ok(recovering) if recovering.is_empty() => (agreed, waiting) = (connection, None),
            Ok(recovering) => {
                let since = *waiting.get_or_insert_with(|| {
                    tracing::info!(pods = ?recovering, "waiting for tapmanager to recover pods");
                    Instant::now()
                });
                if since.elapsed() > RECOVERED {
                    let seconds = RECOVERED.as_secs();
                    tracing::error!(pods = ?recovering, "pods not recovered by tapmanager within {seconds} s; left as they are");
                    (agreed, waiting) = (connection, None);
                    continue;
                }
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "sandboxes not compared with tapmanager yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}
