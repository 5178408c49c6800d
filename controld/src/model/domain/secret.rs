//! What libvirt knows a key by that QEMU logs in with, to have a disk of a Ceph cluster. The key itself is in none of this: libvirt is
//! given it before a start, in memory, and shows it to nobody.
//!
//! The name says whose it is, as a domain's metadata do: what a controld left that was killed amid a start is found by it.

use uuid::Uuid;
use vmspec::MachineId;
use vmspec::plan::Serial;

/// What the names of all of ours begin with.
const MARK: &str = "virtlet-rs";

/// A secret of libvirt's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSecret {
    /// The same at each start.
    pub id: Uuid,
    /// libvirt's word for its name, in which it takes no `/`.
    pub usage: String,
}

impl DiskSecret {
    /// That of a machine's disk.
    #[must_use]
    pub fn of(instance: Uuid, machine: MachineId, serial: &Serial) -> Self {
        let id = Uuid::new_v5(&machine.uuid(), serial.as_str().as_bytes());
        Self { id, usage: format!("{MARK}:{instance}:{machine}:{serial}") }
    }

    /// The machine of a secret that this instance of controld made, by its name.
    #[must_use]
    pub fn machine_of(usage: &str, instance: Uuid) -> Option<MachineId> {
        let rest = usage.strip_prefix(MARK)?.strip_prefix(':')?.strip_prefix(&instance.to_string())?;
        rest.strip_prefix(':')?.split(':').next()?.parse().ok()
    }

    /// For libvirt: `ephemeral` is never on a disk, and `private` shown to no client.
    #[must_use]
    pub fn xml(&self) -> String {
        // Neither has a character that XML has a meaning for.
        let Self { id, usage } = self;
        format!(
            "<secret ephemeral='yes' private='yes'><uuid>{id}</uuid><usage type='ceph'><name>{usage}</name></usage></secret>"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_by_its_instance_and_machine() {
        let (instance, machine) = (Uuid::from_u128(1), MachineId::from(Uuid::from_u128(2)));
        let secret = DiskSecret::of(instance, machine, &Serial::of_name("<da&ta>"));
        insta::assert_snapshot!(secret.xml());
        assert_eq!(DiskSecret::machine_of(&secret.usage, instance), Some(machine));
        assert_eq!(DiskSecret::machine_of(&secret.usage, Uuid::from_u128(3)), None);
        for other in ["", "virtlet-rs", "client.admin", &format!("virtlet-rs:{instance}:x:y")] {
            assert_eq!(DiskSecret::machine_of(other, instance), None, "{other}");
        }
        let (again, beside) = (Serial::of_name("<da&ta>"), Serial::of_name("data"));
        assert_eq!(DiskSecret::of(instance, machine, &again), secret);
        assert_ne!(DiskSecret::of(instance, machine, &beside).id, secret.id);
    }
}
