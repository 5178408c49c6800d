//! `virtlet.cloud/networks`: the networks of a pod beside the node's default one. And `virtlet.k8s/macs`: MAC addresses that links are to have
//! where their networks take one. Pure.
//!
//! Two notations, which are those that Multus' users know: a list of names, each with an optional link name
//! (`storage,backup@net7`), or a JSON list of objects for whoever wants to say more. The guest's NICs come in the order
//! of the list, behind the default network's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::{IfName, MacAddr, NetworkAsk};
use serde::Deserialize;

use super::Problem;

/// As many NICs as a machine takes, less the default network's.
const MAX_NETWORKS: usize = 14;
/// Longest name of a network or alias.
const MAX_NAME: usize = 128;

/// A text that says no MAC addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(r#"is no map of at most 15 links to MAC addresses, as {{"eth0": "02:00:00:00:00:01"}}"#)]
pub struct NotMacs;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    interface: Option<IfName>,
    #[serde(default)]
    mac: Option<MacAddr>,
    #[serde(default)]
    ips: Vec<String>,
    #[serde(default, rename = "deviceID")]
    device_id: Option<String>,
    #[serde(default)]
    aliases: Vec<String>,
}

/// MAC addresses by links, in JSON. Of networks that take none each link has another one.
///
/// # Errors
/// When it is no such map, or has more links than a machine has.
pub fn macs(text: &str) -> Result<BTreeMap<IfName, MacAddr>, NotMacs> {
    let macs: BTreeMap<IfName, MacAddr> = serde_json::from_str(text).map_err(|_malformed| NotMacs)?;
    if macs.len() > MAX_NETWORKS + 1 { Err(NotMacs) } else { Ok(macs) }
}

/// The networks, in order.
pub(super) fn parse(text: &str) -> Result<Vec<NetworkAsk>, Problem> {
    let entries = if text.trim_start().starts_with('[') { of_json(text)? } else { of_names(text)? };
    if entries.len() > MAX_NETWORKS {
        return Err(bad(format!("has {} networks, the limit is {MAX_NETWORKS}", entries.len())));
    }
    let asks: Vec<NetworkAsk> = entries.into_iter().map(ask).collect::<Result<_, _>>()?;
    for (at, ask) in asks.iter().enumerate() {
        let Some(interface) = &ask.interface else { continue };
        let is_taken = |other: &NetworkAsk| other.interface.as_ref() == Some(interface);
        if interface.as_str() == "eth0" || asks.iter().skip(at + 1).any(is_taken) {
            return Err(bad(format!("names the link `{interface}` twice; `eth0` is the default network's")));
        }
    }
    Ok(asks)
}

fn of_json(text: &str) -> Result<Vec<Entry>, Problem> {
    serde_json::from_str(text).map_err(|error| bad(format!("is not a list of networks: {error}")))
}

fn of_names(text: &str) -> Result<Vec<Entry>, Problem> {
    let entry = |part: &str| {
        let (name, interface) = match part.split_once('@') {
            Some((name, link)) => (name, Some(link)),
            None => (part, None),
        };
        let interface = interface.map(|link| {
            link.parse::<IfName>()
                .map_err(|_bad| bad(format!("has {:?}, which is no name of a link", super::cut(link))))
        });
        Ok(Entry {
            name: name.to_owned(),
            interface: interface.transpose()?,
            mac: None,
            ips: Vec::new(),
            device_id: None,
            aliases: Vec::new(),
        })
    };
    text.split(',').map(str::trim).map(entry).collect()
}

fn ask(entry: Entry) -> Result<NetworkAsk, Problem> {
    check_name(&entry.name)?;
    entry.aliases.iter().try_for_each(|alias| check_name(alias))?;
    if let Some(device) = &entry.device_id {
        check_name(device)?;
    }
    let ips = entry.ips.iter().map(|text| ip(text)).collect::<Result<_, _>>()?;
    Ok(NetworkAsk {
        network: Some(entry.name),
        interface: entry.interface,
        mac: entry.mac,
        mac_is_wish: false,
        ips,
        device_id: entry.device_id,
        aliases: entry.aliases,
    })
}

/// An address without a prefix length leaves that to the plugin: it is sent as a host's.
fn ip(text: &str) -> Result<IpNetwork, Problem> {
    let refuse = || bad(format!("has {:?}, which is no IP address", super::cut(text)));
    match text.parse::<IpAddr>() {
        Ok(ip) => Ok(ip.into()),
        Err(_) if text.contains('/') => text.parse().map_err(|_bad| refuse()),
        Err(_) => Err(refuse()),
    }
}

/// Names end up in file names and in arguments of plugins.
fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':');
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(plain) || name.starts_with('.') {
        return Err(bad(format!("has {:?}, which is no name of a network, device or alias", super::cut(name))));
    }
    Ok(())
}

fn bad(what: String) -> Problem {
    Problem::NotNetworks(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_notations_are_read() {
        let short = parse("storage, backup@net7").expect("parses");
        let names: Vec<_> = short.iter().map(|ask| (ask.network.as_deref(), ask.interface.as_ref())).collect();
        let net7: IfName = "net7".parse().expect("name");
        assert_eq!(names, [(Some("storage"), None), (Some("backup"), Some(&net7))]);
        let long = r#"[{"name":"storage","interface":"net7","mac":"02:00:00:00:00:07","ips":["10.9.0.7/24","fd00::7"],
            "deviceID":"0000:01:10.0","aliases":["db"]}]"#;
        assert_eq!(
            parse(long).expect("parses"),
            [NetworkAsk {
                network: Some("storage".into()),
                interface: Some(net7),
                mac: Some("02:00:00:00:00:07".parse().expect("mac")),
                mac_is_wish: false,
                ips: vec!["10.9.0.7/24".parse().expect("net"), "fd00::7/128".parse().expect("net")],
                device_id: Some("0000:01:10.0".into()),
                aliases: vec!["db".into()],
            }]
        );
    }

    #[test]
    fn macs_are_of_links() {
        let all = macs(r#"{"eth0":"02:00:00:00:00:01","net1":"02:00:00:00:00:02"}"#).expect("a map");
        let first = all.iter().next().map(|(link, mac)| format!("{link} {mac}"));
        assert_eq!((all.len(), first.as_deref()), (2, Some("eth0 02:00:00:00:00:01")));
        let many: Vec<String> = (0..16).map(|n| format!(r#""net{n}":"02:00:00:00:00:{n:02x}""#)).collect();
        let many = format!("{{{}}}", many.join(","));
        for wrong in
            ["", "[]", r#"{"eth0":1}"#, r#"{"a/b":"02:00:00:00:00:01"}"#, r#"{"eth0":"ff:ff:ff:ff:ff:ff"}"#, &many]
        {
            assert_eq!(macs(wrong), Err(NotMacs), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let many = vec!["n"; 15].join(",");
        let refused = [
            "a,,b",
            "a@b@c/d",
            "a@eth0",
            "a@net1,b@net1",
            "../etc",
            "[{}]",
            r#"[{"name":"a","vlan":3}]"#,
            r#"[{"name":"a","mac":"ff:ff:ff:ff:ff:ff"}]"#,
            r#"[{"name":"a","ips":["10.0.0.0/33"]}]"#,
            &many,
        ];
        let said: Vec<String> =
            refused.iter().map(|text| format!("{text}: {}", parse(text).expect_err("refused"))).collect();
        insta::assert_snapshot!(said.join("\n"));
    }
}
