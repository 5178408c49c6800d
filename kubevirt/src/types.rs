//! Objects as values: the fields of the table that are supported, after [`table::check`](super::table) has looked at them.

mod devices;
mod domain;
mod volumes;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Affinity, PodDNSConfig, Toleration, TopologySpreadConstraint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::{Deserialize, Serialize};

pub use self::devices::{Cdrom, Devices, Disk, Empty, Interface, Port, PortRange, Target};
pub use self::domain::{
    Bios, Bootloader, Cpu, Domain, Efi, Firmware, HugePages, MachineType, Memory, Quantities, ResourceRequirements,
};
pub use self::volumes::{
    AccessCredential, Claim, CloudInit, ConfigMap, ContainerDisk, EmptyDisk, Ephemeral, KeySecret, KeySource, Multus,
    Network, Probe, Propagation, Reference, Secret, SshPublicKey, Sysprep, Volume,
};

/// Metadata, as far as pods get something of it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub struct Metadata {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Of a VirtualMachineInstance.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    pub domain: Domain,
    pub volumes: Vec<Volume>,
    pub networks: Vec<Network>,
    pub access_credentials: Vec<AccessCredential>,
    pub liveness_probe: Option<Probe>,
    pub readiness_probe: Option<Probe>,
    pub hostname: Option<String>,
    pub subdomain: Option<String>,
    pub termination_grace_period_seconds: Option<i64>,
    pub start_strategy: Option<String>,
    pub eviction_strategy: Option<String>,
    pub architecture: Option<String>,
    pub node_selector: BTreeMap<String, String>,
    pub affinity: Option<Affinity>,
    pub tolerations: Vec<Toleration>,
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,
    pub scheduler_name: Option<String>,
    pub priority_class_name: Option<String>,
    pub service_account_name: Option<String>,
    pub dns_policy: Option<String>,
    pub dns_config: Option<PodDNSConfig>,
}

/// What VirtualMachineInstances are made of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Template {
    pub metadata: Metadata,
    pub spec: Spec,
}

/// Of a VirtualMachine.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineSpec {
    pub running: Option<bool>,
    pub run_strategy: Option<String>,
    pub template: Option<Template>,
}

/// Of a VirtualMachineInstanceReplicaSet.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicaSetSpec {
    pub replicas: Option<u32>,
    pub selector: Option<LabelSelector>,
    pub template: Option<Template>,
    pub paused: bool,
}

impl MachineSpec {
    /// When it runs; `None` if that is not said.
    #[must_use]
    pub fn strategy(&self) -> Option<&str> {
        let running = self.running.map(|running| if running { "Always" } else { "Halted" });
        self.run_strategy.as_deref().or(running)
    }
}
