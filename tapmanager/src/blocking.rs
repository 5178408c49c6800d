//! Runs work that blocks (disk, namespaces) outside the threads of the async runtime. Called wherever such work is
//! awaited.
//!
//! A single piece of work goes to the runtime's pool of blocking threads ([`off_reactor`]; outside of an operation that
//! is [`common::off_reactor`]). The work of an Attach or a Detach is an [`operation`]: it has a thread of its own, on
//! which all its pieces run without a switch of threads for each. That thread may stay in the pod's network namespace,
//! because it ends with the operation.
//!
//! Invariant: an operation's thread starts no thread that outlives a call. A new thread would begin in the pod's namespace,
//! and the runtime would go on using it for other pods. [`aside`] sees to that.

use std::any::Any;
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tracing::{Instrument as _, Span, warn};

thread_local! {
    static OPERATION: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is an operation's own.
pub(crate) fn is_operation() -> bool {
    OPERATION.get()
}

/// Runs `work` on a thread of its own, which ends with it. A panic in it goes on in the caller.
pub(crate) async fn operation<F>(work: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let work = work.instrument(Span::current());
    let (start, started) = mpsc::sync_channel(1);
    let (done, outcome) = oneshot::channel();
    let runtime = Handle::current();
    let thread = thread::Builder::new().name("operation".to_owned()).spawn(move || {
        OPERATION.set(true);
        if let Ok(work) = started.recv() {
            let _ = done.send(catch_unwind(AssertUnwindSafe(|| runtime.block_on(work))));
        }
    });
    if let Err(error) = thread {
        // Slower, but the same.
        warn!(%error, "no thread for an operation");
        return work.await;
    }
    // The thread waits for it.
    let _ = start.send(work);
    settled(outcome.await.ok()).await
}

/// Runs `work` where it may block. A panic in it goes on in the caller.
pub(crate) async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if is_operation() {
        return work();
    }
    common::off_reactor(in_span(work)).await
}

/// Starts `work` where it may block, and gives a future of its result: an operation goes on meanwhile. A panic in it goes
/// on in whoever awaits that.
pub(crate) fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = T> + Send + 'static {
    let work = in_span(work);
    // On an operation's thread a worker of the runtime has to ask, for the sake of the invariant.
    let begun =
        if is_operation() { Handle::current().spawn(off_reactor(work)) } else { tokio::task::spawn_blocking(work) };
    async move {
        match begun.await.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            Err(Err(_cancelled)) => settled(None).await,
        }
    }
}

/// `work`, whose log lines belong to whoever asks for it.
fn in_span<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let span = Span::current();
    move || span.in_scope(work)
}

async fn settled<T>(outcome: Option<Result<T, Box<dyn Any + Send>>>) -> T {
    match outcome {
        Some(Ok(done)) => done,
        Some(Err(panic)) => resume_unwind(panic),
        // The runtime is going down and never did the work; so does whoever waits here.
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    fn here() -> ThreadId {
        thread::current().id()
    }

    #[tokio::test]
    async fn an_operation_is_on_one_thread_of_its_own_and_what_goes_aside_is_not() {
        let outside = off_reactor(here).await;
        let (own, pieces, aside) = operation(async {
            let first = off_reactor(here).await;
            tokio::task::yield_now().await;
            (here(), [first, off_reactor(here).await], aside(|| (here(), is_operation())).await)
        })
        .await;
        assert_eq!(pieces, [own, own]);
        assert_ne!(own, here());
        assert_ne!(own, outside);
        assert_ne!(aside.0, own);
        assert!(!aside.1 && !is_operation());
    }

    #[tokio::test]
    async fn a_panic_in_an_operation_goes_on_in_who_waits_for_it() {
        let waiting = tokio::spawn(operation(async { off_reactor(|| panic!("on purpose")).await }));
        let panic = waiting.await.expect_err("panics").into_panic();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
    }
}
