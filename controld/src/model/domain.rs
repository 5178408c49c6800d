//! A machine's description for libvirt: its plan, rendered for one start. Pure: [`DomainSpec`] in, XML out.
//!
//! What matters beyond the obvious (each was seen to go wrong otherwise):
//! - Every device has an explicit PCI address. `pcie.0` slots 0x10 to 0x1e are left to the NICs that vmwrapper adds; libvirt
//!   knows nothing of those, and there is no `<interface>`.
//! - libvirt would connect to the socket of a port with the name of QEMU's agent, and there is room for one. So it is told another
//!   name, and QEMU the right one.
//! - The chain below the overlay is spelled out and ended, with formats, so nothing is probed; and nothing of it is
//!   relabelled, or libvirt would give the shared image to QEMU's user.
//! - virtiofsd has to see the guest's memory, so that memory is shared where there are volumes, and nowhere else: the kernel has no
//!   large pages for it by itself.
//! - The serial port is a socket with an append log beside it, so output is kept from power-on, whoever listens.

mod secret;
mod xml;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use proto::tap::Token;
use uuid::Uuid;
use vmspec::Accelerator;
use vmspec::ids::smbios_uuid;
use vmspec::plan::{MachinePlan, PassedDevice};

pub use self::secret::DiskSecret;
pub use self::xml::{DomainError, GROUP_OF_ROOT, group_of, target_of, target_of_root, xml};

/// XML namespace of our metadata element. Only machines that have it are ours.
pub const METADATA_NAMESPACE: &str = "https://virtlet.cloud/xml/machine/1";

/// A machine.
#[derive(Debug, Clone)]
pub struct DomainSpec {
    /// What it has.
    pub plan: MachinePlan,
    /// Id of the pod sandbox.
    pub sandbox: String,
    pub pod_uid: String,
    /// Mark of the controld that made it.
    pub instance: Uuid,
    /// KVM or emulation.
    pub accel: Accelerator,
    /// What libvirt runs.
    pub vmwrapper: PathBuf,
    /// What vmwrapper is told.
    pub env: WrapperEnv,
    /// cloud-init seed, an ISO image.
    pub seed: Option<PathBuf>,
    /// Where the plan's disks with files are, by their names.
    pub files: BTreeMap<String, PathBuf>,
    /// Files that the firmware shows the guest.
    pub firmware: Vec<FirmwareEntry>,
    /// Volumes of the pod that the guest sees.
    pub share: Option<Shared>,
    /// How the plan's root disk is used, if that is a volume or a layer on one.
    pub root: Option<RootNow>,
    /// How the plan's disks are used, one by one.
    pub disks: Vec<DiskNow>,
    /// The node's memory nodes that the guest's memory is to be on, as a list; wherever it comes if there is none.
    pub memory_nodes: Option<String>,
    /// Socket of the serial port.
    pub console_socket: PathBuf,
    /// Socket of the port of QEMU's guest agent. libvirt's own choice would be a directory that every machine may enter.
    pub qga_socket: PathBuf,
    /// Socket of our agent's port.
    pub agent_socket: PathBuf,
    /// Socket of the screen, if the plan has one.
    pub screen_socket: PathBuf,
    /// Append log of the serial port.
    pub console_log: PathBuf,
    /// Where output and end of the machine's command go, if the plan has one.
    pub command_log: PathBuf,
    pub command_end: PathBuf,
    /// What UEFI remembers, if the plan has it.
    pub uefi_variables: PathBuf,
    /// Whether libvirt knows the panic device of PCI; else it is on ISA.
    pub pvpanic_pci: bool,
    /// Whether its guest is to wait at the gate.
    pub waits: bool,
    /// Devices that libvirt passes through.
    pub hostdevs: Vec<Hostdev>,
    /// Memory in bytes that QEMU may lock, if any device is passed through that libvirt does not know of: the kernel pins all
    /// of the guest's memory for it.
    pub locked_memory: Option<u64>,
}

/// What libvirt is told of a machine's share.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Where it is written down what the guest sees.
    pub dir: PathBuf,
    /// What libvirt runs as virtiofsd.
    pub fswrapper: PathBuf,
}

/// A file that the firmware shows the guest. Not its content: that of `<entry>` stands in QEMU's arguments, which anybody may read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirmwareEntry {
    /// The guest's name of it, from `opt/` on.
    pub name: &'static str,
    /// QEMU reads it when it starts.
    pub file: PathBuf,
}

/// How a disk is used, as far as the node decides that at a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskNow {
    pub io: AsyncIo,
    /// `None` is what every guest takes for granted.
    pub sectors: Option<Sectors>,
}

/// How a root disk that is of a volume is used in a start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootNow {
    pub disk: DiskNow,
    pub slice: Slice,
    /// What the guest is known by, if it is the same machine as long as it has this disk.
    pub uuid: Option<Uuid>,
}

/// Bytes of a device, or of a volume's disk, that are a guest's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub offset: u64,
    pub size: u64,
}

/// How QEMU has more than one request on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsyncIo {
    IoUring,
    /// Linux AIO.
    Native,
    /// Threads of QEMU, through the node's cache.
    Threads,
}

/// Bytes of a disk's sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sectors {
    /// The least that can be read or written.
    pub logical: u32,
    /// What the disk itself reads and writes.
    pub physical: u32,
}

/// A device of the node that libvirt passes through. Its driver is one that leaves it to a process already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hostdev {
    /// Where it is on the node.
    pub device: PassedDevice,
    /// Where it is in the guest. A NIC is where vmwrapper would have put it.
    pub place: NicPlace,
    /// Whether the guest's firmware sees the device's own program. A NIC's is for starting from the network.
    pub rom: bool,
}

/// What vmwrapper is told, by its environment.
#[derive(Debug, Clone)]
pub struct WrapperEnv {
    /// tapmanager's hand-off socket.
    pub handoff: PathBuf,
    /// The one-shot token of this start.
    pub token: Token,
    /// The real emulator.
    pub emulator: PathBuf,
    /// Where the NICs are, in their order.
    pub nics: Vec<NicPlace>,
    /// How long vmwrapper may wait.
    pub deadline: Duration,
}

/// Where a NIC is, and what its guest is told of that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NicPlace {
    /// Of the root bus.
    pub slot: usize,
    /// As the pod says it.
    pub boot_order: Option<u32>,
    /// Its number in ACPI.
    pub acpi_index: Option<u16>,
}

impl NicPlace {
    /// One of which nothing is said.
    #[must_use]
    pub const fn at(slot: usize) -> Self {
        Self { slot, boot_order: None, acpi_index: None }
    }
}

impl DomainSpec {
    /// The UUID that the guest's firmware shows: its root disk's, if that outlives the pod, or the pod's, so that a restarted container is
    /// the same machine to its guest.
    #[must_use]
    pub fn smbios_uuid(&self) -> Uuid {
        smbios_uuid(self.plan.smbios, self.root.and_then(|root| root.uuid), &self.pod_uid)
    }
}

#[cfg(test)]
mod tests;
