//! What an Attach may say. Called once at the edge; behind it the texts are known to be harmless.
//!
//! The pod's names become `CNI_ARGS` (`key=value;key=value`, so `;` and `=` must not be in them) and lines of a list
//! that has to fit into a packet; host name and search domains become DHCP options; sysctls become paths; the rest
//! becomes JSON that plugins read.

use std::collections::BTreeSet;

use proto::tap::{Attach, Bandwidth, DataPath, DhcpOptions, Dns, HostPort, IfName, NetworkAsk, unfit_for_pod};

use super::sysctl;

/// RFC 1035 section 2.3.4, and the longest name that Kubernetes gives an object.
pub(super) const MAX_NAME: usize = 253;
/// Kubernetes keeps searches to 32, servers to 3 and options to a few; the rest is room.
const MAX_ENTRIES: usize = 32;
/// A machine has few slots for NICs; a meta plugin may add more.
pub(super) const MAX_NETWORKS: usize = 16;
/// Long names, many of which would fill a packet.
const MAX_ALIASES: usize = 8;
const MAX_HOST_PORTS: usize = 256;
const MAX_SYSCTLS: usize = 64;
/// What the kernel takes at most in one write is a page.
const MAX_VALUE: usize = 256;
/// `MAX_TAP_QUEUES` of the kernel's drivers/net/tun.c.
const MAX_QUEUES: u16 = 256;
/// The bandwidth plugin refuses more.
const MAX_BURST: u64 = u32::MAX as u64;
/// `PATH_MAX`.
const MAX_PATH: usize = 4096;

/// A text of an Attach cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` of the request {problem}")]
pub(crate) struct BadAttach {
    field: &'static str,
    problem: &'static str,
}

/// Checks what an Attach says.
pub(super) fn check(attach: &Attach) -> Result<(), BadAttach> {
    // Taken apart, so that a new field cannot be forgotten here.
    let Attach {
        pod: _,
        owner: _,
        namespace,
        name,
        uid,
        hostname,
        dns,
        networks,
        data_path,
        queues,
        anti_spoof: _,
        host_ports,
        bandwidth,
        sysctls,
        cgroup,
        dhcp,
    } = attach;
    check_name("namespace", namespace)?;
    check_name("name", name)?;
    if !uid.is_empty() {
        check_name("uid", uid)?;
    }
    if !hostname.is_empty() {
        check_name("hostname", hostname)?;
    }
    dns.as_ref().map_or(Ok(()), check_dns)?;
    networks.iter().try_for_each(check_network)?;
    interfaces(networks)?;
    let offered = data_path.is_none_or(|path| DataPath::ALL.contains(&path));
    require(offered, "data_path", "is `ebpf`, which is no longer supported; use `tc`")?;
    let enough = queues.is_none_or(|queues| (1..=MAX_QUEUES).contains(&queues));
    require(enough, "queues", "is not between 1 and 256")?;
    check_host_ports(host_ports)?;
    bandwidth.as_ref().map_or(Ok(()), check_bandwidth)?;
    require(sysctls.len() <= MAX_SYSCTLS, "sysctls", "has more than 64 entries")?;
    for (name, value) in sysctls {
        require(sysctl::path(name).is_some(), "sysctls", "names a setting that is none of the network (`net.`)")?;
        let plain = !value.is_empty() && value.len() <= MAX_VALUE;
        let plain = plain && value.chars().all(|c| c.is_ascii_graphic() || matches!(c, ' ' | '\t'));
        require(plain, "sysctls", "has a value that is empty, longer than 256 bytes, or not plain ASCII")?;
    }
    require(dhcp.len() <= MAX_NETWORKS, "dhcp", "has more than 16 entries")?;
    dhcp.values().try_for_each(check_dhcp)?;
    let plain = cgroup.is_empty()
        || (cgroup.starts_with('/')
            && cgroup.len() <= MAX_PATH
            && cgroup.split('/').all(|part| part != "..")
            && !cgroup.contains(char::is_control));
    require(plain, "cgroup", "is not an absolute path without `..`")
}

fn check_dhcp(options: &DhcpOptions) -> Result<(), BadAttach> {
    let DhcpOptions { boot_file, tftp_server, ntp_servers, private } = options;
    let plain = [boot_file, tftp_server].into_iter().chain(private.values()).all(|text| DhcpOptions::is_text(text));
    require(plain, "dhcp", "has a text that is longer than 255 bytes, or a control character")?;
    require(ntp_servers.len() <= DhcpOptions::MAX_SERVERS, "dhcp.ntp_servers", "has more than 16 entries")?;
    let are_private = private.keys().all(|number| DhcpOptions::PRIVATE.contains(number));
    require(are_private, "dhcp.private", "has an option that is not from 224 to 254")
}

/// What `attach` asks of each of its networks, in order; of the node's default network alone if it names none.
pub(super) fn asks(attach: &Attach) -> Vec<NetworkAsk> {
    if attach.networks.is_empty() { vec![NetworkAsk::default()] } else { attach.networks.clone() }
}

/// Whether `ifname` is the link of the first network of `attach`.
pub(super) fn is_first(attach: &Attach, ifname: &IfName) -> bool {
    interfaces(&attach.networks).is_ok_and(|names| names.first() == Some(ifname))
}

