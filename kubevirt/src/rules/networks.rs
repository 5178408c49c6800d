//! NICs and their networks.

use std::collections::BTreeSet;

use crate::Path;
use crate::finding::Findings;
use crate::types::{Interface, Network, Spec};

pub(super) fn check(spec: &Spec, at: &Path, devices: &Path, found: &mut Findings) {
    let (at_networks, at_nics) = (at.field("networks"), devices.field("interfaces"));
    let nics = &spec.domain.devices.interfaces;
    networks(&spec.networks, &at_networks, found);
    for (nth, network) in spec.networks.iter().enumerate() {
        let has_nic = nics.iter().any(|nic| nic.name == network.name);
        let at = at_networks.item(nth).field("name");
        found.unless(has_nic, &at, format!("\"{}\" not found in {at_nics}", network.name));
    }
    let (mut names, mut macs, mut ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (nth, nic) in nics.iter().enumerate() {
        let at = at_nics.item(nth);
        let is_new = names.insert(&nic.name);
        found.unless(is_new, &at.field("name"), format!("\"{}\" is the name of another NIC", nic.name));
        let network = spec.networks.iter().find(|network| network.name == nic.name);
        let text = format!("\"{}\" not found in {at_networks}", nic.name);
        found.unless(network.is_some(), &at.field("name"), text);
        if let Some(mac) = &nic.mac_address {
            let is_new = macs.insert(mac.to_lowercase().replace('-', ":"));
            found.unless(is_new, &at.field("macAddress"), format!("{mac} is that of another NIC"));
        }
        for (nth, port) in nic.ports.iter().enumerate() {
            let at = at.field("ports").item(nth);
            if let Some(name) = &port.name {
                found.unless(ports.insert(name), &at.field("name"), format!("\"{name}\" is the name of another port"));
            }
        }
        for (nth, range) in nic.port_ranges.iter().enumerate() {
            found.unless(range.start <= range.end, &at.field("portRanges").item(nth), "ends before it starts");
        }
        interface(nic, network, &at, found);
    }
}

fn networks(networks: &[Network], at: &Path, found: &mut Findings) {
    let mut names = BTreeSet::new();
    let mut defaults = 0;
    for (nth, network) in networks.iter().enumerate() {
        let at = at.item(nth);
        let is_new = names.insert(&network.name);
        found.unless(is_new, &at.field("name"), format!("\"{}\" is the name of another network", network.name));
        match (&network.pod, &network.multus) {
            (Some(_), None) => defaults += 1,
            (None, Some(multus)) => defaults += usize::from(multus.is_default),
            (None, None) if found.has_error_at(&at) => {}
            _ => found.error(&at, "needs one of pod and multus"),
        }
    }
    found.unless(defaults <= 1, at, "have several default networks: one is `pod`, or `multus` with `default`");
}

fn interface(nic: &Interface, network: Option<&Network>, at: &Path, found: &mut Findings) {
    let bindings =
        [("bridge", nic.bridge.is_some()), ("sriov", nic.sriov.is_some()), ("masquerade", nic.masquerade.is_some())];
    let bindings: Vec<&str> = bindings.into_iter().filter_map(|(name, is_there)| is_there.then_some(name)).collect();
    match bindings[..] {
        [_] => {}
        [] if found.has_error_at(at) => {}
        [] => found.error(at, "needs a binding: bridge, sriov or masquerade"),
        _ => found.error(at, format!("has several bindings: {}", bindings.join(", "))),
    }
    if let Some(model) = nic.model.as_deref().filter(|model| *model != "virtio") {
        found.error(&at.field("model"), format!("not supported yet: \"{model}\"; NICs are virtio"));
    }
    if nic.masquerade.is_some() {
        let is_pods = network.is_none_or(|network| network.pod.is_some());
        found.unless(is_pods, &at.field("masquerade"), "is for the pod's network; use bridge");
        let names = [("ports", nic.ports.is_empty()), ("portRanges", nic.port_ranges.is_empty())];
        for (name, _) in names.into_iter().filter(|(_, is_empty)| !is_empty) {
            let text = "not supported with masquerade: ports would not be enforced; use a NetworkPolicy";
            found.error(&at.field(name), text);
        }
    }
    if nic.sriov.is_some() {
        let is_multus = network.is_none_or(|network| network.multus.is_some());
        found.unless(is_multus, &at.field("sriov"), "is for a network of multus");
        found.unless(nic.state.is_none(), &at.field("state"), "cannot be set with sriov");
    }
    found.unless(
        nic.state.as_deref() != Some("absent"),
        &at.field("state"),
        "not supported: NICs stay; leave the NIC out",
    );
    if let Some(options) = &nic.dhcp_options {
        let mut seen = BTreeSet::new();
        for (nth, option) in options.private_options.iter().enumerate() {
            let at = at.field("dhcpOptions").field("privateOptions").item(nth).field("option");
            found.unless(seen.insert(option.option), &at, format!("{} is there twice", option.option));
        }
    }
}
