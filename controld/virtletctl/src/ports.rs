//! Ports of `port-forward`, as kubectl writes them.

use std::net::IpAddr;

/// A port of ours, and the pod's that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// 0 takes a free one.
    pub(super) local: u16,
    pub(super) remote: u16,
}

/// Where local ports are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// Loopback, in both families if there are two.
    Loopback,
    /// One address.
    Ip(IpAddr),
}

/// An address, or `localhost`.
pub(super) fn address(text: &str) -> Result<Address, String> {
    if text == "localhost" {
        return Ok(Address::Loopback);
    }
    text.parse().map(Address::Ip).map_err(|_| "no IP address, nor `localhost`".into())
}

/// `PORT`, `LOCAL:REMOTE` or `:REMOTE`, which takes a free local port; behind `tcp/`, as by virtctl, too.
pub(super) fn parse(text: &str) -> Result<Ports, String> {
    let text = text.strip_prefix("tcp/").unwrap_or(text);
    if text.starts_with("udp/") {
        return Err("only TCP is forwarded; `virtletctl run -p PORT:PORT/udp` publishes a port of UDP".into());
    }
    let number = |text: &str| text.parse::<u16>().map_err(|_| format!("`{text}` is no port: 1 to 65535"));
    let (local, remote) = match text.split_once(':') {
        None => (number(text)?, number(text)?),
        Some(("", remote)) => (0, number(remote)?),
        Some((local, remote)) => (number(local)?, number(remote)?),
    };
    if remote == 0 { Err("`0` is no port of a pod: 1 to 65535".into()) } else { Ok(Ports { local, remote }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_kubectl_reads_them() {
        for (text, local, remote) in
            [("80", 80, 80), ("8080:80", 8080, 80), (":80", 0, 80), ("0:80", 0, 80), ("tcp/8080:80", 8080, 80)]
        {
            assert_eq!(parse(text), Ok(Ports { local, remote }), "{text}");
        }
        for text in ["udp/53", "", ":", "0", "80:", "80:0", "80:0x50", "65536", "-1", "1:2:3", "http"] {
            parse(text).expect_err(text);
        }
    }
}
