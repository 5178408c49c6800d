//! Volumes, networks, credentials and probes.

use k8s_openapi::api::core::v1::{ExecAction, HTTPGetAction, TCPSocketAction};
use serde::Deserialize;

use super::Empty;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Volume {
    pub name: String,
    pub container_disk: Option<ContainerDisk>,
    pub persistent_volume_claim: Option<Claim>,
    pub ephemeral: Option<Ephemeral>,
    pub empty_disk: Option<EmptyDisk>,
    pub cloud_init_no_cloud: Option<CloudInit>,
    pub cloud_init_config_drive: Option<CloudInit>,
    pub config_map: Option<ConfigMap>,
    pub secret: Option<Secret>,
    pub sysprep: Option<Sysprep>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ContainerDisk {
    pub image: String,
    pub image_pull_policy: Option<String>,
    pub image_pull_secret: Option<String>,
    pub path: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    pub claim_name: String,
    pub read_only: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Ephemeral {
    pub persistent_volume_claim: Claim,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmptyDisk {
    pub capacity: String,
}

/// User-data and network-config, each in one of three ways. `Debug` shows neither.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInit {
    pub user_data: Option<String>,
    pub user_data_base64: Option<String>,
    pub secret_ref: Option<Reference>,
    pub network_data: Option<String>,
    pub network_data_base64: Option<String>,
    pub network_data_secret_ref: Option<Reference>,
}

/// The name of an object of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reference {
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMap {
    pub name: String,
    pub optional: Option<bool>,
    pub volume_label: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Secret {
    pub secret_name: String,
    pub optional: Option<bool>,
    pub volume_label: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Sysprep {
    pub secret: Option<Reference>,
    pub config_map: Option<Reference>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Network {
    pub name: String,
    pub pod: Option<Empty>,
    pub multus: Option<Multus>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Multus {
    pub network_name: String,
    #[serde(rename = "default")]
    pub is_default: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessCredential {
    pub ssh_public_key: Option<SshPublicKey>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SshPublicKey {
    pub source: KeySource,
    pub propagation_method: Propagation,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeySource {
    pub secret: Option<KeySecret>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySecret {
    pub secret_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Propagation {
    pub no_cloud: Option<Empty>,
    pub config_drive: Option<Empty>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    pub http_get: Option<HTTPGetAction>,
    pub tcp_socket: Option<TCPSocketAction>,
    pub exec: Option<ExecAction>,
    pub guest_agent_ping: Option<Empty>,
    pub initial_delay_seconds: Option<i32>,
    pub timeout_seconds: Option<i32>,
    pub period_seconds: Option<i32>,
    pub success_threshold: Option<i32>,
    pub failure_threshold: Option<i32>,
}

impl std::fmt::Debug for CloudInit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CloudInit")
    }
}

// === impl Volume ===

impl Volume {
    /// Names of its sources.
    #[must_use]
    pub fn sources(&self) -> Vec<&'static str> {
        let Self {
            name: _,
            container_disk,
            persistent_volume_claim,
            ephemeral,
            empty_disk,
            cloud_init_no_cloud,
            cloud_init_config_drive,
            config_map,
            secret,
            sysprep,
        } = self;
        [
            ("containerDisk", container_disk.is_some()),
            ("persistentVolumeClaim", persistent_volume_claim.is_some()),
            ("ephemeral", ephemeral.is_some()),
            ("emptyDisk", empty_disk.is_some()),
            ("cloudInitNoCloud", cloud_init_no_cloud.is_some()),
            ("cloudInitConfigDrive", cloud_init_config_drive.is_some()),
            ("configMap", config_map.is_some()),
            ("secret", secret.is_some()),
            ("sysprep", sysprep.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, is_there)| is_there.then_some(name))
        .collect()
    }

    /// cloud-init's data, and the name of its source.
    #[must_use]
    pub fn cloud_init(&self) -> Option<(&'static str, &CloudInit)> {
        let no_cloud = self.cloud_init_no_cloud.as_ref().map(|data| ("cloudInitNoCloud", data));
        no_cloud.or_else(|| self.cloud_init_config_drive.as_ref().map(|data| ("cloudInitConfigDrive", data)))
    }

    /// The claim that it is of, if it is of one.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        let of_ephemeral = || self.ephemeral.as_ref().map(|ephemeral| &ephemeral.persistent_volume_claim);
        self.persistent_volume_claim.as_ref().or_else(of_ephemeral)
    }

    /// Whether a VM may boot from it.
    #[must_use]
    pub const fn may_boot(&self) -> bool {
        self.container_disk.is_some() || self.persistent_volume_claim.is_some() || self.ephemeral.is_some()
    }
}

// === impl Probe ===

impl Probe {
    /// How many ways it has to ask.
    #[must_use]
    pub fn ways(&self) -> usize {
        let ways =
            [self.http_get.is_some(), self.tcp_socket.is_some(), self.exec.is_some(), self.guest_agent_ping.is_some()];
        ways.into_iter().filter(|is_there| *is_there).count()
    }
}
