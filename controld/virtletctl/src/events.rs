//! `events`: what becomes of pods and machines, a line each, until controld or the user ends it.

use std::io::Write;

use proto::cri::{ContainerEventResponse, ContainerEventType};
use serde_json::json;

use super::cli::{Events, Form};
use super::client::Client;
use super::error::CtlError;
use super::text::{harmless, moment_of, short, shown};
use super::{document, ps};

pub(super) async fn run(client: &Client, wanted: &Events, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let mut events = client.events().await?;
    while let Some(event) = events.next().await? {
        let pod = event.pod_sandbox_status.clone().unwrap_or_default();
        let metadata = pod.metadata.unwrap_or_default();
        if !ps::is_in(&wanted.scope, &metadata.namespace, &pod.labels) {
            continue;
        }
        let is_pod = event.container_id == pod.id;
        let told = Told {
            at: moment_of(event.created_at).unwrap_or_default(),
            kind: if is_pod { "pod" } else { "machine" },
            what: what(&event),
            name: format!("{}/{}", metadata.namespace, metadata.name),
            why: if is_pod { String::new() } else { why(&event) },
            id: event.container_id,
        };
        out.write_all(told.line(wanted.output.form())?.as_bytes())?;
        out.flush()?;
    }
    Ok(())
}

/// One event.
struct Told {
    at: String,
    kind: &'static str,
    what: &'static str,
    name: String,
    why: String,
    id: String,
}

impl Told {
    fn line(&self, form: Option<Form>) -> Result<String, CtlError> {
        let Self { at, kind, what, name, why, id } = self;
        let value = || json!({ "at": at, "kind": kind, "event": what, "name": name, "id": id, "reason": why });
        let id_shown = if form == Some(Form::Wide) { shown(id) } else { short(id) };
        match form {
            None | Some(Form::Wide) => {
                let line = format!("{at}   {kind:7}   {what:7}   {id_shown}   {}   {}", shown(name), shown(why));
                Ok(format!("{}\n", line.trim_end()))
            }
            Some(Form::Name) => Ok(format!("{}\n", shown(name))),
            Some(Form::Json) => Ok(harmless(&format!("{}\n", value()))),
            Some(Form::Yaml) => Ok(format!("---\n{}", document::of(value(), Form::Yaml)?)),
        }
    }
}

fn what(event: &ContainerEventResponse) -> &'static str {
    match event.container_event_type() {
        ContainerEventType::ContainerCreatedEvent => "created",
        ContainerEventType::ContainerStartedEvent => "started",
        ContainerEventType::ContainerStoppedEvent => "stopped",
        ContainerEventType::ContainerDeletedEvent => "deleted",
    }
}

/// Why a machine stopped.
fn why(event: &ContainerEventResponse) -> String {
    let is_stop = event.container_event_type() == ContainerEventType::ContainerStoppedEvent;
    let status = event.containers_statuses.iter().find(|status| is_stop && status.id == event.container_id);
    status.map(|status| format!("{} ({})", status.reason, status.exit_code)).unwrap_or_default()
}
