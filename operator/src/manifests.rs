//! What an installation is made of: CRDs, policies, roles, and the operator itself. Pure: values out.
//!
//! [`all`] is what `install` prints and `uninstall` removes, in the order in which it is applied. Everything in it carries [`MANAGED_BY`],
//! but for labels of pods, which are nobody's objects of ours.

pub mod crds;
mod policies;
mod roles;
mod subresources;
mod webhook;
mod workload;

use serde_json::{Value, json};

use crate::group::Group;
use crate::names::{MANAGED_BY, NAMESPACE, OPERATOR};

/// What an installation is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Of our objects.
    pub group: Group,
    /// Where the operator is.
    pub namespace: String,
    /// Its image.
    pub image: String,
    /// RuntimeClass of pods, and those of VMs with UEFI and with secure boot, as `[FIRMWARE=]NAME`.
    pub runtime_classes: Vec<String>,
    /// Whether the operator runs in the cluster.
    pub has_operator: bool,
    /// Whether the server of subresources does.
    pub has_subresources: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            group: Group::default(),
            namespace: NAMESPACE.to_owned(),
            image: format!("{OPERATOR}:{}", env!("CARGO_PKG_VERSION")),
            runtime_classes: Vec::new(),
            has_operator: true,
            has_subresources: true,
        }
    }
}

/// Everything, in the order of applying.
#[must_use]
pub fn all(settings: &Settings) -> Vec<Value> {
    let mut all = Vec::new();
    // Another namespace is somebody's already, and stays theirs.
    if settings.namespace == NAMESPACE {
        all.push(workload::namespace());
    }
    all.extend(crds::all(settings.group));
    all.extend(policies::all(settings.group));
    all.extend(roles::of_users(settings.group));
    all.extend(roles::of_operator(settings));
    all.extend(policies::of_operator(settings));
    // Rights are never there without what holds them.
    all.extend(policies::of_reporter());
    all.extend(roles::of_reporter());
    if settings.has_subresources {
        all.extend(policies::of_subresources(settings));
        all.extend(subresources::all(settings));
    }
    if settings.has_operator {
        all.extend(workload::all(settings));
        // Behind what answers it: as long as nobody does, no VM can be made.
        all.push(webhook::configuration(settings));
    }
    if settings.has_subresources {
        // Last, so that it is removed first: as long as nobody answers it, no namespace is deleted.
        all.push(subresources::registration(settings));
    }
    all
}

/// An object of ours that is in no namespace.
fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "labels": {MANAGED_BY: OPERATOR}}})
}

/// One that is in the operator's.
fn object_in(settings: &Settings, api_version: &str, kind: &str, name: &str) -> Value {
    let mut object = object(api_version, kind, name);
    object["metadata"]["namespace"] = settings.namespace.as_str().into();
    object
}

#[cfg(test)]
mod tests;
