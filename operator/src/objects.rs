//! The objects of a cluster, as far as the operator needs them of each.
//!
//! There may be ten thousand: a spec is kept as the text that it came as, and read when there is something to do for it. What every look at an
//! object needs of its spec is read once ([`Object::facts`]).

mod json;
mod metadata;
mod pod;
mod status;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::OnceLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::core::{DynamicResourceScope, ObjectMeta};
use kubevirt::preset;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use self::json::Json;
pub(crate) use self::pod::VmPod;
pub(crate) use self::status::{
    Condition, Interface, MachineStatus, PhaseTransition, ReplicaSetStatus, Request, StartFailure, VmiStatus, condition,
};
use crate::group::{Group, VERSION};

/// A kind of objects.
pub(crate) trait Kind: Debug + Clone + Send + Sync + 'static {
    /// As `kind` has it.
    const NAME: &'static str;
    /// As paths of the API have it.
    const PLURAL: &'static str;
    /// Its status.
    type Status: Debug + Clone + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;
    /// What every look at one needs of its spec.
    type Facts: Debug + Clone + Send + Sync + 'static;

    /// Reads them.
    fn facts(object: &Object<Self>) -> Self::Facts;
}

/// An object of a kind.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(crate) struct Object<K: Kind> {
    /// Of one that is made here; of others it is known.
    #[serde(rename = "apiVersion", skip_deserializing, skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(rename = "kind", skip_deserializing, skip_serializing_if = "Option::is_none")]
    name: Option<&'static str>,
    /// Its metadata, as far as somebody reads it.
    #[serde(default, deserialize_with = "metadata::deserialize")]
    pub(crate) metadata: ObjectMeta,
    /// What is wanted.
    #[serde(default)]
    pub(crate) spec: Json,
    /// What there is, as the operator wrote it.
    #[serde(default)]
    pub(crate) status: K::Status,
    #[serde(skip, default = "OnceLock::new")]
    facts: OnceLock<K::Facts>,
    #[serde(skip)]
    kind: PhantomData<K>,
}

/// One of the kinds, with the types that go with it.
macro_rules! kind {
    ($(#[$doc:meta])* $kind:ident, $object:ident, $name:literal, $plural:literal, $status:ty, $facts:ty, $read:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $kind;

        impl Kind for $kind {
            const NAME: &'static str = $name;
            const PLURAL: &'static str = $plural;
            type Status = $status;
            type Facts = $facts;

            fn facts(object: &Object<Self>) -> Self::Facts {
                $read(object)
            }
        }

        $(#[$doc])*
        pub(crate) type $object = Object<$kind>;
    };
}

kind!(
    /// One run of a VM.
    InstanceKind, Vmi, "VirtualMachineInstance", "virtualmachineinstances", VmiStatus, Vec<String>, nics
);
kind!(
    /// A VM that outlives its runs.
    MachineKind, Vm, "VirtualMachine", "virtualmachines", MachineStatus, (), none
);
kind!(
    /// A number of VMs that are alike.
    ReplicaSetKind, ReplicaSet, "VirtualMachineInstanceReplicaSet", "virtualmachineinstancereplicasets", ReplicaSetStatus, (), none
);
kind!(
    /// What instances get that do not say otherwise.
    PresetKind, Preset, "VirtualMachineInstancePreset", "virtualmachineinstancepresets", Nothing, Option<preset::Preset>, preset_of
);

/// Of a kind whose spec is read when there is something to do.
fn none<K: Kind>(_: &Object<K>) {}

/// Names of an instance's NICs as its guest has them: that on the pod's network first.
fn nics(vmi: &Vmi) -> Vec<String> {
    kubevirt::render::nics(&vmi.spec.value())
}

/// Whom a preset is for, and what it gives; `None` if it is wrong.
fn preset_of(object: &Preset) -> Option<preset::Preset> {
    // Has nothing that JSON has not.
    preset::Preset::read(&serde_json::to_value(object).unwrap_or_default())
}

/// The status of a kind that has none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Nothing {}

impl<K: Kind> Resource for Object<K> {
    type DynamicType = Group;
    type Scope = DynamicResourceScope;

    fn kind(_: &Group) -> Cow<'_, str> {
        K::NAME.into()
    }

    fn group(group: &Group) -> Cow<'_, str> {
        group.name().into()
    }

    fn version(_: &Group) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural(_: &Group) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<K: Kind> Object<K> {
    /// An object that nobody has made yet.
    #[must_use]
    pub(crate) fn new(group: Group, metadata: ObjectMeta, spec: Json) -> Self {
        let (api_version, name) = (Some(group.api_version()), Some(K::NAME));
        let (status, facts) = (K::Status::default(), OnceLock::new());
        Self { api_version, name, metadata, spec, status, facts, kind: PhantomData }
    }

    /// What every look needs of the spec, which is read once.
    #[must_use]
    pub(crate) fn facts(&self) -> &K::Facts {
        self.facts.get_or_init(|| K::facts(self))
    }

    /// How a child says whose it is.
    #[must_use]
    pub(crate) fn owner(&self, group: Group) -> OwnerReference {
        OwnerReference {
            api_version: group.api_version(),
            kind: K::NAME.to_owned(),
            name: self.name().to_owned(),
            uid: self.uid().to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }
}

/// Objects that may have come without a part that could not be read.
pub(crate) trait Legible: Resource {
    /// Why, if so: nothing is to be made of such an object.
    fn wrong(&self) -> Option<String>;
}

impl<K: Kind> Legible for Object<K> {
    fn wrong(&self) -> Option<String> {
        self.spec.wrong()
    }
}

impl Legible for VmPod {
    fn wrong(&self) -> Option<String> {
        None
    }
}

/// What is read of the metadata of any object.
pub(crate) trait Meta {
    /// The metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// Its name; empty of none that an API server has.
    fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// Its namespace.
    fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// Which of those that had its name it is.
    fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    /// Whether somebody has deleted it, and finalizers keep it.
    fn is_going(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }

    /// The value of a label.
    fn label(&self, key: &str) -> Option<&str> {
        text(self.metadata().labels.as_ref(), key)
    }

    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str> {
        text(self.metadata().annotations.as_ref(), key)
    }

    /// Whether it has a finalizer.
    fn has_finalizer(&self, name: &str) -> bool {
        self.metadata().finalizers.iter().flatten().any(|finalizer| finalizer == name)
    }

    /// Who looks after it.
    fn controller(&self) -> Option<&OwnerReference> {
        self.metadata().owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
    }

    /// Whether the object with this uid looks after it.
    fn is_of(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }
}

impl<K: Resource> Meta for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }
}

fn text<'a>(all: Option<&'a BTreeMap<String, String>>, key: &str) -> Option<&'a str> {
    all?.get(key).map(String::as_str)
}

/// Labels or annotations of a template.
pub(crate) fn texts(template: &Value, key: &str) -> BTreeMap<String, String> {
    let map = template["metadata"][key].as_object().into_iter().flatten();
    map.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

#[cfg(test)]
mod tests;
