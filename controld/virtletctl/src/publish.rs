//! Ports of the node that lead to a guest, as docker writes them.

use std::net::IpAddr;

use proto::cri::{PortMapping, Protocol};

/// A port of the node, and the guest's that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    ip: Option<IpAddr>,
    host: u16,
    guest: u16,
    protocol: Protocol,
}

/// `[IP:]PORT:PORT[/PROTOCOL]`, with an IPv6 address in brackets.
pub(super) fn parse(text: &str) -> Result<Publish, String> {
    let (ports, protocol) = match text.split_once('/') {
        None | Some((_, "tcp")) => (text.split('/').next().unwrap_or_default(), Protocol::Tcp),
        Some((ports, "udp")) => (ports, Protocol::Udp),
        Some((ports, "sctp")) => (ports, Protocol::Sctp),
        Some((_, other)) => return Err(format!("`{other}` is no protocol: tcp, udp or sctp")),
    };
    let Some((rest, guest)) = ports.rsplit_once(':') else {
        return Err(format!(
            "write PORT:PORT, first the node's: no free port of the node is looked for; `{ports}:{ports}`"
        ));
    };
    let (ip, host) = match rest.rsplit_once(':') {
        None => (None, rest),
        Some((ip, host)) => (Some(address(ip)?), host),
    };
    Ok(Publish { ip, host: port(host)?, guest: port(guest)?, protocol })
}

fn address(text: &str) -> Result<IpAddr, String> {
    let plain = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    plain.parse().map_err(|_| format!("`{text}` is no IP address of the node"))
}

fn port(text: &str) -> Result<u16, String> {
    if text.contains('-') {
        return Err(format!("`{text}` is no port: ranges are not taken, write one -p for each port"));
    }
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| format!("`{text}` is no port: 1 to 65535"))
}

impl Publish {
    /// As CRI has it.
    pub(super) fn mapping(self) -> PortMapping {
        PortMapping {
            protocol: self.protocol.into(),
            container_port: self.guest.into(),
            host_port: self.host.into(),
            host_ip: self.ip.map(|ip| ip.to_string()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_docker_reads_them() {
        let shown = |text: &str| {
            let PortMapping { protocol, container_port, host_port, host_ip } = parse(text).expect(text).mapping();
            format!("{host_ip} {host_port} {container_port} {protocol}")
        };
        for (text, wanted) in [
            ("8080:80", " 8080 80 0"),
            ("53:53/udp", " 53 53 1"),
            ("127.0.0.1:8080:80/tcp", "127.0.0.1 8080 80 0"),
            ("[::1]:8080:80", "::1 8080 80 0"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
        }
        for text in ["", "80", ":80", "80:", "0:80", "80:0", "8080:80/icmp", "host:8080:80", "65536:80", "1-3:1-3"] {
            parse(text).expect_err(text);
        }
    }
}
