//! A pool of network namespaces made ahead: making one is the largest part of what the kernel does for a pod's network.
//!
//! The actors' kernel ([`crate::pod`]) keeps it, and mounts a namespace from it for each pod. A namespace in the pool
//! has neither name nor mount, only a descriptor; so all of them go with the daemon, and there is nothing to clean up.
//! Each is as [`Netns::create`](super::netns::Netns::create) would make it: empty, with its loopback link up.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::Chain;
use tracing::warn;

use super::netns::UnmountedNetns;
use crate::blocking::aside;

/// Older ones are not given to a pod: what the kernel copied of the node's settings (`net.ipv4.conf`) may have changed.
const MAX_AGE: Duration = Duration::from_secs(600);

/// A stock of namespaces.
#[derive(Debug)]
pub(crate) struct NetnsPool {
    wanted: usize,
    shelf: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// When each was made; the oldest first.
    spares: Vec<(Instant, UnmountedNetns)>,
    filling: bool,
}

impl NetnsPool {
    /// A stock of as many as `wanted`, which is being filled. Like [`Self::take`] it must be called in the context of the
    /// runtime.
    pub(crate) fn start(wanted: u16) -> Arc<Self> {
        let spares = Arc::new(Self { wanted: wanted.into(), shelf: Mutex::default() });
        spares.refill(Instant::now());
        spares
    }

    /// One of them, if there is one. The stock is filled up meanwhile.
    pub(crate) fn take(self: &Arc<Self>) -> Option<UnmountedNetns> {
        self.take_at(Instant::now())
    }

    fn take_at(self: &Arc<Self>, now: Instant) -> Option<UnmountedNetns> {
        let taken = {
            let mut shelf = self.shelf();
            shelf.drop_stale(now);
            shelf.spares.pop().map(|(_, spare)| spare)
        };
        self.refill(now);
        taken
    }

    fn refill(self: &Arc<Self>, now: Instant) {
        let mut shelf = self.shelf();
        if !shelf.filling && shelf.spares.len() < self.wanted {
            shelf.filling = true;
            let spares = Arc::clone(self);
            // On a thread that ends: it takes each new namespace for its own.
            drop(aside(move || spares.fill_apart(now)));
        }
    }

    fn fill_apart(&self, now: Instant) {
        thread::scope(|scope| {
            let filled = match thread::Builder::new().spawn_scoped(scope, || self.fill(now)) {
                Ok(filling) => filling.join().map_err(|_panic| "a bug ended it".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(error) = filled {
                // The next that is taken begins anew.
                warn!(error, "no namespaces were made ahead");
                self.shelf().filling = false;
            }
        });
    }

    fn fill(&self, now: Instant) {
        while self.is_short() {
            match UnmountedNetns::make_here() {
                Ok(spare) => self.shelf().spares.push((now, spare)),
                Err(error) => {
                    warn!(error = %Chain(&error), "no namespace was made ahead");
                    self.shelf().filling = false;
                }
            }
        }
    }

    /// Whether one more is to be made; if not, it is no longer being filled.
    fn is_short(&self) -> bool {
        let mut shelf = self.shelf();
        shelf.filling &= shelf.spares.len() < self.wanted;
        shelf.filling
    }

    fn shelf(&self) -> MutexGuard<'_, Pool> {
        // It is whole between two statements, so a panic elsewhere does not spoil it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn drop_stale(&mut self, now: Instant) {
        self.spares.retain(|(made, _)| now.saturating_duration_since(*made) < MAX_AGE);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::sys::link;
    use crate::sys::netlink::Netlink;
    use crate::sys::netns::Netns;
    use crate::sys::testbed::{apart, within};

    async fn filled(spares: &NetnsPool) {
        let filled = async {
            while spares.shelf().filling {
                tokio::task::yield_now().await;
            }
        };
        within("a filled stock", filled).await;
    }

    fn links(netns: &Netns) -> Vec<(String, bool)> {
        let list = || link::links(&mut Netlink::open().expect("a socket")).expect("links");
        netns.inside(list).expect("entered").into_iter().map(|link| (link.name.to_string(), link.up)).collect()
    }

    #[test]
    fn each_that_is_taken_is_new_and_empty_and_the_stock_is_filled_again() {
        apart(async || {
            let spares = NetnsPool::start(2);
            let mut seen = BTreeSet::new();
            for count in 0..5 {
                filled(&spares).await;
                assert_eq!(spares.shelf().spares.len(), 2);
                let path = PathBuf::from(format!("/run/netns/pod{count}"));
                let pod = Netns::place(&path, spares.take().expect("one")).expect("placed");
                assert_eq!(links(&pod), [("lo".to_owned(), true)]);
                let same = Netns::open(&path).expect("opened").expect("there");
                assert_eq!(same.id().expect("a namespace"), pod.id().expect("a namespace"));
                assert!(seen.insert(pod.id().expect("a namespace")), "given twice");
            }
            let error = Netns::place(Path::new("/run/netns/pod0"), spares.take().expect("one")).expect_err("taken");
            assert!(error.to_string().contains("exists already"), "{error}");
        });
    }

    #[test]
    fn none_is_given_that_is_old_and_none_is_kept_where_none_is_wanted() {
        apart(async || {
            let spares = NetnsPool::start(1);
            filled(&spares).await;
            let later = Instant::now() + MAX_AGE;
            assert!(spares.take_at(later).is_none(), "it is old");
            filled(&spares).await;
            assert!(spares.take_at(later).is_some(), "and was replaced");
            let none = NetnsPool::start(0);
            assert!(none.take().is_none());
            assert!(!none.shelf().filling);
        });
    }
}
