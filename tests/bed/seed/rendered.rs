//! What the files of cloud-init's renderers tell a guest of its NICs: five forms, and one meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use ipnetwork::IpNetwork;
use serde_json::Value;

/// What a guest is told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Rendered {
    /// By the NIC's name.
    pub(super) nics: BTreeMap<String, Nic>,
    pub(super) servers: BTreeSet<IpAddr>,
    pub(super) searches: BTreeSet<String>,
}

/// What it is told of one NIC.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nic {
    pub(super) addresses: BTreeSet<IpNetwork>,
    /// Where to, and by whom; by nobody if it is on the link.
    pub(super) routes: BTreeSet<(IpNetwork, Option<IpAddr>)>,
    /// Gateways outside of the subnets, which the guest takes for its neighbours all the same.
    pub(super) on_link: BTreeSet<IpAddr>,
    pub(super) dhcp4: bool,
    pub(super) dhcp6: bool,
    pub(super) mtu: Option<u32>,
}

/// One of cloud-init's renderers, and a distribution of which it takes the paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Renderer {
    pub(super) name: &'static str,
    pub(super) distribution: &'static str,
    read: fn(&Path, &mut Rendered) -> Result<()>,
}

pub(super) const RENDERERS: [Renderer; 5] = [
    Renderer { name: "netplan", distribution: "ubuntu", read: netplan },
    Renderer { name: "networkd", distribution: "arch", read: networkd },
    Renderer { name: "eni", distribution: "debian", read: eni },
    Renderer { name: "sysconfig", distribution: "centos", read: sysconfig },
    Renderer { name: "network-manager", distribution: "fedora", read: network_manager },
];

impl Renderer {
    /// Reads the files that this one has written below `root`.
    pub(super) fn read(&self, root: &Path) -> Result<Rendered> {
        let mut rendered = Rendered::default();
        (self.read)(root, &mut rendered)?;
        Ok(rendered)
    }
}

impl Rendered {
    fn nic(&mut self, name: &str) -> &mut Nic {
        self.nics.entry(name.to_owned()).or_default()
    }

    fn resolves(&mut self, words: &str, separators: &[char]) -> Result<()> {
        for word in words.split(separators).filter(|word| !word.is_empty()) {
            self.servers.insert(word.parse().with_context(|| words.to_owned())?);
        }
        Ok(())
    }

    fn searches(&mut self, words: &str, separators: &[char]) {
        self.searches.extend(words.split(separators).filter(|word| !word.is_empty()).map(str::to_owned));
    }
}

impl Nic {
    fn address(&mut self, text: &str) -> Result<()> {
        self.addresses.insert(text.parse().with_context(|| format!("address `{text}`"))?);
        Ok(())
    }

    /// Without `to`, or with `default`, all of the gateway's family.
    fn route(&mut self, to: Option<&str>, via: &str) -> Result<()> {
        let via: IpAddr = via.parse().with_context(|| format!("gateway `{via}`"))?;
        let all = if via.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let to = to.filter(|to| *to != "default").unwrap_or(all);
        self.routes.insert((to.parse().with_context(|| format!("route to `{to}`"))?, Some(via)));
        Ok(())
    }

    fn on_link(&mut self, to: &str) -> Result<()> {
        self.routes.insert((to.parse().with_context(|| format!("route to `{to}`"))?, None));
        Ok(())
    }
}

fn netplan(root: &Path, rendered: &mut Rendered) -> Result<()> {
    let text = fs::read_to_string(root.join("etc/netplan/50-cloud-init.yaml"))?;
    let whole: Value = serde_saphyr::from_str(&text)?;
    let nics = whole.pointer("/network/ethernets").and_then(Value::as_object).context("no NICs")?;
    for (name, says) in nics {
        let list = |of: &Value| of.as_array().cloned().unwrap_or_default();
        let text = |of: &Value| of.as_str().map(str::to_owned);
        let nic = rendered.nic(name);
        nic.dhcp4 = says["dhcp4"] == true;
        nic.dhcp6 = says["dhcp6"] == true;
        nic.mtu = says["mtu"].as_u64().map(u32::try_from).transpose()?;
        for address in list(&says["addresses"]) {
            nic.address(&text(&address).context("no address")?)?;
        }
        for key in ["gateway4", "gateway6"] {
            text(&says[key]).map(|via| nic.route(None, &via)).transpose()?;
        }
        for route in list(&says["routes"]) {
            let Some(via) = text(&route["via"]) else {
                anyhow::ensure!(route["scope"] == "link", "a route without a gateway: {route}");
                nic.on_link(route["to"].as_str().context("a route to nowhere")?)?;
                continue;
            };
            nic.route(route["to"].as_str(), &via)?;
            let via: IpAddr = via.parse()?;
            // Some versions say it of these, too, which are neighbours anyhow.
            let is_link_local = matches!(via, IpAddr::V6(router) if router.is_unicast_link_local());
            if route["on-link"] == true && !is_link_local {
                nic.on_link.insert(via);
            }
        }
        for server in list(&says["nameservers"]["addresses"]) {
            rendered.resolves(&text(&server).context("no server")?, &[])?;
        }
        let searches = list(&says["nameservers"]["search"]);
        rendered.searches.extend(searches.iter().filter_map(text));
    }
    Ok(())
}

