//! The files of a seed's disk, as NoCloud has them and as OpenStack's ConfigDrive has them.

use common::Reason;
use serde::Serialize;
use serde_json::{Map, Value, json as value};
use uuid::Uuid;

use super::hostname::hostname;
use super::join::{self, Joined};
use super::{SeedInput, json, network};
use crate::annotations::SshKey;
use crate::ids::smbios_uuid;

/// The program of our agent, beside what is cloud-init's.
pub(super) const AGENT: &str = "virtlet-agent";
/// Vendor-data of a seed with the agent.
const INSTALL_AGENT: &str = include_str!("install-agent.sh");
/// What that calls the disk that the agent is on.
const LABEL_MARK: &str = "SEED_LABEL";

/// What the disk is called, and what is on it.
pub(super) type Drive = (&'static str, Vec<(&'static str, Vec<u8>)>);

/// For cloud-init's data source NoCloud.
pub(super) fn no_cloud(input: &SeedInput<'_>, keys: &[SshKey], joined: Joined) -> Result<Drive, Reason> {
    let label = "cidata";
    let mut meta_data = Map::new();
    meta_data.insert("instance-id".into(), super::instance_id(input).into());
    meta_data.insert("local-hostname".into(), hostname(input).into());
    if !keys.is_empty() {
        meta_data.insert("public-keys".into(), keys.iter().map(SshKey::as_str).collect());
    }
    meta_data.extend(input.annotations.meta_data.entries().clone());
    let mut files = vec![("meta-data", encode("meta-data", &meta_data)?)];
    if let Some(given) = input.sources.network_data(input.annotations)? {
        files.push(("network-config", given));
    } else if let Some(config) = network::config(input.net, input.network) {
        files.push(("network-config", encode("network-config", &config)?));
    }
    files.push(("user-data", joined.user_data));
    if let Some(vendor_data) = vendor_data(joined.vendor_data.as_ref(), input.agent.is_some(), label)? {
        files.push(("vendor-data", vendor_data.into()));
    }
    Ok((label, files))
}

/// For its data source ConfigDrive, and whatever else reads OpenStack's.
///
/// cloud-init takes the drive's `uuid` for the instance-id, and trusts what it has kept, without another look at the drive, if that is the
/// UUID of the machine's firmware. So it is made of the instance-id, and is never the firmware's, nor may the pod say so.
pub(super) fn config_drive(input: &SeedInput<'_>, keys: &[SshKey], joined: Joined) -> Result<Drive, Reason> {
    const META_DATA: &str = "openstack/latest/meta_data.json";
    const NETWORK_DATA: &str = "openstack/latest/network_data.json";
    const VENDOR_DATA: &str = "openstack/latest/vendor_data.json";
    let label = "config-2";
    let given = input.annotations.meta_data.entries();
    let text = |key: &str| given.get(key).and_then(Value::as_str);
    let uuid = Uuid::new_v5(&Uuid::NAMESPACE_OID, super::instance_id(input).as_bytes());
    let firmware = smbios_uuid(input.annotations.system_uuid, input.instance, input.uid);
    if text("uuid").is_some_and(|given| Uuid::parse_str(given) == Ok(firmware)) {
        return Err(Reason::new(format!(
            "annotation VirtletCloudInitMetaData: `uuid` is the machine's own, {firmware}, by which cloud-init would not look at \
             the seed again at later boots; give another one, or none"
        )));
    }
    let hostname = text("local-hostname").unwrap_or_else(|| hostname(input)).to_owned();
    let mut meta_data = Map::new();
    meta_data.insert("uuid".into(), uuid.to_string().into());
    meta_data.insert("hostname".into(), hostname.into());
    meta_data.insert("name".into(), input.pod_name.into());
    if !keys.is_empty() {
        let named = keys.iter().enumerate().map(|(place, key)| (format!("virtlet-{place}"), key.as_str().into()));
        meta_data.insert("public_keys".into(), Value::Object(named.collect()));
    }
    let replaces = |(key, _): &(&String, &Value)| !["instance-id", "local-hostname"].contains(&key.as_str());
    meta_data.extend(given.iter().filter(replaces).map(|(key, value)| (key.clone(), value.clone())));
    let mut files = vec![(META_DATA, encode(META_DATA, &meta_data)?)];
    if let Some(given) = input.sources.network_data(input.annotations)? {
        files.push((NETWORK_DATA, given));
    } else if let Some(data) = network::network_data(input.net, input.network) {
        files.push((NETWORK_DATA, encode(NETWORK_DATA, &data)?));
    }
    files.push(("openstack/latest/user_data", joined.user_data));
    if let Some(text) = vendor_data(joined.vendor_data.as_ref(), input.agent.is_some(), label)? {
        files.push((VENDOR_DATA, encode(VENDOR_DATA, &value!({ "cloud-init": text }))?));
    }
    Ok((label, files))
}

/// What comes from us, which is a cloud-config, a script that installs the agent, or both.
fn vendor_data(config: Option<&Map<String, Value>>, has_agent: bool, label: &str) -> Result<Option<String>, Reason> {
    let script = has_agent.then(|| INSTALL_AGENT.replace(LABEL_MARK, label));
    let config = config.map(join::bytes_of).transpose()?;
    // All of it was text.
    let config = config.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok(match (config, script) {
        (Some(config), Some(script)) => {
            let parts = value!([
                { "type": "text/cloud-config", "content": config },
                { "type": "text/x-shellscript", "content": script },
            ]);
            let parts = encode("vendor-data", &parts)?;
            Some(format!("#cloud-config-archive\n{}", String::from_utf8_lossy(&parts)))
        }
        (config, script) => config.or(script),
    })
}

fn encode(file: &'static str, value: &impl Serialize) -> Result<Vec<u8>, Reason> {
    json::encode(value)
        .map_err(|cause| Reason::new(format!("failed to encode `{file}` of the cloud-init seed")).with(cause))
}
