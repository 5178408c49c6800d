//! Which pod a span or an event is about. Spans and events of the daemons name it by the same four fields; here these become the
//! fields of entries.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, Scope};

/// What is known of the pod, by the names that the log has for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pod {
    namespace: Option<String>,
    name: Option<String>,
    /// The sandbox's id.
    pod: Option<String>,
    container: Option<String>,
}

impl Pod {
    /// The pod that an event is about: by its own fields, or by the nearest span that says it.
    pub(super) fn of<S: Subscriber + for<'a> LookupSpan<'a>>(event: &Event<'_>, spans: Option<Scope<'_, S>>) -> Self {
        let mut said = Self::default();
        event.record(&mut said);
        // An event's `name` is of what it tells, whatever that is.
        let mut pod = Self { namespace: None, name: None, ..said };
        for span in spans.into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Self>() {
                pod = pod.or(of_span);
            }
        }
        pod
    }

    /// Names and values of the fields of an entry.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let Self { namespace, name, pod, container } = self;
        [
            ("VIRTLET_POD_NAMESPACE", namespace),
            ("VIRTLET_POD_NAME", name),
            ("VIRTLET_SANDBOX_ID", pod),
            ("VIRTLET_CONTAINER_ID", container),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value.as_deref()?)))
    }

    fn or(self, other: &Self) -> Self {
        let either = |mine: Option<String>, theirs: &Option<String>| mine.or_else(|| theirs.clone());
        Self {
            namespace: either(self.namespace, &other.namespace),
            name: either(self.name, &other.name),
            pod: either(self.pod, &other.pod),
            container: either(self.container, &other.container),
        }
    }

    fn take(&mut self, field: &Field, value: String) {
        let place = match field.name() {
            "namespace" => &mut self.namespace,
            "name" => &mut self.name,
            "pod" => &mut self.pod,
            "container" => &mut self.container,
            _ => return,
        };
        *place = Some(value);
    }
}

impl Visit for Pod {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // What is recorded by its `Display` comes by here, too.
        if matches!(field.name(), "namespace" | "name" | "pod" | "container") {
            self.take(field, format!("{value:?}"));
        }
    }
}

/// Keeps with each span the pod that it is about.
#[derive(Debug)]
pub(super) struct PodFields;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for PodFields {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut pod = Pod::default();
        attributes.record(&mut pod);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(pod);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(pod) = span.extensions_mut().get_mut::<Pod>()
        {
            values.record(pod);
        }
    }
}