/// The lines of a file with sections as section, key and value; a section that begins again has a number of its own.
fn sections(text: &str) -> Vec<(usize, &str, &str, &str)> {
    let (mut number, mut section, mut found) = (0, "", Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            (number, section) = (number + 1, name);
        } else if let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
            found.push((number, section, key.trim(), value.trim()));
        }
    }
    found
}

/// The files of a directory whose names begin and end like this, by what is between.
fn files(dir: &Path, begin: &str, end: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if let Some(middle) = name.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) {
            found.push((middle.to_owned(), fs::read_to_string(dir.join(&name))?));
        }
    }
    Ok(found)
}

fn networkd(root: &Path, rendered: &mut Rendered) -> Result<()> {
    for (name, text) in files(&root.join("etc/systemd/network"), "10-cloud-init-", ".network")? {
        let lines = sections(&text);
        rendered.nic(&name);
        for (number, section, key, value) in &lines {
            match (*section, *key) {
                ("Address", "Address") => rendered.nic(&name).address(value)?,
                ("Link", "MTUBytes") => rendered.nic(&name).mtu = Some(value.parse()?),
                ("Network", "DHCP") => {
                    rendered.nic(&name).dhcp4 = ["yes", "ipv4"].contains(value);
                    rendered.nic(&name).dhcp6 = ["yes", "ipv6"].contains(value);
                }
                ("Network", "DNS") => rendered.resolves(value, &[' '])?,
                ("Network", "Domains") => rendered.searches(value, &[' ']),
                ("Route", "Gateway") => {
                    let destination = lines.iter().find(|(other, _, key, _)| other == number && *key == "Destination");
                    rendered.nic(&name).route(destination.map(|(.., value)| *value), value)?;
                }
                ("Route", "Destination") => {
                    let gateway = lines.iter().any(|(other, _, key, _)| other == number && *key == "Gateway");
                    if !gateway {
                        rendered.nic(&name).on_link(value)?;
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn eni(root: &Path, rendered: &mut Rendered) -> Result<()> {
    let mut name = String::new();
    for (_, text) in files(&root.join("etc/network/interfaces.d"), "50-cloud-init", "")? {
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["iface", nic, family, method] => {
                    // A second address of a family stands at an alias.
                    name = nic.split(':').next().unwrap_or_default().to_owned();
                    if name != "lo" {
                        let asks = ["dhcp", "auto"].contains(method);
                        let nic = rendered.nic(&name);
                        nic.dhcp4 |= asks && *family == "inet";
                        nic.dhcp6 |= asks && *family == "inet6";
                    }
                }
                ["address", address] => rendered.nic(&name).address(address)?,
                ["gateway", via] => rendered.nic(&name).route(None, via)?,
                ["mtu", bytes] => rendered.nic(&name).mtu = Some(bytes.parse()?),
                ["dns-nameservers", servers @ ..] => rendered.resolves(&servers.join(" "), &[' '])?,
                ["dns-search", searches @ ..] => rendered.searches(&searches.join(" "), &[' ']),
                ["post-up", "route", "add", "-net", to, "gw", via, ..]
                | ["post-up", "route", "add", "-A", "inet6", to, "gw", via, ..]
                | ["post-up", "ip", "route", "add", to, "via", via, ..]
                | ["post-up", "ip", "-family", "inet6", "route", "add", to, "via", via, ..] => {
                    rendered.nic(&name).route(Some(to), via)?;
                }
                ["post-up", "route", "add", "default", "gw", via, ..] => {
                    rendered.nic(&name).route(None, via)?;
                }
                ["post-up", ..] => bail!("not known: {line}"),
                _ => {}
            }
        }
    }
    Ok(())
}

fn sysconfig(root: &Path, rendered: &mut Rendered) -> Result<()> {
    let dir = root.join("etc/sysconfig/network-scripts");
    let keys = |text: &str| -> BTreeMap<String, String> {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect()
    };
    let with = |address: &str, mask: &str| -> Result<String> {
        let mask = u32::from(mask.parse::<Ipv4Addr>().with_context(|| format!("mask `{mask}`"))?);
        Ok(format!("{address}/{}", mask.count_ones()))
    };
    for (name, text) in files(&dir, "ifcfg-", "")? {
        let keys = keys(&text);
        let is = |key: &str, value: &str| keys.get(key).is_some_and(|other| other == value);
        let nic = rendered.nic(&name);
        nic.dhcp4 = is("BOOTPROTO", "dhcp");
        nic.dhcp6 = is("DHCPV6C", "yes");
        for (key, value) in &keys {
            if let Some(number) = key.strip_prefix("IPADDR") {
                let mask = keys.get(&format!("NETMASK{number}")).context("an address without a mask")?;
                nic.address(&with(value, mask)?)?;
            } else if key == "IPV6ADDR" || key == "IPV6ADDR_SECONDARIES" {
                value.split_whitespace().try_for_each(|address| nic.address(address))?;
            } else if key.starts_with("GATEWAY") || key == "IPV6_DEFAULTGW" {
                nic.route(None, value)?;
            } else if key == "MTU" {
                nic.mtu = Some(value.parse()?);
            }
        }
        for (key, value) in &keys {
            if key.strip_prefix("DNS").is_some_and(|rest| rest.parse::<u8>().is_ok()) {
                rendered.resolves(value, &[' '])?;
            } else if key == "DOMAIN" {
                rendered.searches(value, &[' ']);
            }
        }
    }
    // What stands at no NIC.
    for (_, text) in files(&root.join("etc"), "resolv.conf", "")? {
        for line in text.lines() {
            if let Some(server) = line.strip_prefix("nameserver ") {
                rendered.resolves(server, &[' '])?;
            } else if let Some(searches) = line.strip_prefix("search ") {
                rendered.searches(searches, &[' ']);
            }
        }
    }
    for (name, text) in files(&dir, "route-", "")? {
        let keys = keys(&text);
        for (key, address) in &keys {
            let Some(number) = key.strip_prefix("ADDRESS") else { continue };
            let of = |key: &str| keys.get(&format!("{key}{number}")).with_context(|| format!("no {key}{number}"));
            rendered.nic(&name).route(Some(&with(address, of("NETMASK")?)?), of("GATEWAY")?)?;
        }
    }
    for (name, text) in files(&dir, "route6-", "")? {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [to, "via", via, ..] = words.as_slice() else { bail!("not known: {line}") };
            rendered.nic(&name).route(Some(to), via)?;
        }
    }
    Ok(())
}

fn network_manager(root: &Path, rendered: &mut Rendered) -> Result<()> {
    let dir = root.join("etc/NetworkManager/system-connections");
    for (name, text) in files(&dir, "cloud-init-", ".nmconnection")? {
        let nic = rendered.nic(&name);
        let lines = sections(&text);
        let addresses =
            |section: &str| lines.iter().any(|(_, other, key, _)| *other == section && key.starts_with("address"));
        let (some4, some6) = (addresses("ipv4"), addresses("ipv6"));
        for (_, section, key, value) in &lines {
            let numbered = |prefix: &str| key.strip_prefix(prefix).is_some_and(|rest| rest.parse::<u8>().is_ok());
            match (*section, *key) {
                ("ethernet", "mtu") => nic.mtu = Some(value.parse()?),
                // With addresses beside it, it is how version 22 says that router advertisements count.
                ("ipv4", "method") => nic.dhcp4 = *value == "auto" && !some4,
                ("ipv6", "method") => nic.dhcp6 = ["auto", "dhcp"].contains(value) && !some6,
                (_, "gateway") => nic.route(None, value)?,
                (_, "dns") => {}
                _ if numbered("address") => nic.address(value)?,
                _ if numbered("route") => match value.split_once(',') {
                    Some((to, via)) => nic.route(Some(to), via)?,
                    None => nic.on_link(value)?,
                },
                _ => {}
            }
        }
        for (_, _, key, value) in &lines {
            match *key {
                "dns" => rendered.resolves(value, &[';'])?,
                "dns-search" => rendered.searches(value, &[';']),
                _ => {}
            }
        }
    }
    Ok(())
}
