//! Ids of sandboxes, containers and machines.
//!
//! What kubelet names is not what libvirt names: a CRI id says which runtime serves it, so that a proxy in front of several
//! can route by it, also if only its beginning is given; a machine has a UUID.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What CRI ids of this runtime begin with. Other runtimes' are hex digits alone.
const MARK: &str = "vm";
/// Bytes that follow the mark, in hex: 64 characters in all, as containerd's ids have.
const BYTES: usize = 31;

/// Namespace of the UUIDs that are made of pod UIDs; the one that Virtlet has always used.
const POD_NAMESPACE: Uuid = Uuid::from_u128(0x67b7_fb47_7735_4b64_86d2_6d06_2d12_1966);

/// Longest part of a container's name in a machine's name: libvirt makes socket paths of it.
const MAX_NAME: usize = 24;

/// Id of a container: `vm` and 62 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContainerId(Form);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Cri([u8; BYTES]),
    /// Of the first release, whose containers had the id of their machine.
    OfMachine(MachineId),
}

/// Id of a machine: 32 hex digits, the libvirt domain's UUID without its hyphens. It is also in the names of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MachineId(Uuid);

/// A text that is no id.
#[derive(Debug, thiserror::Error)]
#[error("an id is `vm` and 62 hex digits, or 32 hex digits")]
pub struct IdError;

/// A new CRI id, of a sandbox or a container.
#[must_use]
pub fn random_cri_id() -> String {
    ContainerId::random().to_string()
}

/// The UUID that a guest's firmware shows: what the pod says, else that of a root disk that outlives it, else one made of the pod's UID.
#[must_use]
pub fn smbios_uuid(said: Option<Uuid>, root: Option<Uuid>, pod_uid: &str) -> Uuid {
    said.or(root).unwrap_or_else(|| Uuid::new_v5(&POD_NAMESPACE, pod_uid.as_bytes()))
}

/// libvirt's name of a container's machine: unique by the id, readable by the container's name.
#[must_use]
pub fn domain_name(id: Uuid, container: &str) -> String {
    let id = id.as_simple().to_string();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c.to_ascii_lowercase() } else { '-' };
    let container: String = container.chars().take(MAX_NAME).map(plain).collect();
    format!("virtlet-{}-{container}", id.get(..13).unwrap_or(&id))
}

// === impl ContainerId ===

impl ContainerId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        let mut bytes = [0; BYTES];
        let random = [Uuid::new_v4(), Uuid::new_v4()];
        for (byte, random) in bytes.iter_mut().zip(random.iter().flat_map(Uuid::as_bytes)) {
            *byte = *random;
        }
        Self(Form::Cri(bytes))
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Form::Cri(bytes) => {
                f.write_str(MARK)?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
            Form::OfMachine(machine) => machine.fmt(f),
        }
    }
}

impl FromStr for ContainerId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some(digits) = text.strip_prefix(MARK) else { return Ok(Self(Form::OfMachine(text.parse()?))) };
        let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
        if digits.len() != 2 * BYTES || !digits.bytes().all(is_hex) {
            return Err(IdError);
        }
        let mut bytes = [0; BYTES];
        for (n, byte) in bytes.iter_mut().enumerate() {
            let digits = digits.get(2 * n..2 * n + 2).ok_or(IdError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| IdError)?;
        }
        Ok(Self(Form::Cri(bytes)))
    }
}

impl From<ContainerId> for String {
    fn from(id: ContainerId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for ContainerId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

// === impl MachineId ===

impl MachineId {
    /// A new one.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// As libvirt knows it.
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for MachineId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_simple().fmt(f)
    }
}

impl FromStr for MachineId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| IdError)
    }
}

impl From<MachineId> for String {
    fn from(id: MachineId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for MachineId {
    type Error = IdError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use proto::tap::PodId;

    use super::*;

    #[test]
    fn a_cri_id_says_whose_it_is_and_comes_back_as_it_was() {
        let id = ContainerId::random().to_string();
        assert!(id.len() == 64 && id.starts_with("vm"), "{id}");
        assert_eq!(id.parse::<ContainerId>().expect("read back").to_string(), id);
        assert_ne!(ContainerId::random(), ContainerId::random());
        assert_eq!(random_cri_id().parse::<PodId>().expect("fits a sandbox").as_str().len(), PodId::MAX_LEN);
    }

    #[test]
    fn ids_of_the_first_release_are_read() {
        let old = "00112233445566778899aabbccddeeff";
        assert_eq!(old.parse::<ContainerId>().expect("read").to_string(), old);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        let zeros = "0".repeat(62);
        for text in
            ["", "vm", "x", &format!("vm{}", &zeros[1..]), &format!("vm{zeros}0"), &format!("vm+1{}", &zeros[2..])]
        {
            assert!(text.parse::<ContainerId>().is_err(), "{text}");
        }
    }

    #[test]
    fn machine_names_are_short_and_plain() {
        let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
        assert_eq!(domain_name(id, "main"), "virtlet-0011223344556-main");
        assert_eq!(domain_name(id, "My_App/../x\u{e9}"), "virtlet-0011223344556-my-app----x-");
        assert_eq!(domain_name(id, &"a".repeat(100)).len(), 8 + 13 + 1 + 24);
    }
}
