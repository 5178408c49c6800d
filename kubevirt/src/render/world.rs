//! What else is in the same manifest: Secrets and claims that a VM may name.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::quantity;
use serde_json::Value;

use crate::Document;

/// The mode of a claim that says none.
pub(super) const FILESYSTEM: &str = "Filesystem";
/// That of one whose volume is a device.
pub(super) const BLOCK: &str = "Block";

/// An object by namespace and name.
type Id = (Option<String>, String);

/// Objects of others, as far as they matter.
#[derive(Default)]
pub(crate) struct World {
    secrets: BTreeMap<Id, BTreeMap<String, String>>,
    claims: BTreeMap<Id, KnownClaim>,
}

/// A claim, as far as it is told.
#[derive(Debug, Default)]
pub(super) struct KnownClaim {
    /// `volumeMode`.
    pub(super) mode: Option<String>,
    /// Bytes that it has, or asks for.
    pub(super) size: Option<u64>,
}

impl World {
    pub(crate) fn of(documents: &[Document]) -> Self {
        let mut world = Self::default();
        for document in documents {
            let id = (document.namespace().map(str::to_owned), document.name().to_owned());
            let text = |pointer: &str| document.value.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
            match (document.api_version(), document.kind_name()) {
                ("v1", "Secret") => drop(world.secrets.insert(id, secret(&document.value))),
                // What the API takes for granted.
                ("v1", "PersistentVolumeClaim") => {
                    let mode = Some(text("/spec/volumeMode").unwrap_or_else(|| FILESYSTEM.to_owned()));
                    let size = text("/status/capacity/storage").or_else(|| text("/spec/resources/requests/storage"));
                    world.claims.insert(id, KnownClaim { mode, size: size.and_then(bytes) });
                }
                // Makes a claim of its own name. With `storage`, a class says the mode.
                (_, "DataVolume") => {
                    let mode = text("/spec/pvc/volumeMode").or_else(|| text("/spec/storage/volumeMode"));
                    world.claims.insert(id, KnownClaim { mode, size: None });
                }
                _ => {}
            }
        }
        world
    }

    /// A Secret's keys with their texts.
    pub(super) fn secret(&self, namespace: Option<&str>, name: &str) -> Option<&BTreeMap<String, String>> {
        self.secrets.get(&(namespace.map(str::to_owned), name.to_owned()))
    }

    /// A claim, if anything is known of it.
    pub(super) fn claim(&self, namespace: Option<&str>, name: &str) -> Option<&KnownClaim> {
        self.claims.get(&(namespace.map(str::to_owned), name.to_owned()))
    }
}

fn bytes(text: String) -> Option<u64> {
    quantity::bytes(&text).ok()
}

fn secret(value: &Value) -> BTreeMap<String, String> {
    let entries = |pointer: &str| value.pointer(pointer).and_then(Value::as_object).into_iter().flatten();
    let decoded = entries("/data").filter_map(|(key, value)| {
        let bytes = STANDARD.decode(value.as_str()?).ok()?;
        Some((key.clone(), String::from_utf8(bytes).ok()?))
    });
    let plain = entries("/stringData").filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    decoded.chain(plain).collect()
}
