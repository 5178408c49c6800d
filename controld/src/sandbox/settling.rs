//! Differences between the two books that are being settled, each by a task of its own: one that hangs holds up no other.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;

use proto::tap::PodId;
use tokio::sync::Semaphore;
use tokio::task::{Id, JoinSet};
use vmspec::error::{Error, Kind, Result};

/// Differences that are settled at a time.
const AT_A_TIME: usize = 16;

/// What becomes of the differences that were found over one connection to tapmanager.
#[derive(Debug)]
pub struct Settling {
    tasks: JoinSet<Result<()>>,
    /// The pod of each task, and the comparison that began it.
    under_way: HashMap<Id, (PodId, u64)>,
    /// Not taken up again over this connection: some are left as they are.
    settled: BTreeSet<PodId>,
    /// Connections that were compared over.
    connections: u64,
    places: Arc<Semaphore>,
}

impl Default for Settling {
    fn default() -> Self {
        Self {
            tasks: JoinSet::new(),
            under_way: HashMap::new(),
            settled: BTreeSet::new(),
            connections: 0,
            places: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }
}

impl Settling {
    /// There is another connection: what was settled may differ again.
    pub fn begin_anew(&mut self) {
        self.settled.clear();
        self.connections += 1;
    }

    /// Settles a pod's difference by `work`, unless that was done or is under way.
    pub(super) fn settle(&mut self, pod: &PodId, work: impl Future<Output = Result<()>> + Send + 'static) {
        if self.settled.contains(pod) || self.under_way().any(|other| other == pod) {
            return;
        }
        let places = self.places.clone();
        let task = self.tasks.spawn(async move {
            // The semaphore is never closed.
            let _place = places.acquire().await.ok();
            work.await
        });
        self.under_way.insert(task.id(), (pod.clone(), self.connections));
    }

    /// Takes in what has ended.
    ///
    /// # Errors
    /// When one of them has failed: it can be settled again.
    pub(super) fn collect(&mut self) -> Result<()> {
        let mut collected = Ok(());
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            let (task, outcome) = match ended {
                Ok((task, outcome)) => (task, outcome),
                Err(error) => (error.id(), Err(Error::because(Kind::Internal, "a pod's network not compared", error))),
            };
            match (self.under_way.remove(&task), outcome) {
                (Some((pod, connection)), Ok(())) => {
                    if connection == self.connections {
                        self.settled.insert(pod);
                    }
                }
                (_, outcome) => collected = collected.and(outcome),
            }
        }
        collected
    }

    /// Pods whose differences are being settled.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &PodId> {
        self.under_way.values().map(|(pod, _)| pod)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn id(text: &str) -> PodId {
        text.parse().expect("pod id")
    }

    async fn let_them_run() {
        // The test's one thread runs each task that is ready once before it comes back.
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn one_that_hangs_holds_up_no_other_and_is_not_begun_twice() {
        let mut settling = Settling::default();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = || {
            let begun = begun.clone();
            async move {
                begun.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        };
        settling.settle(&id("hangs"), pending());
        settling.settle(&id("quick"), count());
        let_them_run().await;
        settling.collect().expect("none has failed");
        assert_eq!(settling.under_way().collect::<Vec<_>>(), [&id("hangs")]);
        for pod in ["hangs", "quick"] {
            settling.settle(&id(pod), count());
        }
        let_them_run().await;
        assert_eq!(begun.load(Ordering::SeqCst), 1, "neither again over this connection");
        settling.collect().expect("none has failed");
        settling.begin_anew();
        for pod in ["hangs", "quick"] {
            settling.settle(&id(pod), count());
        }
        let_them_run().await;
        assert_eq!(begun.load(Ordering::SeqCst), 2, "what is under way goes on");
    }

    #[tokio::test]
    async fn what_was_settled_over_the_connection_before_is_settled_again() {
        let mut settling = Settling::default();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        settling.settle(&id("a"), async move { ended.await.map_err(|_| Error::new(Kind::Internal, "dropped")) });
        settling.begin_anew();
        end.send(()).expect("it waits");
        let_them_run().await;
        settling.collect().expect("settled");
        settling.settle(&id("a"), ready(Ok(())));
        assert_eq!(settling.under_way().count(), 1);
    }

    #[tokio::test]
    async fn what_failed_is_told_and_may_be_settled_again() {
        let mut settling = Settling::default();
        settling.settle(&id("a"), ready(Err(Error::new(Kind::Unavailable, "no answer"))));
        settling.settle(&id("b"), async { panic!("a bug") });
        let_them_run().await;
        settling.collect().expect_err("both have failed");
        assert_eq!(settling.under_way().count(), 0);
        settling.settle(&id("a"), ready(Ok(())));
        let_them_run().await;
        settling.collect().expect("settled");
    }
}
