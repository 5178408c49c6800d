//! QEMU's arguments with the pod's NICs appended. Pure.
//!
//! The `-device` is JSON: QEMU makes devices of the `key=value` form before those in JSON, which libvirt writes, and
//! would find slots taken or buses missing. Each NIC has an explicit slot, for the same reason.
//!
//! A NIC that is passed through is `vfio-pci` with the descriptor of its device. All of them share one `iommufd`
//! object, so that the guest's memory is pinned and mapped once.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};

use proto::tap::MacAddr;

use crate::env::{PciBus, Place};

/// Id of the object that all devices share.
const IOMMUFD: &str = "vwiommu";

/// All NICs of the pod, in order.
#[derive(Debug)]
pub(crate) struct Nics {
    /// Of `/dev/iommu`, if any NIC is [`Nic::Vfio`].
    pub(crate) iommufd: Option<OwnedFd>,
    /// One for each slot.
    pub(crate) nics: Vec<Nic>,
}

/// One NIC.
#[derive(Debug)]
pub(crate) enum Nic {
    Tap(Tap),
    Vfio(Vfio),
    /// libvirt has written it into the arguments.
    Hostdev,
}

/// A virtual function that is passed through.
#[derive(Debug)]
pub(crate) struct Vfio {
    /// Where on the bus it goes.
    pub(crate) place: Place,
    /// Of its device.
    pub(crate) device: OwnedFd,
}

/// A NIC with the queues of its tap.
#[derive(Debug)]
pub(crate) struct Tap {
    /// The guest's address.
    pub(crate) mac: MacAddr,
    /// What the guest is told of the link.
    pub(crate) mtu: u32,
    /// Where on the bus it goes.
    pub(crate) place: Place,
    /// At least one.
    pub(crate) queues: Vec<OwnedFd>,
    /// Of `/dev/vhost-net`: none, or one for each queue, whose frames the kernel moves then.
    pub(crate) vhost: Vec<OwnedFd>,
}

/// `args` as they were, then what each NIC takes on `bus`.
pub(crate) fn extend(mut args: Vec<OsString>, nics: &Nics, bus: PciBus) -> Vec<OsString> {
    if let Some(iommufd) = &nics.iommufd {
        args.extend(["-object".into(), object(iommufd).into()]);
    }
    for (index, nic) in nics.nics.iter().enumerate() {
        match nic {
            Nic::Tap(tap) => {
                let (netdev, device) = (netdev(index, tap), virtio(index, tap, bus));
                args.extend(["-netdev".into(), netdev.into(), "-device".into(), device.into()]);
            }
            Nic::Vfio(vfio) => args.extend(["-device".into(), passed_through(index, vfio, bus).into()]),
            Nic::Hostdev => {}
        }
    }
    args
}

fn object(iommufd: &OwnedFd) -> String {
    format!(r#"{{"qom-type":"iommufd","id":"{IOMMUFD}","fd":"{}"}}"#, iommufd.as_raw_fd())
}

fn passed_through(index: usize, Vfio { place, device }: &Vfio, bus: PciBus) -> String {
    let (fd, placed) = (device.as_raw_fd(), placed(place, bus));
    format!(r#"{{"driver":"vfio-pci","fd":"{fd}","iommufd":"{IOMMUFD}","id":"vwnet{index}",{placed}}}"#)
}

fn netdev(index: usize, tap: &Tap) -> String {
    let queues = descriptors("fd", &tap.queues);
    let vhost = if tap.vhost.is_empty() {
        "vhost=off".to_owned()
    } else {
        format!("vhost=on,{}", descriptors("vhostfd", &tap.vhost))
    };
    format!("tap,id=vw{index},{queues},{vhost}")
}

/// `key=3` or `keys=3:4`: one queue is another option than several.
fn descriptors(key: &str, fds: &[OwnedFd]) -> String {
    let numbers: Vec<String> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("{key}{plural}={}", numbers.join(":"))
}

fn virtio(index: usize, tap: &Tap, bus: PciBus) -> String {
    // No value needs escaping: numbers, and a MAC address as we print it.
    let Tap { mac, mtu, place, queues, .. } = tap;
    let placed = placed(place, bus);
    let queues = match queues.len() {
        1 => String::new(),
        // An MSI-X vector for each direction of each queue, one for the control queue and one for configuration.
        n => format!(r#","mq":true,"vectors":{}"#, 2 * n + 2),
    };
    format!(
        r#"{{"driver":"virtio-net-pci","netdev":"vw{index}","id":"vwnet{index}","mac":"{mac}","host_mtu":{mtu}{queues},{placed}}}"#
    )
}

/// Where a device goes, as QEMU's properties.
fn placed(Place { slot, boot, acpi_index }: &Place, bus: PciBus) -> String {
    let boot = boot.map(|order| format!(r#","bootindex":{order}"#)).unwrap_or_default();
    let index = acpi_index.map(|index| format!(r#","acpi-index":{index}"#)).unwrap_or_default();
    format!(r#""bus":"{bus}","addr":"{slot}"{boot}{index}"#)
}

// === impl Nics ===

impl Nics {
    /// All descriptors, to be passed on.
    pub(crate) fn descriptors(self) -> Vec<OwnedFd> {
        let of_nic = |nic| match nic {
            Nic::Tap(Tap { queues, vhost, .. }) => queues.into_iter().chain(vhost).collect(),
            Nic::Vfio(Vfio { device, .. }) => vec![device],
            Nic::Hostdev => Vec::new(),
        };
        self.iommufd.into_iter().chain(self.nics.into_iter().flat_map(of_nic)).collect()
    }
}

#[cfg(test)]
mod tests;
