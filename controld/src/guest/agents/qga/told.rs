//! What QEMU's agent tells of its guest: operating system, and NICs with their addresses.

use std::net::IpAddr;

use proto::vm::guest::Os;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::super::output::Room;
use super::super::told::{Told, ToldNic};
use super::{GREETING, PATIENCE, Qga, QgaError};

/// NICs that are looked at: a guest may have many of its own.
const MAX_NICS: usize = 256;

/// Of `guest-get-osinfo`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
struct Info {
    id: String,
    name: String,
    pretty_name: String,
    version: String,
    version_id: String,
    kernel_release: String,
    kernel_version: String,
    machine: String,
}

/// Of `guest-network-get-interfaces`.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Nic {
    name: String,
    #[serde(default)]
    hardware_address: String,
    #[serde(default)]
    ip_addresses: Vec<Address>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Address {
    ip_address: String,
}

impl Qga {
    /// What it tells. One that answers and does not tell something, as an old one, or that of a frozen guest, has just not said that.
    pub(in super::super) async fn tell(&self) -> Result<Told, QgaError> {
        let os = self.told::<Info>("guest-get-osinfo").await?;
        let nics = self.told::<Vec<Nic>>("guest-network-get-interfaces").await?;
        Ok(Told { os: os.map(Os::from), nics: nics.map(|nics| nics.into_iter().take(MAX_NICS).map(told).collect()) })
    }

    async fn told<T: DeserializeOwned>(&self, command: &'static str) -> Result<Option<T>, QgaError> {
        let talk = self.talk(command, GREETING).await?;
        match talk.ask_within(PATIENCE, Room::none(), command, json!({})).await {
            Ok((told, _)) => Ok(Some(told)),
            Err(QgaError::Refused { .. } | QgaError::Answer(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl From<Info> for Os {
    fn from(info: Info) -> Self {
        let Info { id, name, pretty_name, version, version_id, kernel_release, kernel_version, machine } = info;
        Self { id, name, pretty_name, version, version_id, kernel_release, kernel_version, machine }
    }
}

fn told(nic: Nic) -> ToldNic {
    let is_of_use = |address: &IpAddr| match address {
        IpAddr::V4(address) => !(address.is_loopback() || address.is_link_local()),
        IpAddr::V6(address) => !(address.is_loopback() || address.is_unicast_link_local()),
    };
    let addresses = nic.ip_addresses.iter().filter_map(|address| address.ip_address.parse().ok());
    ToldNic {
        name: nic.name,
        mac: nic.hardware_address.to_lowercase(),
        addresses: addresses.filter(is_of_use).collect(),
    }
}
