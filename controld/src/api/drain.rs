//! How the server ends.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Runs `server` until `shutdown`, then tells it by `stop` to take no more calls, and gives those under way `deadline` to end.
///
/// What is given up is as if the daemon had been killed amid it: kubelet asks again, and records say what was begun.
///
/// # Errors
/// The server's own.
pub(super) async fn serve_until<E>(
    server: impl Future<Output = Result<(), E>>,
    stop: CancellationToken,
    shutdown: impl Future<Output = ()>,
    deadline: Duration,
) -> Result<(), E> {
    let mut server = pin!(server);
    tokio::select! {
        done = &mut server => return done,
        () = shutdown => stop.cancel(),
    }
    match tokio::time::timeout(deadline, server).await {
        Ok(done) => done,
        Err(_elapsed) => {
            tracing::warn!(deadline_s = deadline.as_secs(), "calls under way were given up at the end of the shutdown");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::Instant;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_holds_up_the_shutdown_for_the_deadline_and_no_longer() {
        let begun = Instant::now();
        let served = serve_until(pending::<Result<(), ()>>(), CancellationToken::new(), ready(()), DEADLINE).await;
        assert_eq!((served, begun.elapsed().as_secs()), (Ok(()), DEADLINE.as_secs()));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_end_end_it() {
        let stop = CancellationToken::new();
        let told = stop.clone();
        let server = async move {
            told.cancelled().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            Err("the transport failed last")
        };
        let begun = Instant::now();
        let served = serve_until(server, stop, ready(()), DEADLINE).await;
        assert_eq!((served, begun.elapsed().as_secs()), (Err("the transport failed last"), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_fails_is_not_waited_for() {
        let served = serve_until(ready(Err("no socket")), CancellationToken::new(), pending(), DEADLINE).await;
        assert_eq!(served, Err("no socket"));
    }
}
