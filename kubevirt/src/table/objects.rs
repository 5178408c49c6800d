//! Kinds, and what is at the top of a spec.

use k8s_openapi::api::core::v1::{Affinity, PodDNSConfig, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::forms::{LABEL, NAME, SUBDOMAIN};
use super::volumes::{ACCESS_CREDENTIAL, NETWORK, PROBE, VOLUME};
use super::{Json, Object, Shape, domain, is, later, must, never, whole, yes};
use crate::Kind;

/// Most disks, and so volumes, of a VM.
const MAX_DISKS: usize = 64;
/// Most NICs of a VM: the default network's, and 14 others.
const MAX_NICS: usize = 15;
/// Most items of a list that Kubernetes has to do with.
pub(crate) const MAX_ITEMS: usize = 256;

/// The table of a kind.
pub(crate) fn of(kind: Kind) -> Option<&'static Object> {
    match kind {
        Kind::VirtualMachineInstance => Some(&INSTANCE),
        Kind::VirtualMachine => Some(&MACHINE),
        Kind::ReplicaSet => Some(&REPLICA_SET),
        Kind::Preset => Some(&PRESET),
        Kind::Refused(_) | Kind::Other => None,
    }
}

/// What every object has, and its spec.
macro_rules! kind {
    ($name:ident, $spec:expr) => {
        static $name: Object = Object(&[
            yes("apiVersion", Shape::Any),
            yes("kind", Shape::Any),
            yes("metadata", Shape::Object(&METADATA)),
            yes("spec", Shape::Object($spec)),
            // What others wrote there says nothing of what is wanted.
            yes("status", Shape::Any),
        ]);
    };
}

kind!(INSTANCE, &SPEC);
kind!(MACHINE, &MACHINE_SPEC);
kind!(REPLICA_SET, &REPLICA_SET_SPEC);
kind!(PRESET, &PRESET_SPEC);

static METADATA: Object = Object(&[
    yes("name", Shape::Text(&SUBDOMAIN)),
    yes("namespace", Shape::Text(&LABEL)),
    yes("labels", Shape::Texts),
    yes("annotations", Shape::Texts),
    yes("generateName", Shape::Any),
    yes("finalizers", Shape::Any),
    yes("ownerReferences", Shape::Any),
    yes("creationTimestamp", Shape::Any),
    yes("deletionTimestamp", Shape::Any),
    yes("deletionGracePeriodSeconds", Shape::Any),
    yes("generation", Shape::Any),
    yes("managedFields", Shape::Any),
    yes("resourceVersion", Shape::Any),
    yes("selfLink", Shape::Any),
    yes("uid", Shape::Any),
]);

static TEMPLATE: Object = Object(&[yes("metadata", Shape::Object(&METADATA)), must("spec", Shape::Object(&SPEC))]);

const DATA_VOLUMES: &str =
    "make the claim with CDI and name it under persistentVolumeClaim; `virtletctl vm convert` does";

pub(crate) static MACHINE_SPEC: Object = Object(&[
    yes("running", Shape::Bool),
    yes("runStrategy", Shape::Word(&["Always", "RerunOnFailure", "Manual", "Once", "Halted"])),
    must("template", Shape::Object(&TEMPLATE)),
    never("instancetype", Json::Object, "there are no instance types; write CPUs and memory into the template"),
    never("preference", Json::Object, "there are no instance types; write devices into the template"),
    never("dataVolumeTemplates", Json::List, DATA_VOLUMES),
    never("updateVolumesStrategy", Json::Text, "volumes do not change while a VM runs"),
]);

pub(crate) static REPLICA_SET_SPEC: Object = Object(&[
    yes("replicas", whole(100_000)),
    must("selector", Shape::Foreign(is::<LabelSelector>, Json::Selector)),
    must("template", Shape::Object(&TEMPLATE)),
    yes("paused", Shape::Bool),
]);

pub(crate) static PRESET_SPEC: Object = Object(&[
    must("selector", Shape::Foreign(is::<LabelSelector>, Json::Selector)),
    yes("domain", Shape::Object(&domain::DOMAIN)),
]);

pub(crate) static SPEC: Object = Object(&[
    must("domain", Shape::Object(&domain::DOMAIN)),
    yes("volumes", Shape::List(&Shape::Object(&VOLUME), MAX_DISKS)),
    yes("networks", Shape::List(&Shape::Object(&NETWORK), MAX_NICS)),
    yes("accessCredentials", Shape::List(&Shape::Object(&ACCESS_CREDENTIAL), MAX_ITEMS)),
    yes("livenessProbe", Shape::Object(&PROBE)),
    yes("readinessProbe", Shape::Object(&PROBE)),
    yes("hostname", Shape::Text(&LABEL)),
    yes("subdomain", Shape::Text(&SUBDOMAIN)),
    yes("terminationGracePeriodSeconds", whole(i64::MAX)),
    yes("startStrategy", Shape::Word(&["Paused"])),
    yes("evictionStrategy", Shape::Word(&["None", "LiveMigrateIfPossible", "LiveMigrate", "External"])),
    yes("architecture", Shape::Word(&["amd64", "arm64"])),
    yes("nodeSelector", Shape::Texts),
    yes("affinity", Shape::Foreign(is::<Affinity>, Json::Object)),
    yes("tolerations", Shape::Foreign(is::<Vec<Toleration>>, Json::List)),
    yes("topologySpreadConstraints", Shape::Foreign(is::<Vec<TopologySpreadConstraint>>, Json::List)),
    yes("schedulerName", Shape::Text(&NAME)),
    yes("priorityClassName", Shape::Text(&SUBDOMAIN)),
    yes("serviceAccountName", Shape::Text(&SUBDOMAIN)),
    yes("dnsPolicy", Shape::Word(&["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"])),
    yes("dnsConfig", Shape::Foreign(is::<PodDNSConfig>, Json::Object)),
    later("resourceClaims", Json::List, ""),
    never("utilityVolumes", Json::List, ""),
]);
