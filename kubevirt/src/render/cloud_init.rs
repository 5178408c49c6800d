//! cloud-init's data: user-data in a Secret, never in an annotation, and public keys.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, SecretVolumeSource, Volume as PodVolume, VolumeMount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use proto::vm::{self, Key, VOLUME_DIR};
use vmspec::annotations::keys::{SEED_TYPE, SOURCE, SOURCE_KEY, SSH_KEYS};

use super::Draft;
use crate::Path;
use crate::names::cut;
use crate::rules::user_data;
use crate::types::CloudInit;

/// Keys of a Secret with data, and how else they are written.
const USER_DATA: [&str; 2] = ["userdata", "userData"];
const NETWORK_DATA: [&str; 2] = ["networkdata", "networkData"];
/// Longest name of an object.
const MAX_NAME: usize = 253;

pub(super) fn of(draft: &mut Draft<'_>) {
    let spec = draft.spec;
    let found = spec.volumes.iter().enumerate().find_map(|(nth, volume)| Some((nth, volume, volume.cloud_init()?)));
    let Some((nth, volume, (source, data))) = found else { return };
    let at = draft.instance.at.field("volumes").item(nth).field(source);
    let kind = if volume.cloud_init_config_drive.is_some() { "configdrive" } else { "nocloud" };
    draft.annotate(SEED_TYPE, kind, &at);
    let mut made = BTreeMap::new();
    if let Some(bytes) = user_data(data) {
        made.insert(USER_DATA[0].to_owned(), bytes);
    }
    let network = data.network_data.as_ref().map(|text| text.clone().into_bytes());
    let network = network.or_else(|| STANDARD.decode(data.network_data_base64.as_ref()?).ok());
    if let Some(bytes) = network {
        made.insert(NETWORK_DATA[0].to_owned(), bytes);
    }
    let own = (!made.is_empty()).then(|| {
        let name = format!("{}-ci", cut(draft.instance.pod, MAX_NAME - 3));
        draft.secret = Some(secret(&name, made));
        name
    });
    sources(draft, &volume.name, own.as_deref(), data, &at);
    keys(draft);
}

/// What user-data and network-config are read from.
fn sources(draft: &mut Draft<'_>, volume: &str, own: Option<&str>, data: &CloudInit, at: &Path) {
    let user = data.secret_ref.as_ref().map(|secret| secret.name.as_str());
    let network = data.network_data_secret_ref.as_ref().map(|secret| secret.name.as_str());
    let mut mounted: BTreeMap<&str, String> = BTreeMap::new();
    for (nth, name) in [own, user, network].into_iter().flatten().enumerate() {
        if !mounted.contains_key(name) {
            // One that is named beside the first is rare; its name must be no other volume's.
            let volume = if nth == 0 { volume.to_owned() } else { format!("{}-{nth}", cut(volume, 60)) };
            mount(draft, &volume, name);
            mounted.insert(name, volume);
        }
    }
    let has_own = |field: bool| own.filter(|_| field);
    if let Some(secret) = has_own(data.user_data.is_some() || data.user_data_base64.is_some()).or(user)
        && let Some(volume) = mounted.get(secret)
    {
        draft.annotate(SOURCE, format!("volume/{volume}"), at);
        let key = key_of(draft, secret, USER_DATA);
        draft.annotate(SOURCE_KEY, key, at);
    }
    if let Some(secret) = has_own(data.network_data.is_some() || data.network_data_base64.is_some()).or(network)
        && let Some(volume) = mounted.get(secret)
    {
        let key = Key { volume: volume.clone(), key: key_of(draft, secret, NETWORK_DATA).to_owned() };
        draft.description.cloud_init.get_or_insert_default().network_data = Some(key);
    }
}

/// The key that a Secret of the same manifest has; the first if that is not there to look at.
fn key_of(draft: &Draft<'_>, secret: &str, names: [&'static str; 2]) -> &'static str {
    let keys = draft.world.secret(draft.instance.namespace, secret);
    let [first, other] = names;
    if keys.is_some_and(|keys| !keys.contains_key(first) && keys.contains_key(other)) { other } else { first }
}

/// Public keys: of Secrets in the same manifest, as they are no secrets; of others by the description, since each of their keys counts.
fn keys(draft: &mut Draft<'_>) {
    let spec = draft.spec;
    let mut lines = String::new();
    let at_all = draft.instance.at.field("accessCredentials");
    for (nth, credential) in spec.access_credentials.iter().enumerate() {
        let Some(secret) = credential.ssh_public_key.as_ref().and_then(|key| key.source.secret.as_ref()) else {
            continue;
        };
        let name = &secret.secret_name;
        if let Some(keys) = draft.world.secret(draft.instance.namespace, name) {
            for key in keys.values() {
                lines.push_str(key.trim_end());
                lines.push('\n');
            }
            continue;
        }
        let volume = format!("ssh-keys-{nth}");
        mount(draft, &volume, name);
        draft.description.cloud_init.get_or_insert_with(vm::CloudInit::default).ssh_keys.push(volume);
    }
    if !lines.is_empty() {
        draft.annotate(SSH_KEYS, lines, &at_all);
    }
}

fn mount(draft: &mut Draft<'_>, volume: &str, secret: &str) {
    let source = SecretVolumeSource { secret_name: Some(secret.to_owned()), ..SecretVolumeSource::default() };
    let pod_volume = PodVolume { name: volume.to_owned(), secret: Some(source), ..PodVolume::default() };
    draft.pod.volumes.get_or_insert_default().push(pod_volume);
    let mount =
        VolumeMount { name: volume.to_owned(), mount_path: format!("{VOLUME_DIR}{volume}"), ..VolumeMount::default() };
    draft.container.volume_mounts.get_or_insert_default().push(mount);
}

fn secret(name: &str, made: BTreeMap<String, Vec<u8>>) -> Secret {
    let mut secret = Secret {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    for (key, bytes) in made {
        // As text for who reads it, where that is one.
        match String::from_utf8(bytes) {
            Ok(text) => drop(secret.string_data.get_or_insert_default().insert(key, text)),
            Err(error) => drop(secret.data.get_or_insert_default().insert(key, ByteString(error.into_bytes()))),
        }
    }
    secret
}
