//! NICs of a described machine.

use serde::{Deserialize, Serialize};

/// What a NIC is beyond what its network says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Nic {
    /// The network's name in the object.
    pub name: String,
    /// The link in the pod, if it is not that of the default network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// Its MAC address, if the network is not told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac_address: Option<String>,
    /// Its place among what the firmware tries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_order: Option<u32>,
    /// Where it is on PCI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pci_address: Option<String>,
    /// Its number in ACPI, by which guests name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acpi_index: Option<u32>,
    /// `up` or `down`: whether it begins with a carrier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// What the pod's DHCP server says on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dhcp_options: Option<DhcpOptions>,
}

/// What a DHCP server says beside addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct DhcpOptions {
    /// Option 67.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boot_file_name: Option<String>,
    /// Option 66.
    #[serde(rename = "tftpServerName", skip_serializing_if = "Option::is_none")]
    pub tftp_server_name: Option<String>,
    /// Option 42.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ntp_servers: Vec<String>,
    /// Options 224 to 254.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub private_options: Vec<PrivateOption>,
}

/// An option of a site's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateOption {
    /// Its number.
    pub option: u8,
    /// What it says.
    pub value: String,
}
