//! Other devices of a described machine.

use serde::{Deserialize, Serialize};

/// Devices. One of which nothing is said is as the node has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Devices {
    /// Whether the guest has a NIC on the pod's default network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_interface: Option<bool>,
    /// Whether it has a screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphics: Option<bool>,
    /// Its video card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub video: Option<Video>,
    /// Whether it has a serial console.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial_console: Option<bool>,
    /// Whether it has a memory balloon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_balloon: Option<bool>,
    /// What it is typed and pointed with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Input>,
    /// Its watchdog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
    /// What tells that it has panicked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub panic_devices: Vec<PanicDevice>,
    /// Whether NICs have a queue for each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_multi_queue: Option<bool>,
    /// Whether disks have a queue for each vCPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_multi_queue: Option<bool>,
    /// Whether virtio devices are such that drivers of before 1.0 find them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub virtio_transitional: Option<bool>,
    /// `shared` or `auto`: which threads disks have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_threads: Option<String>,
}

/// A video card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Video {
    /// As libvirt names it.
    #[serde(rename = "type")]
    pub model: String,
}

/// What a machine is typed or pointed with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its name.
    pub name: String,
    /// `usb` or `virtio`; `usb` if nothing is said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub bus: String,
    /// `tablet`, and nothing else.
    #[serde(rename = "type")]
    pub kind: String,
}

/// A watchdog of model i6300esb.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watchdog {
    /// Its name.
    pub name: String,
    /// What it does when nobody has fed it.
    pub i6300esb: WatchdogAction,
}

/// What a watchdog does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogAction {
    /// `poweroff`, `reset` or `shutdown`; `reset` if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// What tells that a guest has panicked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PanicDevice {
    /// As libvirt names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
