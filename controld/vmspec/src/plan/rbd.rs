//! Disks that are images of a Ceph cluster, which QEMU reads and writes by itself. Nothing here is secret: the key is read anew for each
//! start, and is on no record.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::file::OnDisk;

/// A monitor's port if none is said.
const PORT: u16 = 6789;
/// Of a name in DNS.
const MAX_HOST: usize = 253;

/// An image of a Ceph cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RbdImage {
    /// At least one.
    pub monitors: Vec<Monitor>,
    pub pool: String,
    pub image: String,
    /// Who QEMU logs in as, without `client.`; nobody if the cluster asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The directory with the description that has the user's key.
    pub dir: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<OnDisk>,
}

impl RbdImage {
    /// Pool and image, as people say it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}/{}", self.pool, self.image)
    }
}

/// Where a cluster is asked first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Monitor {
    /// A name or an address; one of IPv6 without brackets.
    pub host: String,
    pub port: u16,
}

/// A text that is no monitor.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not `HOST`, `HOST:PORT`, `[IPv6]` or `[IPv6]:PORT`")]
pub struct NoMonitor;

impl FromStr for Monitor {
    type Err = NoMonitor;

    fn from_str(text: &str) -> Result<Self, NoMonitor> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (address, rest) = rest.split_once(']').ok_or(NoMonitor)?;
                let address: Ipv6Addr = address.parse().map_err(|_not_an_address| NoMonitor)?;
                let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or(NoMonitor)?) };
                (address.to_string(), port)
            }
            None => {
                let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
                if !is_host(host) {
                    return Err(NoMonitor);
                }
                (host.to_owned(), port)
            }
        };
        let port = port.map_or(Ok(PORT), |port| {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            if is_number { port.parse().map_err(|_too_large| NoMonitor) } else { Err(NoMonitor) }
        })?;
        if port == 0 { Err(NoMonitor) } else { Ok(Self { host, port }) }
    }
}

/// Whether it can be an address of IPv4 or a name in DNS.
fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        is_plain && !label.is_empty() && !label.starts_with('-') && !label.ends_with('-')
    };
    text.len() <= MAX_HOST && text.split('.').all(is_label)
}

impl fmt::Display for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TryFrom<String> for Monitor {
    type Error = NoMonitor;

    fn try_from(text: String) -> Result<Self, NoMonitor> {
        text.parse()
    }
}

impl From<Monitor> for String {
    fn from(monitor: Monitor) -> Self {
        monitor.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_a_host_and_a_port_of_either_family() {
        for (text, shown) in [
            ("10.0.0.1:3300", "10.0.0.1:3300"),
            ("mon-1.example.com", "mon-1.example.com:6789"),
            ("[fd00::0001]", "[fd00::1]:6789"),
            ("[fd00::1]:3300", "[fd00::1]:3300"),
        ] {
            let monitor: Monitor = text.parse().expect(text);
            assert_eq!(monitor.to_string(), shown);
            assert_eq!(serde_json::from_str::<Monitor>(&format!("\"{shown}\"")).expect("read"), monitor);
        }
    }

    #[test]
    fn what_is_no_monitor_is_none() {
        let long = "a".repeat(254);
        for text in [
            "",
            ":6789",
            "fd00::1",
            "fd00::1:6789",
            "[fd00::1",
            "[fd00::1]6789",
            "[fd00::1]:",
            "[10.0.0.1]",
            "[fe80::1%eth0]",
            "mon:0",
            "mon:65536",
            "mon:+1",
            "mon:1:2",
            "mon;id=admin",
            "mon\\:1",
            "a b",
            "-mon",
            "mon..example",
            "mon\n",
            &long,
        ] {
            assert_eq!(text.parse::<Monitor>(), Err(NoMonitor), "{text}");
        }
    }

    #[test]
    fn a_record_of_an_image_has_no_key() {
        let image = RbdImage {
            monitors: vec!["10.0.0.1".parse().expect("monitor")],
            pool: "rbd".into(),
            image: "web".into(),
            user: Some("admin".into()),
            dir: "/pods/u/web".into(),
            on: None,
        };
        let text = serde_json::to_string(&image).expect("written");
        assert_eq!(
            text,
            r#"{"monitors":["10.0.0.1:6789"],"pool":"rbd","image":"web","user":"admin","dir":"/pods/u/web"}"#
        );
        assert_eq!(serde_json::from_str::<RbdImage>(&text).expect("read"), image);
    }
}
