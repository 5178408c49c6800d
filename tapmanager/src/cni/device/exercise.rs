//! Entry for fuzzers: bytes as a device-info file, and as the configuration and arguments of one of Multus' delegates.

use serde_json::{Map, Value, json};

use super::{INFO_FILE, Said, device_info};
use crate::cni::result::ResultView;

/// Reads `bytes` as either.
///
/// # Panics
/// When a network is given a device that is not the one that each of its sources names.
pub fn exercise(bytes: &[u8]) {
    if let Ok(Some(address)) = device_info(bytes) {
        check(&Said { named: vec![("a device-info file".to_owned(), address)], ..Said::default() });
    }
    let Ok(Value::Object(conf)) = serde_json::from_slice(bytes) else { return };
    // The file that it names is none of the input.
    let arguments: Map<String, Value> =
        conf.iter().filter(|(key, _)| *key != INFO_FILE).map(|(key, value)| (key.clone(), value.clone())).collect();
    if let Ok(said) = Said::of_delegate(Some(&Value::Object(conf)), &arguments) {
        check(&said);
    }
}

fn check(said: &Said) {
    let result = json!({"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "/run/netns/pod"}]});
    let view = ResultView::of(&result).expect("a constant result");
    let Ok(devices) = said.devices("net", &view) else { return };
    let addresses: Vec<&String> = said.named.iter().map(|(_, text)| text).filter(|text| text.contains(':')).collect();
    assert!(devices.is_empty() == addresses.is_empty(), "{said:?}: {devices:?}");
    for device in devices.values() {
        assert!(addresses.iter().all(|text| text.parse() == Ok(device.addr)), "{said:?}: {device:?}");
    }
}
