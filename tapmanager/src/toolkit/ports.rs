//! A host port of the command line: `[IP:]PORT:PORT[/PROTOCOL]`, an IPv6 address in brackets. Pure.

use std::net::IpAddr;

use common::Reason;
use proto::tap::{HostPort, PortProtocol};

const FORM: &str = "is not NODE_PORT:GUEST_PORT, such as 8080:80/tcp";

pub(super) fn parse(text: &str) -> Result<HostPort, Reason> {
    let (text, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => PortProtocol::Tcp,
        "udp" => PortProtocol::Udp,
        "sctp" => PortProtocol::Sctp,
        other => return Err(Reason::new(format!("`{other}` is not tcp, udp or sctp"))),
    };
    let (left, container_port) = text.rsplit_once(':').ok_or(Reason::new(FORM))?;
    let (host_ip, host_port) = match left.rsplit_once(':') {
        None => (None, left),
        Some((ip, port)) => (Some(address(ip)?), port),
    };
    Ok(HostPort { host_ip, host_port: port(host_port)?, container_port: port(container_port)?, protocol })
}

fn address(text: &str) -> Result<IpAddr, Reason> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = match bracketed {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => text.parse().map(IpAddr::V4),
    };
    parsed.map_err(|_| Reason::new(format!("`{text}` is not an IP address; IPv6 stands in brackets")))
}

fn port(text: &str) -> Result<u16, Reason> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| Reason::new(format!("`{text}` is not a port from 1 to 65535")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_and_the_least() {
        let port = |host_ip: Option<&str>, host_port, container_port, protocol| HostPort {
            host_ip: host_ip.map(|ip| ip.parse().expect("ip")),
            host_port,
            container_port,
            protocol,
        };
        assert_eq!(parse("8080:80"), Ok(port(None, 8080, 80, PortProtocol::Tcp)));
        assert_eq!(parse("192.0.2.1:53:5353/udp"), Ok(port(Some("192.0.2.1"), 53, 5353, PortProtocol::Udp)));
        assert_eq!(parse("[2001:db8::1]:1:65535/sctp"), Ok(port(Some("2001:db8::1"), 1, 65535, PortProtocol::Sctp)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            ("", FORM),
            ("80", FORM),
            ("0:80", "`0` is not a port from 1 to 65535"),
            ("80:", "`` is not a port from 1 to 65535"),
            ("80:65536", "`65536` is not a port from 1 to 65535"),
            ("80:80/icmp", "`icmp` is not tcp, udp or sctp"),
            ("::1:80:80", "`::1` is not an IP address; IPv6 stands in brackets"),
            ("[1.2.3.4]:80:80", "`[1.2.3.4]` is not an IP address; IPv6 stands in brackets"),
        ] {
            assert_eq!(parse(text), Err(Reason::new(error)), "{text}");
        }
    }
}
