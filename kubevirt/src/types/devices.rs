//! A domain's devices.

use proto::vm::{BlockSize, DhcpOptions, Input, PanicDevice, Video, Watchdog};
use serde::Deserialize;

/// An object with nothing in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Devices {
    pub disks: Vec<Disk>,
    pub interfaces: Vec<Interface>,
    pub inputs: Vec<Input>,
    pub watchdog: Option<Watchdog>,
    /// Every VM has one.
    pub rng: Option<Empty>,
    pub video: Option<Video>,
    pub panic_devices: Vec<PanicDevice>,
    pub autoattach_pod_interface: Option<bool>,
    pub autoattach_graphics_device: Option<bool>,
    pub autoattach_serial_console: Option<bool>,
    pub log_serial_console: Option<bool>,
    pub autoattach_mem_balloon: Option<bool>,
    pub autoattach_input_device: Option<bool>,
    pub block_multi_queue: Option<bool>,
    pub network_interface_multiqueue: Option<bool>,
    pub use_virtio_transitional: Option<bool>,
    pub disable_hotplug: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Disk {
    pub name: String,
    pub disk: Option<Target>,
    pub cdrom: Option<Cdrom>,
    pub boot_order: Option<u32>,
    pub serial: Option<String>,
    pub cache: Option<String>,
    pub io: Option<String>,
    pub error_policy: Option<String>,
    pub shareable: Option<bool>,
    pub block_size: Option<BlockSize>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    pub bus: Option<String>,
    pub readonly: bool,
    pub pci_address: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cdrom {
    pub bus: Option<String>,
    pub readonly: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Interface {
    pub name: String,
    pub bridge: Option<Empty>,
    pub sriov: Option<Empty>,
    pub masquerade: Option<Empty>,
    pub model: Option<String>,
    pub mac_address: Option<String>,
    pub boot_order: Option<u32>,
    pub pci_address: Option<String>,
    pub acpi_index: Option<u32>,
    pub ports: Vec<Port>,
    pub port_ranges: Vec<PortRange>,
    pub dhcp_options: Option<DhcpOptions>,
    pub state: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    pub name: Option<String>,
    pub protocol: Option<String>,
    pub port: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortRange {
    pub protocol: Option<String>,
    pub start: i32,
    pub end: i32,
}

impl Disk {
    /// Its bus, if it says one.
    #[must_use]
    pub fn bus(&self) -> Option<&str> {
        let target = self.disk.as_ref().and_then(|disk| disk.bus.as_deref());
        target.or_else(|| self.cdrom.as_ref().and_then(|cdrom| cdrom.bus.as_deref()))
    }

    /// Whether the guest may not write to it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.readonly) || self.cdrom.is_some()
    }
}
