//! A pool of network namespaces made ahead: making one is the largest part of what the kernel does for a pod's network.
//!
//! The actors' kernel ([`crate::pod`]) keeps it, and mounts a namespace from it for each pod. A namespace in the pool
//! has neither name nor mount, only a descriptor; so all of them go with the daemon, and there is nothing to clean up.
//! Each is as [`Netns::create`](super::netns::Netns::create) would make it: empty, with its loopback link up.
//!
//! Old ones are replaced one at a time while no pod is attached: the kernel's clean-up of a namespace that was closed
//! holds up whoever makes or attaches one. So the first pod after a quiet time finds a full stock, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use common::Chain;
use tracing::warn;

use super::netns::UnmountedNetns;
use crate::blocking::aside;

/// Older ones are not given to a pod: what the kernel copied of the node's settings (`net.ipv4.conf`) may have changed.
const MAX_AGE: Duration = Duration::from_secs(600);
/// From this age on one is replaced. [`PACE`] leaves time to replace the largest stock, of 64, before [`MAX_AGE`].
const RENEWED_AT: Duration = Duration::from_secs(300);
/// Time between two that are replaced.
const PACE: Duration = Duration::from_secs(4);
/// The same after one could not be made.
const PACE_OF_FAILURE: Duration = Duration::from_secs(60);
/// None is replaced for as long after one was taken: a pod is being attached.
const QUIET: Duration = Duration::from_secs(1);

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
    /// When one was last asked for.
    asked: Option<Instant>,
}

impl NetnsPool {
    /// A stock of as many as `wanted`, which is being filled, and kept young while it is there. Like [`Self::take`] it must
    /// be called in the context of the runtime.
    pub(crate) fn start(wanted: u16) -> Arc<Self> {
        let spares = Arc::new(Self { wanted: wanted.into(), shelf: Mutex::default() });
        if wanted > 0 {
            spares.refill(Instant::now());
            drop(tokio::spawn(keep_young(Arc::downgrade(&spares))));
        }
        spares
    }

    /// One of them, if there is one. The stock is filled up meanwhile.
    pub(crate) fn take(self: &Arc<Self>) -> Option<UnmountedNetns> {
        self.take_at(Instant::now())
    }

    fn take_at(self: &Arc<Self>, now: Instant) -> Option<UnmountedNetns> {
        let taken = self.shelf().take(now);
        self.refill(now);
        taken
    }

    fn refill(self: &Arc<Self>, now: Instant) {
        let mut shelf = self.shelf();
        if !shelf.filling && shelf.fit(now) < self.wanted {
            shelf.filling = true;
            let spares = Arc::clone(self);
            // On a thread that ends: it takes each new namespace for its own.
            drop(aside(move || spares.fill_apart(now)));
        }
    }

    /// Replaces the oldest if it is its time. False if it could not be replaced: then it is kept.
    fn renew(&self, now: Instant) -> bool {
        let Some(old) = self.shelf().retire(now) else { return true };
        let filled = self.fill_apart(now);
        if !filled {
            self.shelf().spares.insert(0, old);
        }
        filled
    }

