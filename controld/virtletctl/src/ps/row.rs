//! Rows of a list: one for each container, and for each pod that has none.

use std::collections::{BTreeMap, HashMap};

use proto::cri::{Container, ContainerState, ImageSpec, PodSandbox, PodSandboxState};
use proto::side::OUR_IDS;
use serde_json::{Map, Value, json};

use super::super::filter::Judged;
use super::super::find::Node;
use super::super::phase::{self, CREATED, EMPTY, EXITED, RUNNING, STOPPED, UNKNOWN};
use super::super::text::moment_of;

/// A row, with its ids in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) state: &'static str,
    /// Of a machine that has ended, once that is known.
    pub(super) exit_code: Option<i32>,
    pub(super) ip: String,
    pub(super) image: String,
    pub(super) image_id: String,
    /// When the pod was made: a machine that is started again is as old as it was.
    pub(super) created: i64,
    /// When the container was made, or else the pod.
    pub(super) newest: i64,
    pub(super) pod: String,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) labels: HashMap<String, String>,
    pub(super) handler: String,
    pub(super) attempt: u32,
    /// Of the container in its pod.
    pub(super) container_name: String,
    /// And not a container of another runtime.
    pub(super) is_vm: bool,
}

pub(super) fn rows(node: &Node, ips: &BTreeMap<String, String>) -> Vec<Row> {
    let mut rows = Vec::new();
    for sandbox in &node.sandboxes {
        let before = rows.len();
        rows.extend(node.containers_of(sandbox).map(|container| row(sandbox, Some(container), ips)));
        if rows.len() == before {
            rows.push(row(sandbox, None, ips));
        }
    }
    rows
}

fn row(sandbox: &PodSandbox, container: Option<&Container>, ips: &BTreeMap<String, String>) -> Row {
    let pod = sandbox.metadata.clone().unwrap_or_default();
    let image = container.and_then(|container| container.image.clone()).unwrap_or_default();
    let metadata = container.and_then(|container| container.metadata.as_ref());
    let is_vm = sandbox.id.starts_with(OUR_IDS);
    Row {
        is_vm,
        name: pod.name,
        namespace: pod.namespace,
        state: match container {
            Some(container) => container_state(container.state()),
            None => sandbox_state(sandbox.state()),
        },
        exit_code: None,
        ip: ips.get(&sandbox.id).cloned().unwrap_or_default(),
        image: image_name(image, is_vm),
        image_id: container.map(|container| container.image_id.clone()).unwrap_or_default(),
        created: sandbox.created_at,
        newest: container.map_or(sandbox.created_at, |container| container.created_at),
        pod: sandbox.id.clone(),
        uid: pod.uid,
        container: container.map(|container| container.id.clone()).unwrap_or_default(),
        labels: sandbox.labels.clone(),
        handler: sandbox.runtime_handler.clone(),
        attempt: metadata.map_or(0, |metadata| metadata.attempt),
        container_name: metadata.map(|metadata| metadata.name.clone()).unwrap_or_default(),
    }
}

/// Of containers kubelet gives the id, and beside it the name that the pod has.
fn image_name(image: ImageSpec, is_vm: bool) -> String {
    if is_vm || image.user_specified_image.is_empty() { image.image } else { image.user_specified_image }
}

fn container_state(state: ContainerState) -> &'static str {
    match state {
        ContainerState::ContainerCreated => CREATED,
        ContainerState::ContainerRunning => RUNNING,
        ContainerState::ContainerExited => EXITED,
        ContainerState::ContainerUnknown => UNKNOWN,
    }
}

/// Of a pod without a container.
fn sandbox_state(state: PodSandboxState) -> &'static str {
    match state {
        PodSandboxState::SandboxReady => EMPTY,
        PodSandboxState::SandboxNotready => STOPPED,
    }
}

impl Row {
    /// The field in the order of which lists are printed.
    pub(super) fn order(&self) -> (&str, &str, std::cmp::Reverse<i64>) {
        (&self.namespace, &self.name, std::cmp::Reverse(self.newest))
    }

    /// What tells a row from others, also when it has changed.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.pod, &self.container)
    }

    pub(super) fn judged(&self) -> Judged<'_> {
        let Self { name, labels, state, image, image_id, pod, container, .. } = self;
        Judged { name, ids: [pod, container], labels, state, image, image_id }
    }

    /// As kubectl has it.
    pub(super) fn phase(&self) -> &'static str {
        phase::of(self.state, self.exit_code)
    }

    pub(super) fn kind(&self) -> &'static str {
        if self.is_vm { "vm" } else { "container" }
    }

    pub(super) fn json(&self) -> Map<String, Value> {
        let Self { name, namespace, state, ip, image, created, pod, container, labels, handler, attempt, .. } = self;
        let fields = json!({
            "name": name, "namespace": namespace, "state": state, "ip": ip, "image": image, "createdAt": moment_of(*created),
            "podId": pod, "containerId": container, "containerName": self.container_name, "vm": self.is_vm,
            "runtimeHandler": handler, "attempt": attempt, "labels": labels,
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    /// As Kubernetes has a pod, as far as paths of kubectl's lead, with our fields beside.
    pub(super) fn pod(&self) -> Value {
        let Self { name, namespace, state, ip, image, created, uid, container, labels, handler, attempt, .. } = self;
        let mut pod = self.json();
        let status = json!({
            "name": name, "image": image, "containerID": container, "restartCount": attempt, "ready": *state == RUNNING,
        });
        let statuses: Vec<Value> = (!container.is_empty()).then_some(status).into_iter().collect();
        let more = [
            ("kind", json!("Pod")),
            (
                "metadata",
                json!({
                    "name": name, "namespace": namespace, "uid": uid, "labels": labels,
                    "creationTimestamp": moment_of(*created),
                }),
            ),
            ("spec", json!({ "runtimeClassName": handler, "containers": [{ "name": name, "image": image }] })),
            ("status", json!({ "phase": self.phase(), "podIP": ip, "containerStatuses": statuses })),
        ];
        pod.extend(more.map(|(key, value)| (key.to_owned(), value)));
        Value::Object(pod)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::selector::FIELDS;
    use super::*;

    #[test]
    fn what_fields_are_selected_by_a_row_has() {
        let row = row(&PodSandbox::default(), None, &BTreeMap::new());
        let plain = row.json().into_iter().filter(|(_, value)| !value.is_object());
        let mut fields = FIELDS.to_vec();
        fields.sort_unstable();
        assert_eq!(plain.map(|(key, _)| key).collect::<Vec<_>>(), fields);
    }
}
