//! The cloud-init seed of a machine: a NoCloud image that the guest reads at each boot.
//!
//! Assembled from the pod's annotations and its network when a container is made, so that errors come early, and again at
//! each start. Pure; the container's actor writes the image. The image holds what the pod's user wants kept: `Debug` shows
//! sizes only, and errors show no content.
//!
//! The instance-id is the pod's, not the container's: the root disk lives as long as the pod, and cloud-init runs its
//! per-instance modules once per disk. Pods of one name differ by their UID, so a reused name is another instance.

mod image;
mod json;
mod network;

use std::fmt;

use common::Reason;
use common::dns::MAX_LABEL;
use proto::tap::PodNet;
use serde_json::{Map, Value};

use crate::model::annotations::{PodAnnotations, SshKey};

/// Longest user-data, in bytes.
pub const MAX_USER_DATA: usize = 2 << 20;
/// Largest seed, in bytes of its files.
pub const MAX_SEED: usize = 16 << 20;
/// User-data of a pod that gives none: cloud-init wants the file, and takes an empty one for a fault.
const NO_USER_DATA: &str = "#cloud-config\n";

/// Vendor-data of a seed with the agent.
const INSTALL_AGENT: &str = include_str!("seed/install-agent.sh");

/// What a seed is made of.
#[derive(Debug, Clone, Copy)]
pub struct SeedInput<'a> {
    pub pod_name: &'a str,
    /// Pod namespace.
    pub namespace: &'a str,
    /// Pod UID.
    pub uid: &'a str,
    /// The sandbox's host name; empty stands for the pod's name.
    pub hostname: &'a str,
    pub annotations: &'a PodAnnotations,
    pub net: &'a PodNet,
    /// The program of the agent, if the pod wants it installed.
    pub agent: Option<&'a [u8]>,
}

/// The files of a seed.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed {
    meta_data: Vec<u8>,
    user_data: Vec<u8>,
    /// `None` if the pod wants none: cloud-init then asks for addresses on the first NIC that it finds.
    network_config: Option<Vec<u8>>,
    /// cloud-init installs it by vendor-data, which does not get in the way of what the pod's user gives.
    agent: Option<Vec<u8>>,
}

/// Makes the files of a seed.
///
/// # Errors
/// When a part is over its limit.
pub fn assemble(input: &SeedInput<'_>) -> Result<Seed, Reason> {
    let user_data = input.annotations.user_data.as_ref().map_or(NO_USER_DATA, |given| given.as_str());
    within("cloud-init user-data", user_data.len(), MAX_USER_DATA)?;
    let encode = |file: &'static str, bytes: serde_json::Result<Vec<u8>>| {
        let failed = || Reason::new(format!("failed to encode `{file}` of the cloud-init seed"));
        bytes.map_err(|cause| failed().with(cause))
    };
    let network_config = network::config(input.net, input.annotations.network_config);
    let network_config = network_config.map(|config| encode(image::NETWORK_CONFIG, json::encode(&config)));
    let seed = Seed {
        meta_data: encode(image::META_DATA, json::encode(&meta_data(input)))?,
        user_data: user_data.as_bytes().to_owned(),
        network_config: network_config.transpose()?,
        agent: input.agent.map(<[u8]>::to_vec),
    };
    within("cloud-init seed", seed.files().iter().map(|(_, bytes)| bytes.len()).sum(), MAX_SEED)?;
    Ok(seed)
}

fn meta_data(input: &SeedInput<'_>) -> Map<String, Value> {
    let SeedInput { pod_name, namespace, uid, annotations, .. } = input;
    let keys: Vec<Value> = annotations.ssh_keys.iter().map(|key| SshKey::as_str(key).into()).collect();
    let mut map = Map::new();
    map.insert("instance-id".into(), format!("{pod_name}.{namespace}.{uid}").into());
    map.insert("local-hostname".into(), hostname(input).into());
    if !keys.is_empty() {
        map.insert("public-keys".into(), keys.into());
    }
    map.extend(annotations.meta_data.entries().clone());
    map
}

/// kubelet cuts a pod's name the same way where it makes a host name of it.
fn hostname<'a>(input: &SeedInput<'a>) -> &'a str {
    let whole = if input.hostname.is_empty() { input.pod_name } else { input.hostname };
    let fits = whole.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_LABEL).last();
    whole.get(..fits.unwrap_or(0)).unwrap_or_default().trim_end_matches(['-', '.'])
}

fn within(what: &'static str, len: usize, limit: usize) -> Result<(), Reason> {
    if len <= limit {
        return Ok(());
    }
    Err(Reason::new(format!("{what} is {}, limit {}; use a volume", mebibytes(len), mebibytes(limit))))
}

/// Rounded up to a tenth, so that what is over a limit never reads as equal to it.
fn mebibytes(bytes: usize) -> String {
    let tenths = bytes.saturating_mul(10).div_ceil(1 << 20);
    match tenths % 10 {
        0 => format!("{} MiB", tenths / 10),
        tenth => format!("{}.{tenth} MiB", tenths / 10),
    }
}

// === impl Seed ===

impl Seed {
    /// The files by name, in the order of their names.
    #[must_use]
    pub fn files(&self) -> Vec<(&'static str, &[u8])> {
        let mut files = vec![(image::META_DATA, self.meta_data.as_slice())];
        files.extend(self.network_config.as_deref().map(|bytes| (image::NETWORK_CONFIG, bytes)));
        files.push((image::USER_DATA, &self.user_data));
        if let Some(agent) = &self.agent {
            files.extend([(image::VENDOR_DATA, INSTALL_AGENT.as_bytes()), (image::AGENT, agent.as_slice())]);
        }
        files
    }

    /// An image with label `cidata` and these files. Two images of one seed differ in their times.
    ///
    /// # Errors
    /// When the image cannot be made.
    pub fn to_iso(&self) -> Result<Vec<u8>, Reason> {
        image::iso(&self.files()).map_err(Reason::because("failed to make the image of the cloud-init seed"))
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.files().iter().map(|(name, bytes)| (name, bytes.len()))).finish()
    }
}

#[cfg(test)]
mod tests;
