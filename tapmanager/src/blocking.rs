//! Runs work that blocks (disk, namespaces) off the reactor. Called by everything that awaits such work.

use std::panic::resume_unwind;

/// Runs `work` on a thread where it may block. A panic in it goes on in the caller.
pub(crate) async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => resume_unwind(panic),
        // The runtime is going down and never started the work; so does whoever waits here.
        Err(Err(_)) => std::future::pending().await,
    }
}
