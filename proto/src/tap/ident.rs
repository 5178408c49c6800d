//! Names that cross the tap protocol, parsed once: a value of these types is well-formed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} `{value}` {problem}")]
pub struct IdentError {
    what: &'static str,
    value: String,
    problem: &'static str,
}

impl IdentError {
    fn new(what: &'static str, value: &str, problem: &'static str) -> Self {
        // What a stranger sent is shown, but neither at length nor with its control characters.
        let value = value.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect();
        Self { what, value, problem }
    }
}

/// Id of a pod sandbox; also the CNI container id (CNI spec 1.1.0, "Parameters") and part of the netns' file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PodId(String);

/// Name of a network namespace's file. One of ours has a pod's id in it and is longer than that.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NetnsName(String);

/// Mark of whoever asked for a pod: the instance id of a `controld`, so that it finds all that is its own, and nothing of
/// another one on the same node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnerId(String);

/// One-shot key to a pod's descriptors: 128 random bits in lower-case hex. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Token(String);

/// Name of a network interface: 1 to 15 bytes, as the kernel's `dev_valid_name` takes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IfName(String);

/// An Ethernet address that a station may have: neither zero nor multicast. Displayed in lower case with colons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MacAddr([u8; 6]);

/// Where a PCI device is (`lspci -D`): domain, bus, device and function, as in `0000:01:10.0`. Displayed in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciAddress {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

// === impl PodId ===

impl PodId {
    /// Longest id. With the prefix of a netns' name it stays well under `NAME_MAX`.
    pub const MAX_LEN: usize = 64;

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PodId {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        plain("pod id", text).map(Self)
    }
}

/// An id that is safe as part of a file name.
fn plain(what: &'static str, text: &str) -> Result<String, IdentError> {
    if text.is_empty() || text.len() > PodId::MAX_LEN {
        return Err(IdentError::new(what, text, "is not 1 to 64 characters long"));
    }
    plain_of_any_length(what, text)
}

fn plain_of_any_length(what: &'static str, text: &str) -> Result<String, IdentError> {
    let refuse = |problem| Err(IdentError::new(what, text, problem));
    if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return refuse("does not start with a letter or digit");
    }
    if !text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) {
        return refuse("has characters other than letters, digits, `-`, `_` and `.`");
    }
    Ok(text.to_owned())
}

// === impl NetnsName ===

impl NetnsName {
    /// Longest name: `NAME_MAX` of Linux.
    const MAX_LEN: usize = 255;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NetnsName {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > Self::MAX_LEN {
            return Err(IdentError::new("name of a namespace", text, "is longer than 255 characters"));
        }
        plain_of_any_length("name of a namespace", text).map(Self)
    }
}

// === impl OwnerId ===

impl OwnerId {
    /// The mark as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OwnerId {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        plain("owner", text).map(Self)
    }
}

// === impl Token ===

impl Token {
    /// The token made of 16 random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        use fmt::Write as _;
        let mut text = String::with_capacity(32);
        for byte in bytes {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Self(text)
    }

    /// The token as text. The caller keeps it out of logs.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Token {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Ok(Self(text.to_owned()));
        }
        Err(IdentError::new("token", "(hidden)", "is not 32 lower-case hex digits"))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(hidden)")
    }
}

impl From<Token> for String {
    fn from(token: Token) -> Self {
        token.0
    }
}

// === impl IfName ===

impl IfName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for IfName {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = |problem| Err(IdentError::new("interface name", text, problem));
        if text.is_empty() || text.len() > 15 {
            return refuse("is not 1 to 15 bytes long");
        }
        if text == "."
            || text == ".."
            || text.chars().any(|c| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
        {
            return refuse("has a character that the kernel refuses");
        }
        Ok(Self(text.to_owned()))
    }
}

// === impl MacAddr ===

impl MacAddr {
    /// The address with these bytes, first byte first on the wire.
    ///
    /// # Errors
    /// Zero and multicast addresses belong to no station.
    pub fn new(bytes: [u8; 6]) -> Result<Self, IdentError> {
        if bytes == [0; 6] || bytes[0] & 1 == 1 {
            return Err(IdentError::new("MAC address", &render_mac(bytes), "belongs to no single station"));
        }
        Ok(Self(bytes))
    }

    /// The bytes, first byte first on the wire.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl FromStr for MacAddr {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || IdentError::new("MAC address", text, "is not six pairs of hex digits joined by colons");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
            *byte = part.and_then(|p| u8::from_str_radix(p, 16).ok()).ok_or_else(refuse)?;
        }
        if parts.next().is_some() {
            return Err(refuse());
        }
        Self::new(bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render_mac(self.0))
    }
}

impl From<MacAddr> for String {
    fn from(mac: MacAddr) -> Self {
        mac.to_string()
    }
}

// === impl PciAddress ===

