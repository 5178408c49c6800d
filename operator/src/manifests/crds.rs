//! The CustomResourceDefinitions of our kinds: names, versions, columns and subresources. Schemas of specs are `kubevirt`'s.
//!
//! Both versions have the same shape, so nothing converts between them.

mod status;

use kubevirt::{Kind, schema};
use serde_json::{Value, json};

use super::object;
use crate::group::{Group, OLD_VERSION, VERSION};

/// A kind of ours, as the API has it.
#[derive(Debug)]
pub struct Definition {
    pub kind: Kind,
    /// As `kind` of objects has it.
    pub name: &'static str,
    pub plural: &'static str,
    /// Short names: those of KubeVirt, and one that means ours where KubeVirt itself is in the cluster.
    pub short: &'static [&'static str],
    /// Whether it has a status.
    pub has_status: bool,
    /// Whether it has a number of replicas.
    pub scales: bool,
    /// Columns of `kubectl get`: name, type, path, and whether only `-o wide` has them.
    columns: &'static [Column],
    /// Fields that `--field-selector` may name.
    selectable: &'static [&'static str],
}

type Column = (&'static str, &'static str, &'static str, bool);

const READY: &str = ".status.conditions[?(@.type==\"Ready\")].status";
const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", false);

/// Those that become VMs first.
pub static DEFINITIONS: [Definition; 4] = [
    Definition {
        kind: Kind::VirtualMachine,
        name: "VirtualMachine",
        plural: "virtualmachines",
        short: &["vm", "vms", "vvm"],
        has_status: true,
        scales: false,
        columns: &[AGE, ("Status", "string", ".status.printableStatus", false), ("Ready", "string", READY, false)],
        selectable: &[".status.printableStatus"],
    },
    Definition {
        kind: Kind::VirtualMachineInstance,
        name: "VirtualMachineInstance",
        plural: "virtualmachineinstances",
        short: &["vmi", "vmis", "vvmi"],
        has_status: true,
        scales: false,
        columns: &[
            AGE,
            ("Phase", "string", ".status.phase", false),
            ("IP", "string", ".status.interfaces[0].ipAddress", false),
            ("NodeName", "string", ".status.nodeName", false),
            ("Ready", "string", READY, false),
            ("Paused", "string", ".status.conditions[?(@.type==\"Paused\")].status", true),
        ],
        selectable: &[".status.phase", ".status.nodeName"],
    },
    Definition {
        kind: Kind::ReplicaSet,
        name: "VirtualMachineInstanceReplicaSet",
        plural: "virtualmachineinstancereplicasets",
        short: &["vmirs", "vmirss", "vvmirs"],
        has_status: true,
        scales: true,
        columns: &[
            ("Desired", "integer", ".spec.replicas", false),
            ("Current", "integer", ".status.replicas", false),
            ("Ready", "integer", ".status.readyReplicas", false),
            AGE,
        ],
        selectable: &[],
    },
    Definition {
        kind: Kind::Preset,
        name: "VirtualMachineInstancePreset",
        plural: "virtualmachineinstancepresets",
        short: &["vmipreset", "vmipresets"],
        has_status: false,
        scales: false,
        columns: &[AGE],
        selectable: &[],
    },
];

/// The definitions of all kinds in a group.
#[must_use]
pub fn all(group: Group) -> Vec<Value> {
    DEFINITIONS.iter().filter_map(|definition| definition.to_value(group)).collect()
}

impl Definition {
    /// Name of the CRD.
    #[must_use]
    pub fn crd_name(&self, group: Group) -> String {
        format!("{}.{group}", self.plural)
    }

    fn to_value(&self, group: Group) -> Option<Value> {
        let mut spec = schema::spec(self.kind)?;
        if self.scales {
            // Without a number there is nothing to scale.
            spec["properties"]["replicas"]["default"] = 1.into();
        }
        let mut definition = object("apiextensions.k8s.io/v1", "CustomResourceDefinition", &self.crd_name(group));
        definition["spec"] = json!({
            "group": group.name(),
            "scope": "Namespaced",
            "names": {
                "kind": self.name,
                "listKind": format!("{}List", self.name),
                "plural": self.plural,
                "singular": self.name.to_lowercase(),
                "shortNames": self.short,
                "categories": if self.has_status { json!(["all", "virtlet"]) } else { json!(["virtlet"]) },
            },
            "versions": [self.version(VERSION, None, &spec), self.version(OLD_VERSION, Some(group), &spec)],
        });
        Some(definition)
    }

    /// A version; an old one says in which group to look for the new one.
    fn version(&self, name: &str, old_of: Option<Group>, spec: &Value) -> Value {
        let mut properties = json!({
            "apiVersion": {"type": "string", "maxLength": 64},
            "kind": {"type": "string", "maxLength": 64},
            "metadata": {"type": "object"},
            "spec": spec,
        });
        let mut subresources = json!({});
        if self.has_status {
            properties["status"] = status::schema(self.kind);
            subresources["status"] = json!({});
        }
        if self.scales {
            subresources["scale"] = json!({
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.labelSelector",
            });
        }
        let mut version = json!({
            "name": name,
            "served": true,
            "storage": old_of.is_none(),
            "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"], "properties": properties}},
            "subresources": subresources,
            "additionalPrinterColumns": self.columns.iter().copied().map(column).collect::<Vec<_>>(),
        });
        if !self.selectable.is_empty() {
            let fields: Vec<Value> = self.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
            version["selectableFields"] = fields.into();
        }
        if let Some(group) = old_of {
            version["deprecated"] = true.into();
            version["deprecationWarning"] =
                format!("{group}/{name} {} is deprecated; use {}", self.name, group.api_version()).into();
        }
        version
    }
}

fn column((name, of, path, is_wide): Column) -> Value {
    let mut column = json!({"name": name, "type": of, "jsonPath": path});
    if is_wide {
        column["priority"] = 1.into();
    }
    column
}
