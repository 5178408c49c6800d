//! GetContainerEvents: what kubelet's evented PLEG and `crictl events` hear of sandboxes and containers.

use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt as _};
use proto::cri::ContainerEventResponse;
use proto::cri::ContainerEventType::{
    self, ContainerCreatedEvent as Created, ContainerDeletedEvent as Deleted, ContainerStartedEvent as Started,
    ContainerStoppedEvent as Stopped,
};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tonic::Status;

use super::Runtime;
use crate::api::cri::convert;
use crate::model::{Container, ContainerState, Sandbox, SandboxState};
use crate::store::feed::{Record, Shown};

impl Runtime {
    /// All events from now on, until controld ends or the caller goes.
    pub(super) fn events(&self) -> impl Stream<Item = Result<ContainerEventResponse, Status>> + use<> {
        let (runtime, changes) = (self.clone(), self.uses.store.changes());
        // One change may be two events: a sandbox is created and started at once.
        stream::unfold((runtime, changes), |(runtime, mut changes)| async {
            let shown = next(&mut changes).await?;
            let events: Vec<_> = kinds(&shown.record).iter().map(|kind| Ok(runtime.event(&shown, *kind))).collect();
            Some((stream::iter(events), (runtime, changes)))
        })
        .flatten()
    }

    fn event(&self, shown: &Shown, kind: ContainerEventType) -> ContainerEventResponse {
        let (container_id, sandbox) = match &shown.record {
            Record::Sandbox { before, now } => {
                let sandbox = now.as_ref().or(before.as_ref()).cloned();
                (sandbox.as_ref().map(|sandbox| sandbox.id.to_string()), sandbox)
            }
            Record::Container { before, now } => {
                let container = now.as_ref().or(before.as_ref());
                let sandbox = container.and_then(|container| self.uses.store.sandbox(&container.sandbox));
                (container.map(|container| container.id.to_string()), sandbox)
            }
        };
        let containers = sandbox.as_ref().map(|sandbox| self.statuses_of(sandbox)).unwrap_or_default();
        ContainerEventResponse {
            container_id: container_id.unwrap_or_default(),
            container_event_type: kind.into(),
            created_at: shown.at,
            pod_sandbox_status: sandbox.map(|sandbox| convert::sandbox_status(&sandbox)),
            containers_statuses: containers,
        }
    }
}

/// The next change. Whoever reads too slowly has missed some, and goes on: kubelet lists everything from time to time.
async fn next(changes: &mut Receiver<Shown>) -> Option<Shown> {
    loop {
        match changes.recv().await {
            Ok(shown) => return Some(shown),
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "a reader of events is too slow and missed some"),
            Err(RecvError::Closed) => return None,
        }
    }
}

/// The events that a change is.
fn kinds(record: &Record) -> Vec<ContainerEventType> {
    match record {
        Record::Sandbox { before, now } => of_sandbox(stage_of_sandbox(before), stage_of_sandbox(now)),
        Record::Container { before, now } => of_container(before.as_deref(), now.as_deref()),
    }
}

/// A sandbox in the making is not shown.
fn stage_of_sandbox(sandbox: &Option<Arc<Sandbox>>) -> Option<SandboxState> {
    sandbox.as_ref().map(|sandbox| sandbox.state).filter(|state| *state != SandboxState::Creating)
}

fn of_sandbox(before: Option<SandboxState>, now: Option<SandboxState>) -> Vec<ContainerEventType> {
    use SandboxState::Ready;
    let mut events = Vec::new();
    if before.is_none() && now.is_some() {
        events.push(Created);
    }
    match (before, now) {
        (Some(Ready), Some(Ready)) | (None, None) => {}
        (_, Some(Ready)) => events.push(Started),
        (None | Some(Ready), _) => events.push(Stopped),
        _ => {}
    }
    if before.is_some() && now.is_none() {
        events.push(Deleted);
    }
    events
}

fn of_container(before: Option<&Container>, now: Option<&Container>) -> Vec<ContainerEventType> {
    use ContainerState::{Exited, Running};
    let (was, is) = (before.map(|container| container.state), now.map(|container| container.state));
    let mut events = Vec::new();
    if was.is_none() && is.is_some() {
        events.push(Created);
    }
    match is {
        Some(Running) if was != Some(Running) => events.push(Started),
        Some(Exited) if was != Some(Exited) => events.push(Stopped),
        None if was.is_some() => events.push(Deleted),
        _ => {}
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::cri::convert::tests::{container, sandbox};

    fn in_state(state: SandboxState) -> Option<Arc<Sandbox>> {
        Some(Arc::new(Sandbox { state, ..sandbox() }))
    }

    #[test]
    fn a_sandbox_is_heard_of_from_the_moment_that_it_is_listed() {
        use SandboxState::{Creating, NotReady, Ready};
        let (creating, ready, stopped) = (in_state(Creating), in_state(Ready), in_state(NotReady));
        for (before, now, wanted) in [
            (&None, &creating, vec![]),
            (&creating, &ready, vec![Created, Started]),
            (&creating, &None, vec![]),
            (&creating, &stopped, vec![Created, Stopped]),
            (&ready, &ready, vec![]),
            (&ready, &stopped, vec![Stopped]),
            (&stopped, &ready, vec![Started]),
            (&stopped, &stopped, vec![]),
            (&stopped, &None, vec![Deleted]),
            (&ready, &None, vec![Stopped, Deleted]),
        ] {
            let record = Record::Sandbox { before: before.clone(), now: now.clone() };
            assert_eq!(kinds(&record), wanted, "{record:?}");
        }
    }

    #[test]
    fn a_container_starts_when_it_runs_and_stops_once() {
        use ContainerState::{Exited, Running, Starting, Uncertain};
        let [created, starting, running, uncertain, exited] =
            [ContainerState::Created, Starting, Running, Uncertain, Exited]
                .map(|state| Some(Arc::new(Container { state, ..container() })));
        for (before, now, wanted) in [
            (&None, &created, vec![Created]),
            (&created, &starting, vec![]),
            (&starting, &uncertain, vec![]),
            (&uncertain, &running, vec![Started]),
            (&running, &running, vec![]),
            (&running, &exited, vec![Stopped]),
            (&starting, &exited, vec![Stopped]),
            (&exited, &exited, vec![]),
            (&exited, &None, vec![Deleted]),
        ] {
            let record = Record::Container { before: before.clone(), now: now.clone() };
            assert_eq!(kinds(&record), wanted, "{record:?}");
        }
    }
}
