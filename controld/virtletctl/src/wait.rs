//! Says on a terminal what is waited for when it takes long.

use std::future::Future;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::text::shown;

/// Longer than this, nobody looks at a silent terminal without wondering.
const PATIENCE: Duration = Duration::from_secs(2);

/// Does `work`, and says once what is waited for (`what`) if it takes longer than people like.
pub(super) async fn told<T>(what: &str, work: impl Future<Output = T>) -> T {
    tell_late(work, || {
        let mut stderr = io::stderr();
        if stderr.is_terminal() {
            // What goes wrong with it is no reason to stop.
            let _ = writeln!(stderr, "{}", shown(what));
        }
    })
    .await
}

async fn tell_late<T>(work: impl Future<Output = T>, tell: impl FnOnce()) -> T {
    let mut work = Box::pin(work);
    match tokio::time::timeout(PATIENCE, &mut work).await {
        Ok(done) => done,
        Err(_elapsed) => {
            tell();
            work.await
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_takes_long_is_told() {
        for (takes, wanted) in [(Duration::ZERO, false), (PATIENCE / 2, false), (PATIENCE * 4, true)] {
            let told = Cell::new(false);
            tell_late(sleep(takes), || told.set(true)).await;
            assert_eq!(told.get(), wanted, "{takes:?}");
        }
    }
}
