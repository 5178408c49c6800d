//! Spans of work on a pod that no call waits for: what is logged meanwhile names the pod by the fields that calls have
//! (`api::span`) and the journal knows (`common::log`). They are errors' spans, so that they are there at each level of the log, and
//! below none, as the call that began the work ends before it.

use tracing::{Span, error_span};

use super::{Container, Sandbox};

/// The span of work on a sandbox.
#[must_use]
pub fn of_sandbox(sandbox: &Sandbox) -> Span {
    let config = &sandbox.config;
    error_span!(parent: None, "pod", namespace = config.namespace, name = config.name, pod = sandbox.id.as_str())
}

/// The span of work on a container, of this sandbox if that is on record.
#[must_use]
pub fn of_container(container: &Container, sandbox: Option<&Sandbox>) -> Span {
    let config = sandbox.map(|sandbox| &sandbox.config);
    let (namespace, name) = (config.map(|config| &*config.namespace), config.map(|config| &*config.name));
    error_span!(parent: None, "container", namespace, name, pod = container.sandbox.as_str(), container = %container.id)
}