impl PciAddress {
    /// Domain, bus, device (below 32) and function (below 8).
    #[must_use]
    pub const fn parts(self) -> (u32, u8, u8, u8) {
        (self.domain, self.bus, self.device, self.function)
    }
}

impl FromStr for PciAddress {
    type Err = IdentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || IdentError::new("PCI address", text, "is not of the form `0000:01:10.0`");
        // Longer domains are those of devices behind a VMD.
        let number = |digits: &str, lengths: std::ops::RangeInclusive<usize>| {
            let hex = lengths.contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u32::from_str_radix(digits, 16).ok()).flatten().ok_or_else(refuse)
        };
        let (domain, rest) = text.split_once(':').ok_or_else(refuse)?;
        let (bus, rest) = rest.split_once(':').ok_or_else(refuse)?;
        let (device, function) = rest.split_once('.').ok_or_else(refuse)?;
        let small = |number: u32, most: u8| u8::try_from(number).ok().filter(|n| *n <= most).ok_or_else(refuse);
        Ok(Self {
            domain: number(domain, 4..=8)?,
            bus: small(number(bus, 2..=2)?, u8::MAX)?,
            device: small(number(device, 2..=2)?, 31)?,
            function: small(number(function, 1..=1)?, 7)?,
        })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

fn render_mac([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

macro_rules! text_ident {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }
    )*};
}
text_ident!(PodId, NetnsName, OwnerId, IfName);

macro_rules! parse_from_string {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = IdentError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
    )*};
}
parse_from_string!(PodId, NetnsName, OwnerId, Token, IfName, MacAddr, PciAddress);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_ids_are_safe_file_names() {
        for good in ["a", "0123456789abcdef", "pod_1.x-y", &"a".repeat(64)] {
            assert_eq!(good.parse::<PodId>().map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", ".", "..", "-a", "a/b", "a b", "\u{e9}", "a\0", &"a".repeat(65)] {
            assert!(bad.parse::<PodId>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_namespace_s_name_has_room_for_an_id() {
        for good in ["virtlet-x", &format!("virtlet-0123abcd-{}", "a".repeat(PodId::MAX_LEN)), &"a".repeat(255)] {
            assert!(good.parse::<NetnsName>().is_ok(), "{good} was refused");
        }
        for bad in ["", "..", "a/b", &"a".repeat(256)] {
            assert!(bad.parse::<NetnsName>().is_err(), "{bad} was taken");
        }
    }

    #[test]
    fn a_refused_name_is_shown_without_control_characters() {
        let error = "a\x1b[2Jb".parse::<PodId>().expect_err("has an escape");
        assert_eq!(error.to_string(), "pod id `a?[2Jb` has characters other than letters, digits, `-`, `_` and `.`");
    }

    #[test]
    fn tokens_are_exact_and_never_shown() {
        let token = Token::from_random([0xab; 16]);
        assert_eq!(token.as_str(), "ab".repeat(16));
        assert_eq!(format!("{token:?}"), "Token(hidden)");
        assert_eq!(token.as_str().parse(), Ok(token));
        for bad in ["", "AB", &"AB".repeat(16), &"g".repeat(32), &"a".repeat(33)] {
            let error = bad.parse::<Token>().expect_err("malformed");
            assert!(bad.is_empty() || !error.to_string().contains(bad));
        }
    }

    #[test]
    fn mac_addresses_of_stations_only() {
        assert_eq!("02:00:AB:cd:00:01".parse::<MacAddr>().map(|m| m.to_string()), Ok("02:00:ab:cd:00:01".into()));
        for bad in [
            "",
            "00:00:00:00:00:00",
            "01:00:5e:00:00:01",
            "ff:ff:ff:ff:ff:ff",
            "02:00:00:00:00",
            "02-00-00-00-00-01",
            "2:0:0:0:0:1",
            "02:00:00:00:00:01:02",
            "+2:00:00:00:00:01",
        ] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn pci_addresses_with_their_domains() {
        for good in ["0000:01:10.0", "ffff:ff:1f.7", "10000:e1:00.0"] {
            assert_eq!(good.parse::<PciAddress>().map(|at| at.to_string()), Ok(good.to_owned()));
        }
        assert_eq!("0000:AB:1F.3".parse::<PciAddress>().map(PciAddress::parts), Ok((0, 0xab, 0x1f, 3)));
        for bad in
            ["", "01:10.0", "0000:01:10", "0000:01:20.0", "0000:01:10.8", "0:01:10.0", "0000:1:10.0", "0000:01:+1.0"]
        {
            assert!(bad.parse::<PciAddress>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn interface_names_as_the_kernel_takes_them() {
        assert!("eth0".parse::<IfName>().is_ok());
        assert!("cali1234567890a".parse::<IfName>().is_ok());
        for bad in ["", "cali1234567890ab", "a/b", "a b", ".", "..", "a:1"] {
            assert!(bad.parse::<IfName>().is_err(), "{bad:?} was taken");
        }
    }
}
