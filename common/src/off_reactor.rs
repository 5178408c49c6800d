//! Work that waits for the disk, kept off the threads that serve everybody.

use std::future;
use std::panic;

/// Runs `work` on a thread of its own. It runs to its end even if nobody waits for it any more.
pub async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // The runtime is going down, and whoever waits with it.
            Err(_cancelled) => future::pending().await,
        },
    }
}
