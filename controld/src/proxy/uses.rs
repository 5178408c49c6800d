//! What the calls of the proxy use, and small steps that several take.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Semaphore;
use tonic::body::Body;
use tonic::codegen::http::Request;
use tonic::codegen::http::request::Parts;

use super::backend::Backend;
use super::calls;
use super::keys::Keys;
use super::lists::Lists;
use super::metrics::Metrics;
use super::own::Own;
use super::saved::Saved;
use super::status::Trouble;
use super::unfit::Names;
use crate::config::CgroupDriver;

/// What calls use.
#[derive(Debug)]
pub(super) struct Uses {
    pub(super) backend: Backend,
    pub(super) own: Own,
    pub(super) keys: Keys,
    pub(super) lists: Lists,
    pub(super) saved: Saved,
    pub(super) metrics: Metrics,
    pub(super) state: State,
    /// Of who asks the default for a Status that serves later.
    pub(super) status_turn: Arc<Semaphore>,
}

/// What does not fit between the two sides.
#[derive(Debug)]
pub(super) struct State {
    /// What kubelet was to manage cgroups with by our configuration, if that says so.
    driver: Option<CgroupDriver>,
    clashes: Mutex<Clashes>,
    /// Metrics of ours that the default has with other labels; `None` until it is known.
    unfit: Mutex<Option<Names>>,
}

#[derive(Debug, Default)]
struct Clashes {
    /// Handlers that both sides have.
    twice: BTreeSet<String>,
    driver: Option<Trouble>,
}

impl State {
    pub(super) fn new(driver: Option<CgroupDriver>) -> Self {
        Self { driver, clashes: Mutex::default(), unfit: Mutex::default() }
    }

    /// Metrics of ours that are left out, if that is known.
    pub(super) fn unfit(&self) -> Option<Names> {
        self.unfit.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// These are left out from now on.
    pub(super) fn keep_unfit(&self, names: Names) {
        *self.unfit.lock().unwrap_or_else(PoisonError::into_inner) = Some(names);
    }

    /// The default's Status has these handlers, and we have those.
    pub(super) fn compare_handlers(&self, theirs: &BTreeSet<String>, ours: &BTreeSet<String>) {
        let twice: BTreeSet<_> = theirs.intersection(ours).filter(|name| !name.is_empty()).cloned().collect();
        let mut clashes = self.clashes.lock().unwrap_or_else(PoisonError::into_inner);
        if clashes.twice != twice && !twice.is_empty() {
            tracing::error!(handlers = ?twice, "runtime handlers are both of the container runtime and ours; give them other names");
        }
        clashes.twice = twice;
    }

    /// The default has kubelet manage cgroups with this, or does not say.
    pub(super) fn compare_drivers(&self, theirs: Option<CgroupDriver>) {
        let both = self.driver.zip(theirs).filter(|(ours, theirs)| ours != theirs);
        let trouble = both.map(|(ours, theirs)| Trouble {
            reason: "CgroupDriversDiffer".into(),
            message: format!(
                "`cgroup_driver` of controld is {ours:?}, and the container runtime's is {theirs:?}, which kubelet goes by; leave \
                 `cgroup_driver` out"
            )
            .to_lowercase(),
        });
        self.clashes.lock().unwrap_or_else(PoisonError::into_inner).driver = trouble;
    }

    /// Whether both sides have a handler.
    pub(super) fn has_twice(&self, handler: &str) -> bool {
        self.clashes.lock().unwrap_or_else(PoisonError::into_inner).twice.contains(handler)
    }

    /// What is wrong with the cgroup driver.
    pub(super) fn driver_differs(&self) -> Option<Trouble> {
        self.clashes.lock().unwrap_or_else(PoisonError::into_inner).driver.clone()
    }

    /// What keeps machines from being made.
    pub(super) fn trouble(&self) -> Option<Trouble> {
        let clashes = self.clashes.lock().unwrap_or_else(PoisonError::into_inner);
        if clashes.twice.is_empty() {
            return clashes.driver.clone();
        }
        let names: Vec<_> = clashes.twice.iter().map(|name| format!("`{name}`")).collect();
        let message = format!("both runtimes have {}; give those of one another name", names.join(", "));
        Some(Trouble { reason: "HandlersTwice".into(), message })
    }
}

impl Uses {
    /// The name of a call in metrics.
    pub(super) fn call(&self, parts: &Parts) -> &'static str {
        calls::name(parts.uri.path())
    }
}

/// A call's request again.
pub(super) fn plain(parts: Parts, body: Body) -> Request<Body> {
    Request::from_parts(parts, body)
}
