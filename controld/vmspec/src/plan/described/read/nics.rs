//! Reads what is described of NICs. One that is `absent` would have to be plugged in later, which nobody does.

use std::collections::{BTreeMap, BTreeSet};

use proto::tap::{self, IfName, MacAddr};
use proto::vm::{DhcpOptions, Nic};

use super::super::nic::{DescribedNic, SLOTS};
use super::{MAX_ORDER, NotDescribed, Result, holds};

/// Most NICs: as many as have a slot.
const MAX_NICS: usize = 15;
/// Highest number that QEMU gives a device in ACPI.
const MAX_INDEX: u32 = 16383;
/// The link of the default network.
const DEFAULT_LINK: &str = "eth0";

/// The NICs.
#[derive(Default)]
pub(super) struct Nics {
    /// Address of that on the pod's default network.
    pub(super) mac: Option<MacAddr>,
    /// What there is to be said of each, by its link in the pod.
    pub(super) by_link: BTreeMap<IfName, DescribedNic>,
    /// What DHCP tells on each, beside what its network has.
    pub(super) dhcp: BTreeMap<IfName, tap::DhcpOptions>,
}

/// All of them, each once.
pub(super) fn nics(said: &[Nic]) -> Result<Nics> {
    holds(said.len() <= MAX_NICS, "nics", "are more than a machine has")?;
    let unbuilt: Vec<_> = (0..).zip(said).flat_map(|(nth, nic)| not_built(nth, nic)).collect();
    if !unbuilt.is_empty() {
        return Err(NotDescribed::Unbuilt(unbuilt));
    }
    let mut nics = Nics::default();
    let (mut links, mut indices) = (BTreeSet::new(), BTreeSet::new());
    for nic in said {
        let link = nic.link.as_deref().unwrap_or(DEFAULT_LINK);
        let link: IfName = link.parse().map_err(|_| NotDescribed::Wrong("nics.link", "is no name of a link"))?;
        if let Some(text) = &nic.mac_address {
            let why = "is of a NIC on another network, of which the pod's annotations say it";
            holds(nic.link.is_none(), "nics.macAddress", why)?;
            holds(nics.mac.is_none(), "nics.macAddress", "is said twice of the NIC on the default network")?;
            let address = text.replace('-', ":").parse();
            let why = "is no address that a NIC may have, as `02:00:00:00:00:01`";
            nics.mac = Some(address.map_err(|_| NotDescribed::Wrong("nics.macAddress", why))?);
        }
        let read = read(nic)?;
        holds(links.insert(link.clone()), "nics.link", "is that of two NICs, or two are on the default network")?;
        let is_new = read.acpi_index.is_none_or(|index| indices.insert(index));
        holds(is_new, "nics.acpiIndex", "is that of another NIC")?;
        let dhcp = nic.dhcp_options.as_ref().map(dhcp).transpose()?.unwrap_or_default();
        if dhcp != tap::DhcpOptions::default() {
            nics.dhcp.insert(link.clone(), dhcp);
        }
        if read != DescribedNic::default() {
            nics.by_link.insert(link, read);
        }
    }
    Ok(nics)
}

fn read(nic: &Nic) -> Result<DescribedNic> {
    let order = nic.boot_order.is_none_or(|order| (1..=MAX_ORDER).contains(&order));
    holds(order, "nics.bootOrder", "is not from 1 to 1000")?;
    let index = nic.acpi_index.map(|index| {
        let index = u16::try_from(index).ok().filter(|index| (1..=MAX_INDEX).contains(&u32::from(*index)));
        index.ok_or(NotDescribed::Wrong("nics.acpiIndex", "is not from 1 to 16383"))
    });
    let slot = nic.pci_address.as_deref().map(|text| slot(text).ok_or(NotDescribed::Wrong("nics.pciAddress", NO_SLOT)));
    let is_down = nic.state.as_deref() == Some("down");
    Ok(DescribedNic { boot_order: nic.boot_order, slot: slot.transpose()?, acpi_index: index.transpose()?, is_down })
}

fn dhcp(said: &DhcpOptions) -> Result<tap::DhcpOptions> {
    let text = |text: Option<&String>, field| {
        let text = text.cloned().unwrap_or_default();
        holds(tap::DhcpOptions::is_text(&text), field, "is longer than 255 bytes, or has a control character")?;
        Ok(text)
    };
    let boot_file = text(said.boot_file_name.as_ref(), "nics.dhcpOptions.bootFileName")?;
    let tftp_server = text(said.tftp_server_name.as_ref(), "nics.dhcpOptions.tftpServerName")?;
    let is_few = said.ntp_servers.len() <= tap::DhcpOptions::MAX_SERVERS;
    holds(is_few, "nics.dhcpOptions.ntpServers", "are more than 16")?;
    let servers = said.ntp_servers.iter().map(|server| server.parse());
    let why = NotDescribed::Wrong("nics.dhcpOptions.ntpServers", "have one that is no IPv4 address");
    let ntp_servers = servers.collect::<std::result::Result<_, _>>().map_err(|_| why)?;
    let mut private = BTreeMap::new();
    for option in &said.private_options {
        let field = "nics.dhcpOptions.privateOptions";
        holds(tap::DhcpOptions::PRIVATE.contains(&option.option), field, "have one that is not from 224 to 254")?;
        let value = text(Some(&option.value), field)?;
        holds(private.insert(option.option, value).is_none(), field, "have one twice")?;
    }
    Ok(tap::DhcpOptions { boot_file, tftp_server, ntp_servers, private })
}

/// What is wrong with another address.
pub(super) const NO_SLOT: &str =
    "is not one of `0000:00:10.0` to `0000:00:1e.0`, which are the slots that a machine has for this";

/// The slot of the root bus at an address, if it may have a device that is described.
pub(super) fn slot(address: &str) -> Option<u8> {
    let digits = address.strip_prefix("0000:00:")?.strip_suffix(".0").filter(|digits| digits.len() == 2)?;
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|slot| is_hex && SLOTS.contains(slot))
}

/// By their places: names are the object's, whatever they are.
fn not_built(nth: usize, nic: &Nic) -> impl Iterator<Item = String> + use<> {
    let is_there = nic.state.as_ref().is_some_and(|state| !["up", "down"].contains(&state.as_str()));
    is_there.then(|| format!("nics[{nth}].state")).into_iter()
}
