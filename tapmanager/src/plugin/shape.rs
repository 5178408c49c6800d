//! Gives a VF's netdev its address and MTU, against a PF that has a say in it.
//!
//! Called by [`super::add`] before the PF's settings are laid down, and by [`super::give_back`] before they are put back.
//! A PF that has laid down an address lets the VF's driver set no other one, and some not even that one: igb answers a
//! driver that was loaded before with the address of its start. So the PF's word is taken back first, and the caller
//! has it laid down afterwards.

use sriov::Mac;
use sriov::claim::{Netdev, Place};
use sriov::settings::{Attribute, ControlError};

use super::failure::{Code, Failure};
use super::record::Allocation;
use super::wiring::Node;

/// Gives `netdev`, which is at `place`, this address and MTU; fine if it has them.
///
/// # Errors
/// If the kernel refuses.
pub(super) fn shape<N: Node>(
    allocation: &Allocation,
    place: Place<'_>,
    netdev: &Netdev,
    (mac, mtu): (Mac, u32),
    node: &mut N,
) -> Result<(), Failure> {
    if (mac, mtu) == (netdev.mac, netdev.mtu) {
        return Ok(());
    }
    let Allocation { vf, pf, number, .. } = allocation;
    if mac != netdev.mac {
        match node.write(*pf, *number, Attribute::Mac(Mac::UNSET)) {
            // It lays none down.
            Ok(()) | Err(ControlError::Unsupported) => {}
            Err(cause) => {
                let what = format!("failed to take back the address that PF `{pf}` laid down for VF {number}");
                return Err(Failure::because(Code::Settings, what)(cause));
            }
        }
    }
    node.shape(place, netdev.index, mac, mtu).map_err(Failure::kernel(format!(
        "failed to set address `{mac}` and MTU {mtu} of `{}`, the netdev of `{vf}`",
        netdev.name
    )))
}
