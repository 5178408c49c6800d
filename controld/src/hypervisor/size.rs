//! The size of a machine that runs: its virtual CPUs, the memory that the balloon leaves to its guest, and its disks.

use uuid::Uuid;
use vmspec::error::Result;

use super::Hypervisor;
use super::calls::QUICK_DEADLINE;
use super::ffi::Connection;
use super::link::Lane;
use super::machines::existing;

impl Hypervisor {
    /// Gives a machine that runs so many virtual CPUs.
    ///
    /// With cgroups of version 2, libvirt plugs one, fails to move its thread to the cgroup that QEMU has left, and stops. So
    /// the count that QEMU has then tells what was done.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer. It may have more than before then.
    pub async fn set_vcpus(&self, id: Uuid, count: u16) -> Result<()> {
        let set = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            let mut has = domain.vcpus()?;
            while let Err(error) = domain.set_vcpus(count) {
                let more = domain.vcpus()?;
                if more >= count {
                    break;
                } else if more <= has {
                    return Err(error);
                }
                has = more;
            }
            Ok(())
        };
        self.call_in(Lane::Presses, "change the machine's vCPUs", QUICK_DEADLINE, set).await
    }

    /// The virtual CPUs that a machine has which runs.
    ///
    /// # Errors
    /// When it does not run, or libvirt does not answer.
    pub async fn vcpus(&self, id: Uuid) -> Result<u16> {
        let count = move |connection: &Connection| existing(connection, id)?.vcpus();
        self.call("count the machine's vCPUs", QUICK_DEADLINE, count).await
    }

    /// Asks the guest of a machine that runs to get along with so many bytes of memory, or to take so many.
    ///
    /// # Errors
    /// When it does not run, libvirt does not do it, or does not answer.
    pub async fn set_memory(&self, id: Uuid, bytes: u64) -> Result<()> {
        let set = move |connection: &Connection| existing(connection, id)?.set_memory(bytes / 1024);
        self.call_in(Lane::Presses, "change the machine's memory", QUICK_DEADLINE, set).await
    }

    /// Bytes of a machine's disk, as its QEMU has it; `target` is libvirt's name of the disk.
    ///
    /// # Errors
    /// When it does not run, or libvirt does not answer.
    pub async fn disk_size(&self, id: Uuid, target: String) -> Result<u64> {
        let size = move |connection: &Connection| existing(connection, id)?.disk_size(&target);
        self.call("tell the size of the machine's disk", QUICK_DEADLINE, size).await
    }

    /// Tells a machine that runs that a disk of its has so many bytes now.
    ///
    /// # Errors
    /// When it does not run, the disk has not, libvirt does not do it, or does not answer.
    pub async fn resize_disk(&self, id: Uuid, target: String, bytes: u64) -> Result<()> {
        let resize = move |connection: &Connection| existing(connection, id)?.resize_disk(&target, bytes);
        self.call_in(Lane::Presses, "change the size of the machine's disk", QUICK_DEADLINE, resize).await
    }
}
