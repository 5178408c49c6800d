//! A host port of the command line: `[IP:]PORT:PORT[/PROTOCOL]`, an IPv6 address in brackets. Pure.

use std::net::IpAddr;

use proto::tap::{HostPort, PortProtocol};

/// Why a host port was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PortError {
    #[error("is not NODE_PORT:GUEST_PORT, such as 8080:80/tcp")]
    Form,
    #[error("`{0}` is not a port from 1 to 65535")]
    Port(String),
    #[error("`{0}` is not tcp, udp or sctp")]
    Protocol(String),
    #[error("`{0}` is not an IP address; IPv6 stands in brackets")]
    Address(String),
}

pub(super) fn parse(text: &str) -> Result<HostPort, PortError> {
    let (text, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let protocol = match protocol {
        "tcp" => PortProtocol::Tcp,
        "udp" => PortProtocol::Udp,
        "sctp" => PortProtocol::Sctp,
        other => return Err(PortError::Protocol(other.to_owned())),
    };
    let (left, container_port) = text.rsplit_once(':').ok_or(PortError::Form)?;
    let (host_ip, host_port) = match left.rsplit_once(':') {
        None => (None, left),
        Some((ip, port)) => (Some(address(ip)?), port),
    };
    Ok(HostPort { host_ip, host_port: port(host_port)?, container_port: port(container_port)?, protocol })
}

fn address(text: &str) -> Result<IpAddr, PortError> {
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let parsed = match bracketed {
        Some(inner) => inner.parse().map(IpAddr::V6),
        None => text.parse().map(IpAddr::V4),
    };
    parsed.map_err(|_| PortError::Address(text.to_owned()))
}

fn port(text: &str) -> Result<u16, PortError> {
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| PortError::Port(text.to_owned()))
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
            ("", PortError::Form),
            ("80", PortError::Form),
            ("0:80", PortError::Port("0".into())),
            ("80:", PortError::Port(String::new())),
            ("80:65536", PortError::Port("65536".into())),
            ("80:80/icmp", PortError::Protocol("icmp".into())),
            ("::1:80:80", PortError::Address("::1".into())),
            ("[1.2.3.4]:80:80", PortError::Address("[1.2.3.4]".into())),
        ] {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }
}
