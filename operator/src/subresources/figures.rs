//! What the server says of itself to Prometheus and to kubelet.

use std::sync::atomic::{AtomicBool, Ordering};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{Facts, text};

/// Figures of the server.
#[derive(Debug)]
pub(super) struct Figures {
    registry: Registry,
    requests: Family<Request, Counter>,
    sessions: Family<Of, Gauge>,
    has_door: AtomicBool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    subresource: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    subresource: &'static str,
}

/// A session that is counted as long as this is there.
#[derive(Debug)]
pub(super) struct Counted(Gauge);

impl Default for Figures {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("virtlet_subresources");
        let (requests, sessions) = (Family::default(), Family::default());
        registry.register("requests", "Requests answered, by subresource and code", Family::clone(&requests));
        registry.register("sessions", "Streams of clients that are joined to VMs", Family::clone(&sessions));
        Self { registry, requests, sessions, has_door: AtomicBool::new(false) }
    }
}

impl Figures {
    /// Notes an answer.
    pub(super) fn answered(&self, subresource: &'static str, code: u16) {
        self.requests.get_or_create(&Request { subresource, code }).inc();
    }

    /// Notes a session.
    pub(super) fn session(&self, subresource: &'static str) -> Counted {
        let gauge = self.sessions.get_or_create(&Of { subresource }).clone();
        gauge.inc();
        Counted(gauge)
    }

    /// Notes whether the API server can be let in.
    pub(super) fn has_door(&self, has: bool) {
        self.has_door.store(has, Ordering::Relaxed);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Facts for Figures {
    fn waits_for(&self) -> Option<&'static str> {
        let text =
            "there is no certificate, or ConfigMap kube-system/extension-apiserver-authentication is not known yet";
        (!self.has_door.load(Ordering::Relaxed)).then_some(text)
    }

    fn text(&self) -> String {
        text(&self.registry)
    }
}
