//! How what the pod's user gives and what is made for the pod come to cloud-init together.
//!
//! | the user gives | user-data | vendor-data |
//! |---|---|---|
//! | nothing | what is made | |
//! | a cloud-config that has no key of what is made, or turns vendor-data off | the user's, byte for byte | what is made |
//! | a cloud-config with such a key | both, merged; what is made comes first | |
//! | any other format | the user's, byte for byte | what is made |
//!
//! cloud-init drops a key of vendor-data that user-data has, with all that is in a list there. Hence the third row, and that alone is
//! written anew. Who turns vendor-data off wants nothing of ours: it is there, and cloud-init leaves it.

use common::Reason;
use serde_json::{Map, Value};

use super::json;
use super::merge::merge;
use crate::annotations::{CLOUD_CONFIG, Format, UserData};

/// What comes of both.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Joined {
    pub(super) user_data: Vec<u8>,
    /// A cloud-config.
    pub(super) vendor_data: Option<Map<String, Value>>,
}

/// Joins what the user gives with what is made for the pod.
///
/// # Errors
/// When both have a key, and the user's document is none that can be merged.
pub(super) fn join(user: Option<&UserData>, made: Map<String, Value>) -> Result<Joined, Reason> {
    let Some(user) = user else {
        return Ok(Joined { user_data: bytes_of(&made)?, vendor_data: None });
    };
    let common = match user.format() {
        Format::CloudConfig(keys) | Format::Map(keys) => made.keys().find(|key| keys.contains(*key)),
        Format::Script | Format::Other => None,
    };
    let Some(common) = common.filter(|_| !user.refuses_vendor_data()) else {
        return Ok(Joined { user_data: user.for_cloud_init().into(), vendor_data: (!made.is_empty()).then_some(made) });
    };
    let cannot = |why: String| {
        Reason::new(format!("user-data has `{common}`, and cannot be merged with what is made for the pod: {why}"))
    };
    let users = user.map().map_err(|problem| cannot(problem.to_string()))?.unwrap_or_default();
    // A key without a value is none to cloud-init, and would win here.
    let users: Map<String, Value> =
        users.into_iter().filter(|(key, value)| !(value.is_null() && made.contains_key(key))).collect();
    if let Some((key, _)) =
        made.iter().find(|(key, value)| value.is_array() && users.get(*key).is_some_and(|users| !users.is_array()))
    {
        return Err(cannot(format!("`{key}` is not a list")));
    }
    Ok(Joined { user_data: bytes_of(&merge(made, users))?, vendor_data: None })
}

/// One user-data on another.
///
/// # Errors
/// When one of them is no map.
pub(super) fn on_top(base: &UserData, top: &UserData) -> Result<UserData, Reason> {
    let map = |name: &str, data: &UserData| {
        let wrong = |why: String| Reason::new(format!("annotation VirtletCloudInitUserDataSource: {why}"));
        let map = data.map().map_err(|problem| wrong(format!("{name}: {problem}")))?;
        map.ok_or_else(|| {
            wrong(format!(
                "{name} is no cloud-config, so it cannot be merged with the other; have one of them, or set \
                 VirtletCloudInitUserDataOverwrite"
            ))
        })
    };
    let base = map("the source", base)?;
    cloud_config(&merge(base, map("the pod's own user-data", top)?))
}

/// The document that says this.
pub(super) fn cloud_config(map: &Map<String, Value>) -> Result<UserData, Reason> {
    let bytes = bytes_of(map)?;
    super::within("cloud-init user-data", bytes.len(), super::MAX_USER_DATA)?;
    UserData::of_file(&bytes).map_err(|problem| Reason::new(format!("user-data: {problem}")))
}

/// A cloud-config in JSON, of which it is known that cloud-init reads it as the same values.
pub(super) fn bytes_of(map: &Map<String, Value>) -> Result<Vec<u8>, Reason> {
    let mut bytes = format!("{CLOUD_CONFIG}\n").into_bytes();
    if !map.is_empty() {
        bytes.extend(json::encode(map).map_err(Reason::because("failed to encode user-data"))?);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
