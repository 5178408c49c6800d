//! What all controllers share.

use std::fmt::Display;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::Store;
use kube::{Client, Resource};
use kubevirt::render::Options;
use tracing::debug;

use crate::group::Group;
use crate::holds::Holds;
use crate::names::OPERATOR;
use crate::objects::{Preset, VmPod, Vmi};
use crate::pending::Pending;

/// Longest text of an event, in bytes.
const MAX_NOTE: usize = 1000;

/// What all controllers share.
pub(crate) struct Context {
    /// The way to the API server.
    pub(crate) client: Client,
    /// Of our objects.
    pub(crate) group: Group,
    /// What the cluster has.
    pub(crate) options: Options,
    /// Pods of instances.
    pub(crate) pods: Store<VmPod>,
    /// All instances.
    pub(crate) vmis: Store<Vmi>,
    /// All presets.
    pub(crate) presets: Store<Preset>,
    /// What sets have made and deleted, and no watch has told of.
    pub(crate) pending: Arc<Pending>,
    /// What was refused a moment ago.
    pub(crate) holds: Holds,
    recorder: Recorder,
}

/// Why something was not done; it is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The API server did not do what it was asked for.
    #[error("the API server did not do what it was asked for")]
    Kube(#[from] kube::Error),
}

impl Context {
    /// One of these; events say that `instance` tells them.
    pub(crate) fn new(
        client: Client,
        group: Group,
        options: Options,
        (pods, vmis, presets): (Store<VmPod>, Store<Vmi>, Store<Preset>),
        pending: Arc<Pending>,
        instance: Option<String>,
    ) -> Self {
        let reporter = Reporter { controller: OPERATOR.to_owned(), instance };
        Self {
            recorder: Recorder::new(client.clone(), reporter),
            client,
            group,
            options,
            pods,
            vmis,
            presets,
            pending,
            holds: Holds::default(),
        }
    }

    /// The time of the day, in whole seconds as the API has it.
    #[must_use]
    pub(crate) fn now(&self) -> Time {
        let now = Timestamp::now();
        Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
    }

    /// Has an event told of an object. One that is lost changes nothing.
    pub(crate) async fn tell<K>(&self, object: &K, type_: EventType, reason: &str, note: impl Display)
    where
        K: Resource<DynamicType = Group>,
    {
        let mut note = note.to_string();
        while note.len() > MAX_NOTE {
            note.pop();
        }
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: reason.to_owned(), secondary: None };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&self.group)).await {
            debug!(error = %common::Chain(&error), reason, "an event is lost");
        }
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("group", &self.group).field("options", &self.options).finish_non_exhaustive()
    }
}