/// The names of the links of `networks`, in order: `eth0`, `net1`, `net2` and so on where the request says none.
pub(super) fn interfaces(networks: &[NetworkAsk]) -> Result<Vec<IfName>, BadAttach> {
    require(networks.len() <= MAX_NETWORKS, "networks", "has more than 16 entries")?;
    let mut taken = BTreeSet::new();
    let mut names = Vec::new();
    for place in 0..networks.len().max(1) {
        let asked = networks.get(place).and_then(|ask| ask.interface.clone());
        let name = asked.unwrap_or_else(|| default_name(place));
        require(taken.insert(name.clone()), "networks.interface", "names two links alike")?;
        names.push(name);
    }
    Ok(names)
}

fn default_name(place: usize) -> IfName {
    let name = if place == 0 { "eth0".to_owned() } else { format!("net{}", place.min(MAX_NETWORKS)) };
    name.parse().expect("letters and at most two digits are a name")
}

fn check_network(ask: &NetworkAsk) -> Result<(), BadAttach> {
    let NetworkAsk { network, interface, mac: _, mac_is_wish: _, ips, device_id, aliases } = ask;
    if let Some(network) = network {
        check_name("networks.network", network)?;
    }
    if let Some(name) = interface.as_ref().map(IfName::as_str) {
        // The names that the namespace has without us, or that our taps have.
        let ours = name.strip_prefix("tap").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
        let kernels = matches!(name, "lo" | "all" | "default");
        require(!ours && !kernels, "networks.interface", "is `lo`, `all`, `default` or one of `tap0`, `tap1`...")?;
        // As a part of a sysctl's name, and of CNI_ARGS.
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
        require(plain, "networks.interface", "has characters other than letters, digits, `-`, `.` and `_`")?;
    }
    require(ips.len() <= MAX_ENTRIES, "networks.ips", "has more than 32 entries")?;
    let fit = ips.iter().all(|ip| unfit_for_pod(ip.ip()).is_none());
    require(
        fit,
        "networks.ips",
        "has a loopback, link-local, multicast or unspecified address, which can be no pod's",
    )?;
    if let Some(device_id) = device_id {
        let plain = device_id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'));
        let plain = plain && (1..=64).contains(&device_id.len());
        require(plain, "networks.device_id", "is not 1 to 64 letters, digits, `-`, `.`, `_` and `:`")?;
    }
    require(aliases.len() <= MAX_ALIASES, "networks.aliases", "has more than 8 entries")?;
    aliases.iter().try_for_each(|alias| check_name("networks.aliases", alias))
}

fn check_host_ports(ports: &[HostPort]) -> Result<(), BadAttach> {
    require(ports.len() <= MAX_HOST_PORTS, "host_ports", "has more than 256 entries")?;
    let given = ports.iter().all(|port| port.host_port != 0 && port.container_port != 0);
    require(given, "host_ports", "has a port 0")?;
    for (at, port) in ports.iter().enumerate() {
        let clash = |other: &HostPort| {
            let one_address = match (port.host_ip, other.host_ip) {
                (Some(one), Some(other)) => {
                    one == other
                        || (one.is_ipv4() == other.is_ipv4() && (one.is_unspecified() || other.is_unspecified()))
                }
                (None, _) | (_, None) => true,
            };
            other.protocol == port.protocol && other.host_port == port.host_port && one_address
        };
        require(!ports.iter().skip(at + 1).any(clash), "host_ports", "has one port of the node twice")?;
    }
    Ok(())
}

fn check_bandwidth(bandwidth: &Bandwidth) -> Result<(), BadAttach> {
    let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst } = bandwidth;
    for (rate, burst) in [(ingress_rate, ingress_burst), (egress_rate, egress_burst)] {
        require(*rate != Some(0) && *burst != Some(0), "bandwidth", "has a rate or a burst of 0")?;
        require(rate.is_some() || burst.is_none(), "bandwidth", "has a burst without a rate")?;
        require(burst.is_none_or(|burst| burst <= MAX_BURST), "bandwidth", "has a burst of more than 4294967295 bits")?;
    }
    Ok(())
}

fn require(holds: bool, field: &'static str, problem: &'static str) -> Result<(), BadAttach> {
    if holds { Ok(()) } else { Err(BadAttach { field, problem }) }
}

fn check_dns(dns: &Dns) -> Result<(), BadAttach> {
    let Dns { servers, searches, options } = dns;
    let lengths = [("dns.servers", servers.len()), ("dns.searches", searches.len()), ("dns.options", options.len())];
    if let Some((field, _)) = lengths.into_iter().find(|(_, len)| *len > MAX_ENTRIES) {
        return Err(BadAttach { field, problem: "has more than 32 entries" });
    }
    searches.iter().try_for_each(|search| check_name("dns.searches", search))?;
    let plain = |option: &String| {
        !option.is_empty() && option.len() <= MAX_NAME && option.chars().all(|c| c.is_ascii_graphic())
    };
    if options.iter().all(plain) {
        return Ok(());
    }
    Err(BadAttach { field: "dns.options", problem: "has an entry that is empty, too long, or not plain ASCII" })
}

fn check_name(field: &'static str, text: &str) -> Result<(), BadAttach> {
    if text.is_empty() || text.len() > MAX_NAME {
        return Err(BadAttach { field, problem: "is not 1 to 253 characters long" });
    }
    if text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')) {
        return Ok(());
    }
    Err(BadAttach { field, problem: "has characters other than letters, digits, `-`, `.` and `_`" })
}

#[cfg(test)]
mod tests;
