//! NICs: the pod's default network, and others by Multus' annotations.

use k8s_openapi::api::core::v1::ContainerPort;
use proto::vm::Nic;
use serde_json::{Value, json};
use vmspec::annotations::{keys, macs};

use super::Draft;
use crate::Path;
use crate::names::{DEFAULT_NETWORK, NETWORKS};
use crate::types::{Interface, Multus, Network};

/// Of an address on the default network.
const MAC: &str = "the nodes' default network has to have the capability mac; nodes on which it has not refuse the pod";

pub(super) fn of(draft: &mut Draft<'_>) {
    let spec = draft.spec;
    let at_networks = draft.instance.at.field("networks");
    let at_nics = draft.device("interfaces");
    // What is wrong with it is told of the annotation.
    let wishes =
        draft.instance.metadata.annotations.get(keys::MACS).and_then(|text| macs(text).ok()).unwrap_or_default();
    let wish = |link: &str| wishes.iter().find(|(name, _)| name.as_str() == link).map(|(_, mac)| mac.to_string());
    let mut others = Vec::new();
    let mut has_default = false;
    for (nth, nic) in spec.domain.devices.interfaces.iter().enumerate() {
        let Some(network) = spec.networks.iter().find(|network| network.name == nic.name) else { continue };
        let at = at_nics.item(nth);
        let mut more = more(nic);
        match network {
            Network { multus: Some(multus), .. } if !multus.is_default => {
                let link = format!("net{}", others.len() + 1);
                others.push(selection(multus, &link, nic.mac_address.clone().or_else(|| wish(&link))));
                more.link = Some(link);
            }
            network => {
                has_default = true;
                more.mac_address.clone_from(&nic.mac_address);
                if let Some(multus) = &network.multus {
                    draft.annotate(DEFAULT_NETWORK, multus.network_name.clone(), &at_networks);
                }
            }
        }
        if more != (Nic { name: more.name.clone(), link: more.link.clone(), ..Nic::default() }) {
            if more.mac_address.is_some() {
                draft.found.warn(&at.field("macAddress"), MAC);
            }
            draft.description.nics.push(more);
        }
        ports(draft, nic);
        device(draft, nic, &at);
    }
    if !others.is_empty() {
        draft.annotate(NETWORKS, json!(others).to_string(), &at_networks);
    }
    if !has_default {
        draft.described(&at_networks);
        draft.description.devices.get_or_insert_default().pod_interface = Some(false);
    }
}

/// Names of the NICs that a guest has whose instance has this spec, in the order of nodes: that on the pod's network, then the others.
#[must_use]
pub fn nics(spec: &Value) -> Vec<String> {
    let networks = || spec["networks"].as_array().into_iter().flatten();
    let is_other = |network: &Value| network.get("multus").is_some_and(|multus| multus["default"] != true);
    let (mut default, mut others) = (None, Vec::new());
    for nic in spec["domain"]["devices"]["interfaces"].as_array().into_iter().flatten() {
        let Some(network) = networks().find(|network| network["name"] == nic["name"]) else { continue };
        let Some(name) = network["name"].as_str() else { continue };
        if is_other(network) {
            others.push(name.to_owned());
        } else {
            default = Some(name);
        }
    }
    let of_pod =
        || networks().find(|network| network.get("pod").is_some()).and_then(|network| network["name"].as_str());
    let default = default.or_else(of_pod).unwrap_or("default").to_owned();
    [vec![default], others].concat()
}

/// What of a NIC no annotation says.
fn more(nic: &Interface) -> Nic {
    Nic {
        name: nic.name.clone(),
        boot_order: nic.boot_order,
        pci_address: nic.pci_address.clone(),
        acpi_index: nic.acpi_index,
        state: nic.state.clone().filter(|state| state != "up"),
        dhcp_options: nic.dhcp_options.clone(),
        ..Nic::default()
    }
}

/// A network as Multus is asked for it.
fn selection(multus: &Multus, link: &str, mac: Option<String>) -> serde_json::Value {
    let (namespace, name) = match multus.network_name.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, multus.network_name.as_str()),
    };
    let mut selection = json!({ "name": name, "interface": link });
    if let Some(namespace) = namespace {
        selection["namespace"] = json!(namespace);
    }
    if let Some(mac) = mac {
        selection["mac"] = json!(mac.replace('-', ":").to_lowercase());
    }
    selection
}

/// For who reads the pod: a port is open whether or not it is there.
fn ports(draft: &mut Draft<'_>, nic: &Interface) {
    let ports = nic.ports.iter().map(|port| ContainerPort {
        container_port: port.port,
        name: port.name.clone(),
        protocol: port.protocol.clone(),
        ..ContainerPort::default()
    });
    draft.container.ports.get_or_insert_default().extend(ports);
    draft.container.ports.take_if(|ports| ports.is_empty());
}

/// A virtual function is given by a device plugin, of whom the pod asks for it.
fn device(draft: &mut Draft<'_>, nic: &Interface, at: &Path) {
    let resources = &draft.spec.domain.resources;
    let is_asked = |name: &String| name.contains('/') && !name.starts_with("hugepages-");
    if nic.sriov.is_some() && !resources.requests.keys().chain(resources.limits.keys()).any(is_asked) {
        let text =
            "the network's device plugin gives the VF to who asks for its resource: add that to resources.limits";
        draft.found.warn(&at.field("sriov"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nics_are_named_in_the_order_of_nodes() {
        let named = |nics: &[&str], networks: Value| {
            let nics: Vec<Value> = nics.iter().map(|name| json!({ "name": name })).collect();
            nics_of(&json!({"domain": {"devices": {"interfaces": nics}}, "networks": networks}))
        };
        fn nics_of(spec: &Value) -> String {
            nics(spec).join(" ")
        }
        let [pod, a, b] = [
            json!({"name": "pod", "pod": {}}),
            json!({"name": "a", "multus": {"networkName": "x"}}),
            json!({"name": "b", "multus": {"networkName": "y", "default": false}}),
        ];
        assert_eq!(named(&["b", "pod", "a"], json!([pod, a, b])), "pod b a");
        assert_eq!(named(&["a"], json!([pod, a])), "pod a");
        assert_eq!(
            named(&["d", "a"], json!([a, {"name": "d", "multus": {"networkName": "z", "default": true}}])),
            "d a"
        );
        for odd in [json!(null), json!({"networks": [1, {"name": 2, "pod": {}}], "domain": []}), json!([])] {
            assert_eq!(nics_of(&odd), "default");
        }
    }
}