    /// Whether all that were missing could be made.
    fn fill_apart(&self, now: Instant) -> bool {
        thread::scope(|scope| {
            let filled = match thread::Builder::new().spawn_scoped(scope, || self.fill(now)) {
                Ok(filling) => filling.join().map_err(|_panic| "a bug ended it".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            filled.unwrap_or_else(|error| {
                // The next that is taken begins anew.
                warn!(error, "no namespaces were made ahead");
                self.shelf().filling = false;
                false
            })
        })
    }

    fn fill(&self, now: Instant) -> bool {
        while self.is_short(now) {
            match UnmountedNetns::make_here() {
                Ok(spare) => self.shelf().spares.push((now, spare)),
                Err(error) => {
                    warn!(error = %Chain(&error), "no namespace was made ahead");
                    self.shelf().filling = false;
                    return false;
                }
            }
        }
        true
    }

    /// Whether one more is to be made; if not, it is no longer being filled.
    fn is_short(&self, now: Instant) -> bool {
        let mut shelf = self.shelf();
        shelf.filling &= shelf.fit(now) < self.wanted;
        shelf.filling
    }

    fn shelf(&self) -> MutexGuard<'_, Pool> {
        // It is whole between two statements, so a panic elsewhere does not spoil it.
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    /// The oldest that is not too old. So a stock that is used is renewed by that, and those that are too old are left to
    /// [`NetnsPool::renew`].
    fn take(&mut self, now: Instant) -> Option<UnmountedNetns> {
        self.asked = Some(now);
        let place = self.spares.iter().position(|(made, _)| is_fit(*made, now))?;
        Some(self.spares.remove(place).1)
    }

    /// How many may be given to a pod.
    fn fit(&self, now: Instant) -> usize {
        self.spares.iter().filter(|(made, _)| is_fit(*made, now)).count()
    }

    /// The oldest, if it is to be replaced now. The caller fills the stock then.
    fn retire(&mut self, now: Instant) -> Option<(Instant, UnmountedNetns)> {
        let since = |then: Instant| now.saturating_duration_since(then);
        let quiet = !self.filling && self.asked.is_none_or(|asked| since(asked) >= QUIET);
        let (made, _) = self.spares.first()?;
        let due = quiet && since(*made) >= RENEWED_AT;
        self.filling |= due;
        due.then(|| self.spares.remove(0))
    }
}

/// Whether one that was `made` then is not too old.
fn is_fit(made: Instant, now: Instant) -> bool {
    now.saturating_duration_since(made) < MAX_AGE
}

/// Replaces old ones for as long as there is a stock.
async fn keep_young(spares: Weak<NetnsPool>) {
    let mut pause = PACE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(spares) = spares.upgrade() else { return };
        let renewed = aside(move || spares.renew(Instant::now())).await;
        pause = if renewed { PACE } else { PACE_OF_FAILURE };
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

    fn made(spares: &NetnsPool) -> Vec<Instant> {
        spares.shelf().spares.iter().map(|(made, _)| *made).collect()
    }

    #[test]
    fn old_ones_are_replaced_one_at_a_time_while_none_is_asked_for() {
        apart(async || {
            let spares = NetnsPool::start(2);
            filled(&spares).await;
            let first = made(&spares);
            assert!(spares.renew(first[0] + RENEWED_AT - Duration::from_secs(1)));
            assert_eq!(made(&spares), first, "they are young");
            let later = first[0] + RENEWED_AT;
            assert!(spares.take_at(later).is_some(), "not too old yet");
            filled(&spares).await;
            assert_eq!(made(&spares), [first[1], later], "the oldest was given");
            assert!(spares.renew(later + QUIET / 2));
            assert_eq!(made(&spares), [first[1], later], "a pod is being attached");
            spares.take_at(later + QUIET / 2).expect("one");
            filled(&spares).await;
            let (taken, last) = (later + QUIET / 2, later + RENEWED_AT);
            assert_eq!(made(&spares), [later, taken]);
            assert!(spares.renew(last));
            assert_eq!(made(&spares), [taken, last]);
        });
    }

    #[test]
    fn none_is_given_that_is_too_old_and_none_is_kept_where_none_is_wanted() {
        apart(async || {
            let spares = NetnsPool::start(1);
            filled(&spares).await;
            let first = made(&spares);
            let later = first[0] + MAX_AGE;
            assert!(spares.take_at(later).is_none(), "it is too old");
            filled(&spares).await;
            assert_eq!(made(&spares), [first[0], later], "whoever waits for one closes none, and the next finds one");
            assert!(spares.renew(later + QUIET));
            assert_eq!(made(&spares), [later]);
            assert!(spares.take_at(later + QUIET).is_some());
            let none = NetnsPool::start(0);
            assert!(none.take().is_none());
            assert!(!none.shelf().filling);
        });
    }
}
