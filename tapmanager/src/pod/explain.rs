//! Explains a pod's networks in lines for people: what was made of them, and why. Pure; called when a pod is inspected.

mod said;

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{Nic, NicKind, PodPhase};
use serde_json::Value;

use crate::journal::{Attachment, Record};
use crate::net::path;

/// Explains what is on record of a pod.
pub(super) fn explain(record: &Record) -> Vec<String> {
    let mut lines = Vec::new();
    for attachment in &record.attachments {
        lines.push(network(attachment));
        let result = attachment.result.as_ref();
        lines.extend(result.map(|result| format!("network `{}`: {}", attachment.network.name(), said::said(result))));
    }
    for nic in record.net.iter().flat_map(|net| &net.nics) {
        lines.extend(of_nic(nic, record));
    }
    lines.extend(record.notes.iter().cloned());
    if let Some(net) = &record.net {
        let said = if record.request.dns.is_some() {
            "kubelet said it"
        } else if net.dns.servers.is_empty() {
            "neither kubelet nor a network said any"
        } else {
            "the first network that says any; kubelet said none"
        };
        lines.push(format!("resolver: {} ({said})", list(&net.dns.servers)));
    }
    lines.push(spoofing(record));
    for (name, value) in &record.request.sysctls {
        lines.push(format!("sysctl {name} = {value}: set for the namespace's stack, not for the guest's"));
    }
    if let Some(failing) = &record.failing {
        lines.push(format!("not wholly taken away after {} tries: {}", failing.tries, failing.why));
    }
    if record.phase != PodPhase::Attached {
        lines.push("no descriptor of it is handed out".to_owned());
    }
    lines
}

fn network(attachment: &Attachment) -> String {
    let Attachment { network, ifname, ask, result, begun: _ } = attachment;
    let why = if ask.network.is_some() { "asked for by name" } else { "the node's default" };
    let plugins = network.kinds().collect::<Vec<_>>().join(", ");
    let version = result.as_ref().and_then(|result| result.get("cniVersion")).and_then(Value::as_str);
    let version = version.map_or_else(|| "not added yet".to_owned(), |version| format!("CNI {version}"));
    format!("network `{}` ({why}) on `{ifname}`: plugins {plugins}; {version}", network.name())
}

fn of_nic(nic: &Nic, record: &Record) -> Vec<String> {
    let name = &nic.name;
    let how = path::of(nic.kind).explanation();
    let mut lines = vec![format!("nic `{name}` of network `{}`: mac {}, mtu {}; {how}", nic.network, nic.mac, nic.mtu)];
    match nic.kind {
        NicKind::Tap(tap) => {
            let most = record.choices.queues;
            lines.push(format!("nic `{name}`: queues {}, at most {most} by request and `max_queues`", tap.queues));
        }
        NicKind::Vfio(vfio) => lines.push(format!(
            "nic `{name}`: the virtual function `{}`; `tapmanager sriov explain {}` says more",
            vfio.device, vfio.device
        )),
    }
    for address in &nic.addresses {
        lines.push(format!("nic `{name}`: address {address}, {}", prefix(*address, record)));
    }
    for route in &nic.routes {
        let via = route.gateway.map_or_else(|| "on the link".to_owned(), |gateway| format!("via {gateway}"));
        lines.push(format!("nic `{name}`: route {} {via}", route.dst));
    }
    lines.push(format!("nic `{name}`: {}", told(nic)));
    lines
}

/// Where the prefix of an address comes from: a plugin's result may say another one than the kernel has.
fn prefix(address: IpNetwork, record: &Record) -> String {
    let mut said = record.attachments.iter().filter_map(|attachment| attachment.result.as_ref()).flat_map(|result| {
        let ips = result.get("ips").and_then(Value::as_array).into_iter().flatten();
        ips.filter_map(|ip| ip.get("address")?.as_str()?.parse::<IpNetwork>().ok())
    });
    match said.find(|said| said.ip() == address.ip()) {
        Some(said) if said == address => "as the result says".to_owned(),
        Some(said) => format!("as the kernel has it; the result says /{}", said.prefix()),
        None => "as the kernel has it; the result does not name it".to_owned(),
    }
}

fn told(nic: &Nic) -> String {
    if !path::of(nic.kind).hears_guest() {
        return "its guest cannot be sent anything, and is addressed by cloud-init".to_owned();
    }
    let v4: Vec<&IpNetwork> = nic.addresses.iter().filter(|address| address.is_ipv4()).collect();
    let v6 = nic.addresses.iter().any(IpNetwork::is_ipv6);
    if let [first, _, ..] = v4[..] {
        return format!(
            "DHCP has one IPv4 address, {first}, so its guest is told all of them by cloud-init, if it has that"
        );
    }
    match (!v4.is_empty(), v6) {
        (true, true) => "its guest is told by DHCP, router advertisements and DHCPv6".to_owned(),
        (true, false) => "its guest is told by DHCP".to_owned(),
        (false, true) => "its guest is told by router advertisements and DHCPv6".to_owned(),
        (false, false) => "it has no address, so its guest is told nothing".to_owned(),
    }
}

fn spoofing(record: &Record) -> String {
    let held = if record.choices.anti_spoof { "is" } else { "is not" };
    let who = if record.request.anti_spoof.is_some() { "its request" } else { "`anti_spoof` of the node" };
    format!("the guest {held} held to its own MAC and addresses, by {who}")
}

fn list(servers: &[IpAddr]) -> String {
    if servers.is_empty() {
        return "none".to_owned();
    }
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
