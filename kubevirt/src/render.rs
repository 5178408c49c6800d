//! The pod that a VirtualMachineInstance is, and the Secret with its user-data.
//!
//! What a pod's own fields and annotations can say is said by them, so that such a pod runs wherever ordinary VM pods do. The rest goes
//! to one annotation, [`proto::vm`], each field of it with a warning: nodes that do not know it yet refuse the pod.

mod cloud_init;
mod described;
mod disks;
mod networks;
mod pod;
mod probes;
mod resources;
mod world;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, Secret};
use proto::vm::{VERSION, VmDescription};
use serde_json::Value;

pub use self::networks::nics;
pub(super) use self::pod::pod;
pub(super) use self::world::World;
use super::Path;
use super::finding::Findings;
use super::types::{Metadata, Spec};

/// What a cluster has that objects say nothing of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// RuntimeClass of pods.
    pub runtime_class: String,
    /// RuntimeClass of VMs with UEFI, and of those whose UEFI starts signed loaders alone.
    pub efi: Option<String>,
    pub secure_boot: Option<String>,
    /// Image of pods that have none: their VMs boot from volumes, and nothing is made of it.
    pub image: Option<String>,
}

/// What is to be a pod.
#[derive(Debug)]
pub(super) struct Instance<'a> {
    pub(super) name: &'a str,
    /// Name of its pod.
    pub(super) pod: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) metadata: &'a Metadata,
    pub(super) at_metadata: Path,
    pub(super) spec: &'a Spec,
    pub(super) at: Path,
    /// When kubelet starts the VM again.
    pub(super) restart: &'static str,
    /// Presets that were merged.
    pub(super) presets: Option<String>,
}

/// A pod as far as it is made.
struct Draft<'a> {
    instance: &'a Instance<'a>,
    spec: &'a Spec,
    options: &'a Options,
    world: &'a World,
    /// Annotations of ours, each with the field that it is of.
    annotations: BTreeMap<String, (String, Path)>,
    description: VmDescription,
    container: Container,
    pod: PodSpec,
    secret: Option<Secret>,
    found: &'a mut Findings,
}

/// Of what only the description says.
const DESCRIBED: &str = "said in annotation virtlet.k8s/vm alone, with which nodes of this release refuse a pod; without it the pod runs today";

impl Default for Options {
    fn default() -> Self {
        Self { runtime_class: "virtlet".to_owned(), efi: None, secure_boot: None, image: None }
    }
}

impl<'a> Draft<'a> {
    fn new(instance: &'a Instance<'a>, world: &'a World, options: &'a Options, found: &'a mut Findings) -> Self {
        Self {
            instance,
            spec: instance.spec,
            options,
            world,
            annotations: BTreeMap::new(),
            description: VmDescription { v: VERSION, ..VmDescription::default() },
            container: Container::default(),
            pod: PodSpec::default(),
            secret: None,
            found,
        }
    }

    /// Path of the domain's field.
    fn domain(&self, field: &str) -> Path {
        self.instance.at.field("domain").field(field)
    }

    /// Path of a field of the domain's devices.
    fn device(&self, field: &str) -> Path {
        self.domain("devices").field(field)
    }

    fn annotate(&mut self, key: &str, value: impl Into<String>, of: &Path) {
        self.annotations.insert(key.to_owned(), (value.into(), of.clone()));
    }

    /// Notes that a field is in the description alone.
    fn described(&mut self, of: &Path) {
        self.found.warn(of, DESCRIBED);
    }
}

/// A value as the API has it.
fn value_of(of: &impl serde::Serialize) -> Value {
    // Types of the API have no maps whose keys could be no texts.
    serde_json::to_value(of).unwrap_or_default()
}

#[cfg(test)]
mod tests;
