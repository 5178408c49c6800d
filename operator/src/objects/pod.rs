//! A pod of ours, as far as an instance's status comes of it: a whole one has ten times as much.

use std::borrow::Cow;
use std::sync::OnceLock;

use kube::Resource;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use kubevirt::guest::{GUEST, Guest};
use serde::{Deserialize, Serialize};

use super::Meta as _;

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct VmPod {
    /// Its metadata, as far as somebody reads it.
    #[serde(default, deserialize_with = "super::metadata::deserialize")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    /// What kubelet and scheduler say of it.
    #[serde(default)]
    pub(crate) status: PodStatus,
    #[serde(skip)]
    guest: OnceLock<Option<Guest>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct PodSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    node_name: Option<String>,
}

/// What kubelet and scheduler say of a pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodStatus {
    pub(crate) phase: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    #[serde(rename = "podIPs")]
    pub(crate) pod_ips: Vec<PodIp>,
    pub(crate) qos_class: Option<String>,
    pub(crate) conditions: Vec<PodCondition>,
    container_statuses: Vec<ContainerStatus>,
}

/// An address.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct PodIp {
    pub(crate) ip: String,
}

/// A condition of a pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PodCondition {
    #[serde(rename = "type")]
    pub(crate) type_: String,
    pub(crate) status: String,
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerStatus {
    state: ContainerState,
    last_state: ContainerState,
}

/// How the container is that is the VM. At most one of these is there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ContainerState {
    pub(crate) waiting: Option<Why>,
    pub(crate) running: Option<Running>,
    pub(crate) terminated: Option<Why>,
}

/// That it runs.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct Running {}

/// Why it does not.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Why {
    pub(crate) reason: Option<String>,
    pub(crate) message: Option<String>,
    pub(crate) exit_code: Option<i32>,
}

impl Resource for VmPod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl VmPod {
    /// The node that it is on.
    #[must_use]
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// Whether nothing of it runs any more, or ever will.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }

    /// How its VM is.
    #[must_use]
    pub(crate) fn state(&self) -> Option<&ContainerState> {
        self.status.container_statuses.first().map(|container| &container.state)
    }

    /// What its node tells of the guest, which is read once.
    #[must_use]
    pub(crate) fn guest(&self) -> Option<&Guest> {
        self.guest.get_or_init(|| Guest::parse(self.annotation(GUEST)?)).as_ref()
    }

    /// A condition of it.
    #[must_use]
    pub(crate) fn condition(&self, name: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == name)
    }
}
