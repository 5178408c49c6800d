//! Reads what is described of NICs: which address that of the default network has. The rest is tapmanager's and QEMU's, which nobody tells.

use proto::tap::MacAddr;
use proto::vm::Nic;

use super::{NotDescribed, Result, holds};

/// Most NICs: as many as have a slot.
const MAX_NICS: usize = 15;

/// The address of the NIC on the pod's default network.
pub(super) fn mac(said: &[Nic]) -> Result<Option<MacAddr>> {
    holds(said.len() <= MAX_NICS, "nics", "are more than a machine has")?;
    let unbuilt: Vec<_> = (0..).zip(said).flat_map(|(nth, nic)| not_built(nth, nic)).collect();
    if !unbuilt.is_empty() {
        return Err(NotDescribed::Unbuilt(unbuilt));
    }
    let mut mac = None;
    for nic in said {
        let Some(text) = &nic.mac_address else { continue };
        let why = "is of a NIC on another network, of which the pod's annotations say it";
        holds(nic.link.is_none(), "nics.macAddress", why)?;
        holds(mac.is_none(), "nics.macAddress", "is said twice of the NIC on the default network")?;
        let address = text.replace('-', ":").parse();
        let why = "is no address that a NIC may have, as `02:00:00:00:00:01`";
        mac = Some(address.map_err(|_| NotDescribed::Wrong("nics.macAddress", why))?);
    }
    Ok(mac)
}

/// By their places: names are the object's, whatever they are.
fn not_built(nth: usize, nic: &Nic) -> impl Iterator<Item = String> + use<> {
    [
        ("bootOrder", nic.boot_order.is_some()),
        ("pciAddress", nic.pci_address.is_some()),
        ("acpiIndex", nic.acpi_index.is_some()),
        ("state", nic.state.as_ref().is_some_and(|state| state != "up")),
        ("dhcpOptions", nic.dhcp_options.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_there)| *is_there)
    .map(move |(field, _)| format!("nics[{nth}].{field}"))
}
