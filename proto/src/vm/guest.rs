//! What a node tells of a VM that its pod does not say otherwise: two conditions of the pod, and the value of annotation [`GUEST`], JSON.
//!
//! `controld` writes both, where it may, and whoever looks after KubeVirt's objects reads them. What is in the annotation comes of the
//! guest, or of whoever could write to the pod: it is bounded at both ends, and no text of it has control characters. Unlike with a description,
//! a key that the reader does not know is passed over: nothing is made of it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Name of the annotation.
pub const GUEST: &str = "virtlet.k8s/guest";
/// Type of the condition that the guest is paused.
pub const PAUSED: &str = "virtlet.k8s/Paused";
/// Type of the condition that an agent answers in the guest.
pub const AGENT_CONNECTED: &str = "virtlet.k8s/AgentConnected";
/// What types of conditions begin with that a node may set.
pub const CONDITIONS: &str = "virtlet.k8s/";
/// Label of pods of which a node tells, with the name of their VirtualMachineInstance.
pub const VMI: &str = "virtlet.k8s/vmi";
/// Most bytes of the annotation.
pub const MAX_GUEST: usize = 8 << 10;
/// Most bytes of a text in it.
const MAX_TEXT: usize = 128;
const MAX_NICS: usize = 16;
/// Most addresses of a NIC: of all of them, if together they are too long, fewer.
const MAX_ADDRESSES: [usize; 4] = [16, 4, 1, 0];

/// What is known of a guest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Guest {
    /// Its operating system, as its agent says.
    #[serde(skip_serializing_if = "Os::is_unknown")]
    pub os: Os,
    /// NICs of the machine, in their order; the first is that on the pod's network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nics: Vec<GuestNic>,
}

/// An operating system, in words of os-release(5) and uname(1). What is not known is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[allow(missing_docs, reason = "each is what its name says")]
pub struct Os {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pretty_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub version_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_release: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

/// A NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct GuestNic {
    /// The link in the pod's namespace that it is joined with.
    pub link: String,
    /// Its MAC address.
    pub mac: String,
    /// What the guest calls it, if its agent says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Those that the guest's agent tells, or else those that its network gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Whether it is the guest that says so.
    #[serde(skip_serializing_if = "super::is_false")]
    pub by_agent: bool,
}

impl Os {
    /// Whether nothing is known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    fn texts(&mut self) -> [&mut String; 8] {
        let Self { id, name, pretty_name, version, version_id, kernel_release, kernel_version, machine } = self;
        [id, name, pretty_name, version, version_id, kernel_release, kernel_version, machine]
    }
}

impl Guest {
    /// Reads the annotation's value; `None` if it is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // A list would be taken for the values of an object, in their order.
        if text.len() > MAX_GUEST || !text.trim_start().starts_with('{') {
            return None;
        }
        let guest: Self = serde_json::from_str(text).ok()?;
        Some(guest.bounded())
    }

    /// The annotation's value, of at most [`MAX_GUEST`] bytes.
    #[must_use]
    pub fn text(&self) -> String {
        let mut guest = self.clone().bounded();
        let mut text = String::new();
        for most in MAX_ADDRESSES {
            guest.nics.iter_mut().for_each(|nic| nic.addresses.truncate(most));
            // Has no map whose keys could be no texts.
            text = serde_json::to_string(&guest).unwrap_or_default();
            if text.len() <= MAX_GUEST {
                break;
            }
        }
        text
    }

    fn bounded(mut self) -> Self {
        self.os.texts().into_iter().for_each(bound);
        self.nics.truncate(MAX_NICS);
        for nic in &mut self.nics {
            [&mut nic.link, &mut nic.mac, &mut nic.name].into_iter().for_each(bound);
            nic.addresses.truncate(MAX_ADDRESSES[0]);
        }
        self
    }
}

fn bound(text: &mut String) {
    text.retain(|letter| !letter.is_control() && !is_turning(letter));
    text.truncate(text.floor_char_boundary(MAX_TEXT));
}

/// Whether what follows is shown from the other side: with it a text looks like another one.
fn is_turning(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic(addresses: usize) -> GuestNic {
        let address = |nth: usize| format!("fd00:1111:2222:3333:4444:5555:6666:{nth:04x}").parse().expect("an address");
        GuestNic {
            link: "net1".to_owned(),
            mac: "02:00:00:00:00:01".to_owned(),
            name: "enp1s0".to_owned(),
            addresses: (0..addresses).map(address).collect(),
            by_agent: true,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let os = Os { id: "debian".to_owned(), kernel_release: "6.1.0".to_owned(), ..Os::default() };
        let guest = Guest { os, nics: vec![nic(1)] };
        let text = guest.text();
        assert_eq!(
            text,
            r#"{"os":{"id":"debian","kernelRelease":"6.1.0"},"nics":[{"link":"net1","mac":"02:00:00:00:00:01","name":"enp1s0","addresses":["fd00:1111:2222:3333:4444:5555:6666:0"],"byAgent":true}]}"#
        );
        assert_eq!(Guest::parse(&text), Some(guest));
        assert_eq!(
            Guest::parse(r#"{"later": [1], "nics": [{"more": {}}]}"#).expect("read").nics,
            [GuestNic::default()]
        );
        for wrong in ["", "[]", r#"{"os": 1}"#, r#"{"nics": [{"addresses": ["no"]}]}"#, &" ".repeat(MAX_GUEST + 1)] {
            assert_eq!(Guest::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whatever_a_guest_says_it_fits_and_controls_nothing() {
        let long = "\"\\\u{1f600}\n\u{7f}\u{202e}\0".repeat(1000);
        let mut os = Os::default();
        os.texts().into_iter().for_each(|text| text.clone_from(&long));
        let nics = vec![GuestNic { name: long, ..nic(100) }; 100];
        let text = Guest { os, nics }.text();
        assert!(text.len() <= MAX_GUEST, "{}", text.len());
        assert!(!text.contains(['\n', '\u{7f}', '\u{202e}', '\0']) && !text.contains("\\u0"));
        let read = Guest::parse(&text).expect("read");
        assert_eq!((read.nics.len(), read.os.name.len() <= MAX_TEXT), (MAX_NICS, true));
        let few = Guest { os: Os::default(), nics: vec![nic(100)] };
        assert_eq!(Guest::parse(&few.text()).expect("read").nics[0].addresses.len(), MAX_ADDRESSES[0]);
    }
}
