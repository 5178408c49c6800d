//! QEMU's arguments with the pod's NICs appended. Pure.
//!
//! The `-device` is JSON: QEMU makes devices of the `key=value` form before those in JSON, which libvirt writes, and
//! would find slots taken or buses missing. Each NIC has an explicit slot, for the same reason.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};

use proto::tap::MacAddr;

use crate::env::{PciBus, PciSlot};

/// One NIC with the queues of its tap.
#[derive(Debug)]
pub(crate) struct Nic {
    /// The guest's address.
    pub(crate) mac: MacAddr,
    /// What the guest is told of the link.
    pub(crate) mtu: u32,
    /// Where on the bus it goes.
    pub(crate) slot: PciSlot,
    /// At least one.
    pub(crate) queues: Vec<OwnedFd>,
    /// Of `/dev/vhost-net`: none, or one for each queue, whose frames the kernel moves then.
    pub(crate) vhost: Vec<OwnedFd>,
}

/// `args` as they were, then a `-netdev` and a `-device` on `bus` for each NIC.
pub(crate) fn extend(mut args: Vec<OsString>, nics: &[Nic], bus: PciBus) -> Vec<OsString> {
    for (index, nic) in nics.iter().enumerate() {
        args.extend(["-netdev".into(), netdev(index, nic).into(), "-device".into(), device(index, nic, bus).into()]);
    }
    args
}

fn netdev(index: usize, nic: &Nic) -> String {
    let queues = descriptors("fd", &nic.queues);
    let vhost = if nic.vhost.is_empty() {
        "vhost=off".to_owned()
    } else {
        format!("vhost=on,{}", descriptors("vhostfd", &nic.vhost))
    };
    format!("tap,id=vw{index},{queues},{vhost}")
}

/// `key=3` or `keys=3:4`: one queue is another option than several.
fn descriptors(key: &str, fds: &[OwnedFd]) -> String {
    let numbers: Vec<String> = fds.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("{key}{plural}={}", numbers.join(":"))
}

fn device(index: usize, nic: &Nic, bus: PciBus) -> String {
    // No value needs escaping: numbers, and a MAC address as we print it.
    let Nic { mac, mtu, slot, queues, .. } = nic;
    let queues = match queues.len() {
        1 => String::new(),
        // An MSI-X vector for each direction of each queue, one for the control queue and one for configuration.
        n => format!(r#","mq":true,"vectors":{}"#, 2 * n + 2),
    };
    format!(
        r#"{{"driver":"virtio-net-pci","netdev":"vw{index}","id":"vwnet{index}","mac":"{mac}","host_mtu":{mtu}{queues},"bus":"{bus}","addr":"{slot}"}}"#
    )
}

#[cfg(test)]
mod tests;
