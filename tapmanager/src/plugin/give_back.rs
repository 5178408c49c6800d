//! Puts a VF back as it was before ADD.
//!
//! Called by [`super::add`] to undo, by [`super::select`] for containers that are gone, and by [`super`] at DEL and GC.
//! Everything is looked at again and changed where it is not yet as it was, so it may be repeated from wherever it or
//! an ADD was cut off. The caller holds the locks of VF and PF, and removes the allocation when this has succeeded.

use sriov::PciAddr;
use sriov::claim::{Netdev, Place};
use sriov::settings;

use super::Context;
use super::failure::{Code, Failure};
use super::record::Allocation;
use super::shape::shape;
use super::wiring::Node;

/// Whether there is nothing to put back: VFs are made anew by each boot, and when `sriov_numvfs` is written.
pub(super) fn is_void(context: &Context, allocation: &Allocation) -> bool {
    if allocation.boot != context.boot {
        return true;
    }
    match context.sysfs.look(allocation.vf) {
        Ok(Some(seen)) => seen.incarnation != allocation.incarnation,
        Ok(None) => true,
        // It may be there.
        Err(_) => false,
    }
}

/// Whether a process has a VF of vfio-pci open.
pub(super) fn is_open(context: &Context, vf: PciAddr) -> Result<bool, Failure> {
    let failed = Failure::because(Code::Kernel, format!("failed to find out whether a process has `{vf}`"));
    context.sysfs.in_use(vf).map_err(failed)
}

/// Puts it back.
///
/// # Errors
/// If something of it is not as it was. What was put back before stays; the call may be repeated.
pub(super) fn give_back<N: Node>(context: &Context, allocation: &Allocation, node: &mut N) -> Result<(), Failure> {
    let Allocation { vf, pf, number, saved, .. } = allocation;
    if is_void(context, allocation) {
        return Ok(());
    }
    let netdev = match &saved.netdev {
        None if is_open(context, *vf)? => {
            let text = format!("VF {number} of PF `{pf}` (`{vf}`) is open in a process; end the VM that has it");
            return Err(Failure::new(Code::TryAgain, text));
        }
        None => None,
        Some(netdev) => Some((netdev, take_out(context, allocation, netdev, node)?)),
    };
    if let Some((was, is)) = &netdev {
        shape(allocation, Place::Host, is, (was.mac, was.mtu), node)?;
    }
    settings::restore(node, *pf, *number, &saved.settings)
        .map_err(Failure::because(Code::Settings, format!("failed to put back what PF `{pf}` had for VF {number}")))?;
    let Some((was, is)) = netdev else { return Ok(()) };
    let failed =
        |what: &str| Failure::kernel(format!("failed to put back {what} of `{}`, the netdev of `{vf}`", was.name));
    let is = find(allocation, Place::Host, node)?.unwrap_or(is);
    if (&is.name, is.up) != (&was.name, was.up) {
        node.settle(is.index, &was.name, was.up).map_err(failed("the name"))?;
    }
    Ok(())
}

/// The VF's netdev, in the host's namespace from now on.
fn take_out<N: Node>(
    context: &Context,
    allocation: &Allocation,
    was: &Netdev,
    node: &mut N,
) -> Result<Netdev, Failure> {
    let Allocation { vf, driver, owner, .. } = allocation;
    let has = context.sysfs.driver(*vf).map_err(Failure::because(Code::Kernel, format!("failed to look at `{vf}`")))?;
    if has.as_ref() != Some(driver) {
        let has = has.unwrap_or_else(|| "none".to_owned());
        return Err(Failure::new(
            Code::Kernel,
            format!(
                "`{vf}` has the driver `{has}` and had `{driver}`, so there is no netdev to put back; \
                 whoever bound it has to let go first"
            ),
        ));
    }
    let alive = node.netns_exists(&owner.netns);
    let alive = alive.map_err(Failure::kernel(format!("failed to look for the namespace `{}`", owner.netns)))?;
    if alive && let Some(inside) = find(allocation, Place::Netns(&owner.netns), node)? {
        let failed = format!(
            "failed to move `{}` back as `{}`; if the host has a link of that name, rename it",
            inside.name, was.name
        );
        node.take_out(&owner.netns, inside.index, &was.name).map_err(Failure::kernel(failed))?;
    }
    // The kernel puts a netdev there whose namespace went.
    find(allocation, Place::Host, node)?.ok_or_else(|| {
        Failure::new(
            Code::Kernel,
            format!(
                "the netdev of `{vf}` is neither in the container's namespace nor in the host's; \
                 move it into the host's (`ip link set {} netns 1`)",
                owner.ifname
            ),
        )
    })
}

fn find<N: Node>(allocation: &Allocation, place: Place<'_>, node: &mut N) -> Result<Option<Netdev>, Failure> {
    node.find(allocation.vf, place)
        .map_err(Failure::kernel(format!("failed to find the netdev of `{}`", allocation.vf)))
}
