//! Schemas of what the operator writes into the status of objects.
//!
//! Loose: it alone writes there, and a field that a newer operator knows is kept. What columns, selectors and scaling read has its type.

use kubevirt::Kind;
use serde_json::{Map, Value, json};

/// What a field is.
#[derive(Clone, Copy)]
enum Is {
    Text,
    Number,
    Flag,
    Object,
    /// Of objects.
    List,
}

const INSTANCE: &[(&str, Is)] = &[
    ("phase", Is::Text),
    ("phaseTransitionTimestamps", Is::List),
    ("reason", Is::Text),
    ("nodeName", Is::Text),
    ("conditions", Is::List),
    ("interfaces", Is::List),
    ("guestOSInfo", Is::Object),
    ("volumeStatus", Is::List),
    ("activePods", Is::Object),
    ("qosClass", Is::Text),
    ("machine", Is::Object),
    ("currentCPUTopology", Is::Object),
    ("memory", Is::Object),
    ("virtualMachineRevisionName", Is::Text),
    ("observedGeneration", Is::Number),
];

const MACHINE: &[(&str, Is)] = &[
    ("created", Is::Flag),
    ("ready", Is::Flag),
    ("printableStatus", Is::Text),
    ("conditions", Is::List),
    ("stateChangeRequests", Is::List),
    ("startFailure", Is::Object),
    ("runStrategy", Is::Text),
    ("observedGeneration", Is::Number),
    ("desiredGeneration", Is::Number),
];

const REPLICA_SET: &[(&str, Is)] = &[
    ("replicas", Is::Number),
    ("readyReplicas", Is::Number),
    ("labelSelector", Is::Text),
    ("conditions", Is::List),
    ("observedGeneration", Is::Number),
];

/// The status of a kind.
pub(super) fn schema(kind: Kind) -> Value {
    let fields = match kind {
        Kind::VirtualMachineInstance => INSTANCE,
        Kind::VirtualMachine => MACHINE,
        Kind::ReplicaSet => REPLICA_SET,
        Kind::Preset | Kind::Refused(_) | Kind::Other => &[],
    };
    let properties: Map<String, Value> = fields.iter().map(|(name, is)| ((*name).to_owned(), is.schema())).collect();
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties})
}

impl Is {
    fn schema(self) -> Value {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Number => json!({"type": "integer", "format": "int64"}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Object => any,
            Self::List => json!({"type": "array", "items": any}),
        }
    }
}
