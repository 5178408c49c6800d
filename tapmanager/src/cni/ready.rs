//! Whether the node's default network could take a pod now, by what its plugins last answered to STATUS.
//!
//! Called by [`super::Cni::ready`]. kubelet asks every few seconds and judges the node by the answer, but STATUS starts
//! a process for each plugin, and a plugin may hang. So one task at a time asks the plugins in the background:
//!
//! - An answer is current for a while ([`FRESH`]), and is still given while the plugins are asked again ([`KEPT`]).
//! - Only without such an answer does the caller wait, and not for long ([`PATIENCE`]): at first, after the network's
//!   configuration has changed (which ends the questions to the plugins of the former one), and after plugins have said
//!   no.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::conf::NetworkList;
use super::conf::dir::ConfError;
use super::error::CniError;

/// How long an answer is as good as a new one.
const FRESH: Duration = Duration::from_secs(5);
/// The same of a no: what was wrong may have been put right.
const FRESH_NO: Duration = Duration::from_secs(1);
/// How old an answer may be that is given while plugins are asked anew.
const KEPT: Duration = Duration::from_secs(30);
/// How long it is waited for plugins.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// What can be said of the default network.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    /// Whether it could take a pod.
    pub(crate) outcome: Result<(), Unready>,
    /// How long its plugins have owed an answer, if that one is of an earlier time.
    pub(crate) unanswered: Option<Duration>,
}

/// Why it could take none.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Unready {
    /// There is none.
    #[error(transparent)]
    Conf(Arc<ConfError>),
    /// A plugin is missing, or says no.
    #[error(transparent)]
    Plugins(Arc<CniError>),
    /// They have said nothing yet.
    #[error("the CNI plugins of network `{network}` have not answered STATUS for {} s", waited.as_secs())]
    Silent {
        /// Its name.
        network: String,
        /// Since they were asked.
        waited: Duration,
    },
    /// Nobody has wanted to know.
    #[error("the CNI plugins have not been asked yet")]
    NotAsked,
    /// Nobody could ask them.
    #[error("the process that starts plugins is gone; restart tapmanager")]
    NoSpawner,
    #[cfg(test)]
    #[error("ready fails as the test wants")]
    Fake,
}

/// What plugins said, and are being asked.
#[derive(Debug)]
pub(super) struct StatusCache {
    state: Mutex<State>,
    /// Counts their answers.
    answers: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The network that all of this is about.
    network: Option<Arc<NetworkList>>,
    /// What was last said, and when it was asked.
    said: Option<(Instant, Result<(), Arc<CniError>>)>,
    /// Since when they are being asked anew.
    asking: Option<(Instant, AbortOnDropHandle<()>)>,
}

/// What is known of the plugins' STATUS.
#[derive(Debug)]
pub(super) enum CachedStatus {
    /// It is new enough to be the answer.
    Fresh(Ready),
    /// It is the answer, and plugins are asked again.
    Stale(Ready),
    /// There is none that could be the answer.
    Missing,
}

impl Ready {
    pub(super) const fn no(why: Unready) -> Self {
        Self { outcome: Err(why), unanswered: None }
    }
}

// === impl StatusCache ===

impl StatusCache {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), answers: watch::Sender::new(0) }
    }

    /// What plugins last said of `network`, and whether it is still an answer at `now`. What is known of another network is
    /// forgotten.
    pub(super) fn look(&self, network: &NetworkList, now: Instant) -> CachedStatus {
        let mut state = self.lock();
        if state.network.as_deref() != Some(network) {
            *state = State { network: Some(Arc::new(network.clone())), ..State::default() };
        }
        let Some((at, said)) = &state.said else { return CachedStatus::Missing };
        let age = now.saturating_duration_since(*at);
        match said {
            Ok(()) if age < FRESH => CachedStatus::Fresh(state.ready(now)),
            Err(_) if age < FRESH_NO => CachedStatus::Fresh(state.ready(now)),
            Ok(()) if age < KEPT => CachedStatus::Stale(state.ready(now)),
            _ => CachedStatus::Missing,
        }
    }

    /// What is known, however old.
    pub(super) fn known(&self, now: Instant) -> Ready {
        self.lock().ready(now)
    }

    /// Has `ask`, a task that ends with [`Self::answered`], started unless one is under way.
    pub(super) fn ask(&self, now: Instant, ask: impl FnOnce(Arc<NetworkList>) -> AbortOnDropHandle<()>) {
        let mut state = self.lock();
        if let Some(network) = state.network.clone().filter(|_| state.asking.is_none()) {
            // The task answers under the lock that is held here, so it is noted before.
            state.asking = Some((now, ask(network)));
        }
    }

    /// Notes what the plugins of `network` say.
    pub(super) fn answered(&self, network: &Arc<NetworkList>, outcome: Result<(), CniError>) {
        let mut state = self.lock();
        if state.network.as_ref().is_none_or(|current| !Arc::ptr_eq(current, network)) {
            return;
        }
        if let Some((since, _ask)) = state.asking.take() {
            state.said = Some((since, outcome.map_err(Arc::new)));
        }
        drop(state);
        self.answers.send_modify(|count| *count += 1);
    }

    /// To be taken before a look, so that no answer in between is missed.
    pub(super) fn answers(&self) -> watch::Receiver<u64> {
        let mut answers = self.answers.subscribe();
        answers.mark_unchanged();
        answers
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole between two statements, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn ready(&self, now: Instant) -> Ready {
        let waited = self.asking.as_ref().map(|(since, _)| now.saturating_duration_since(*since));
        match &self.said {
            Some((_, said)) => Ready {
                outcome: said.clone().map_err(Unready::Plugins),
                unanswered: waited.filter(|waited| *waited >= PATIENCE),
            },
            None => Ready::no(match (&self.network, waited) {
                (Some(network), Some(waited)) => Unready::Silent { network: network.name().to_owned(), waited },
                _ => Unready::NotAsked,
            }),
        }
    }
}

#[cfg(test)]
mod tests;
