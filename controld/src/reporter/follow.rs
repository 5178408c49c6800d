//! Tells of one VM as it changes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::look::look;
use super::report::{Known, Report};
use super::way::{Untold, Way};
use crate::guest::agents::Agents;
use crate::model::{Container, PodName};
use crate::store::Store;

/// Between two changes that are told of one VM.
const PERIOD: Duration = Duration::from_secs(10);
/// Longest wait after attempts that failed.
const LATE: Duration = Duration::from_secs(300);

/// Ends when there is nobody to tell of: pod or container are gone.
pub(super) async fn follow(
    store: Store,
    agents: Arc<Agents>,
    way: Arc<Way>,
    container: watch::Receiver<Arc<Container>>,
) {
    let known = watch::Sender::new(Known::default());
    tokio::select! {
        () = look(&agents, container.clone(), &known) => {}
        () = tell(&store, &way, container, known.subscribe()) => {}
    }
}

async fn tell(
    store: &Store,
    way: &Way,
    mut container: watch::Receiver<Arc<Container>>,
    mut known: watch::Receiver<Known>,
) {
    let mut there: Option<Report> = None;
    let mut pause = PERIOD;
    loop {
        let now = container.borrow_and_update().clone();
        let Some(sandbox) = store.sandbox(&now.sandbox) else { return };
        let wanted = Report::of(&now, &sandbox, &known.borrow_and_update());
        if there.as_ref().is_none_or(|there| !wanted.is_in(there)) {
            let pod = PodName::of(&sandbox);
            match way.tell(&pod, &wanted, there.take()).await {
                Ok(told) => (there, pause) = (Some(told), PERIOD),
                Err(Untold::Gone) => return,
                Err(Untold::Failed) => pause = LATE.min(pause * 2),
                Err(Untold::Refused(error)) => {
                    // Once, and not as often as it is tried.
                    if pause == PERIOD {
                        let PodName { namespace, name, .. } = &pod;
                        tracing::warn!(namespace, name, error, "the cluster does not take what it is told of a VM");
                    }
                    pause = LATE.min(pause * 2);
                }
            }
            // Whatever changes meanwhile is told at once then.
            sleep(pause).await;
            continue;
        }
        let is_over = tokio::select! {
            changed = container.changed() => changed.is_err(),
            changed = known.changed() => changed.is_err(),
        };
        if is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
