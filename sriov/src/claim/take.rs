//! The way of a VF to a guest.
//!
//! Called by `tapmanager` when a pod with a VF is attached.

use std::collections::BTreeSet;

use super::note::{Claim, Notes, Saved, Step, Version};
use super::problem::{ClaimError, failed};
use super::world::{Devices, Netdev, Place, World};
use crate::address::PciAddr;
use crate::bind::VFIO_PCI;
use crate::device::Seen;
use crate::policy::{self, Arrival};
use crate::settings::{self, SettingsError, VfSettings};

/// A VF that a guest shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The VF.
    pub vf: PciAddr,
    /// How it comes.
    pub arrival: Arrival,
    /// Whose it will be, in the caller's words.
    pub owner: String,
    /// This boot (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// All other VFs that the same guest gets: they may share an IOMMU group with this one.
    pub together: BTreeSet<PciAddr>,
    /// Settings that are asked for.
    pub asked: VfSettings,
}

/// Looks whether the VF may be taken, and at all that giving back needs. Changes nothing, and notes nothing: the first
/// [`advance`] does, before which the claim is in memory alone.
///
/// The caller works on no other claim of this VF until it is noted.
///
/// # Errors
/// See [`ClaimError`].
pub fn begin<W: World, N: Notes>(request: Request, world: &mut W, notes: &mut N) -> Result<Claim, ClaimError> {
    let Request { vf, arrival, owner, boot, mut together, asked } = request;
    let earlier = notes.noted(vf).map_err(|cause| ClaimError::Note { vf, cause })?;
    let seen = world.look(vf).map_err(failed("look at", vf))?.ok_or(ClaimError::Gone { vf })?;
    let over = |claim: &Claim| match claim.step {
        // It changed nothing yet, so it is its owner's to begin anew.
        Step::Observed if claim.owner == owner => true,
        Step::Restored => true,
        // That VF is gone: VFs are made anew by each boot, and when `sriov_numvfs` is written.
        _ => claim.boot != boot || !claim.is_of(&seen),
    };
    if let Some(claim) = earlier.filter(|claim| !over(claim)) {
        return Err(ClaimError::Claimed { vf, owner: claim.owner });
    }
    let (pf, number) = policy::admit(&seen, &arrival).map_err(|cause| ClaimError::Refused { vf, cause })?;
    let Seen { driver: Some(driver), driver_override, incarnation, .. } = seen else {
        return Err(ClaimError::Lost { vf, driver: VFIO_PCI.to_owned() });
    };
    let netdev = netdev(vf, &driver, &arrival, world)?;
    world.expect_driver(VFIO_PCI).map_err(failed("find a driver for", vf))?;
    together.insert(vf);
    let group = admit_group(vf, &together, world)?;
    // A machine may have it without a claim, by a device plugin's node: the card would take other settings under it.
    if driver == VFIO_PCI && world.in_use(vf).map_err(failed("find out who has", vf))? {
        return Err(ClaimError::InUse { vf });
    }
    let settings = world.read(pf, number).map_err(|cause| SettingsError::Read { pf, number, cause });
    let settings = settings.map_err(|cause| ClaimError::Settings { vf, cause })?;
    let mut wanted = policy::guarded(asked);
    // The guest goes by the address that the CNI plugin gave.
    if let Some(netdev) = &netdev {
        wanted.asked.mac.get_or_insert(netdev.mac);
    }
    Ok(Claim {
        version: Version,
        step: Step::Observed,
        boot,
        owner,
        vf,
        pf,
        number,
        incarnation,
        arrival,
        together,
        group,
        driver,
        driver_override,
        wanted,
        saved: Some(Saved { settings, netdev }),
        unsupported: Vec::new(),
        reset: false,
        outcome: None,
    })
}

/// Takes the claim one step further, at most to [`Step::InUse`], and returns the step that it is at. The guest may have
/// the VF from then on, and not before.
///
/// # Errors
/// See [`ClaimError`]. The claim is where it was then: call this again, or [`super::release`].
pub fn advance<W: World, N: Notes>(claim: &mut Claim, world: &mut W, notes: &mut N) -> Result<Step, ClaimError> {
    claim.expect_whole()?;
    let mut next = claim.clone();
    next.step = match claim.step {
        // Of an earlier release, which noted this step without it.
        Step::Observed if claim.saved.is_none() => return Err(ClaimError::Broken { vf: claim.vf, step: claim.step }),
        Step::Observed => Step::Saved,
        Step::Saved => set_up(&mut next, world)?,
        Step::Taken => bind(claim, world)?,
        Step::Bound | Step::InUse => return hand_out(claim, world, notes),
        step @ (Step::Rebinding | Step::Restored) => return Err(ClaimError::Ended { vf: claim.vf, step }),
    };
    notes.flush(&next).map_err(|cause| ClaimError::Note { vf: next.vf, cause })?;
    *claim = next;
    Ok(claim.step)
}

/// Succeeds if the claimed VF is where it was left for its guest, and not another one that came to its address.
///
/// # Errors
/// See [`ClaimError`].
pub fn expect_bound<D: Devices>(claim: &Claim, devices: &mut D) -> Result<(), ClaimError> {
    bound(claim, devices).map(drop)
}

/// Takes a claim from [`Step::Bound`] to [`Step::InUse`]; one that is there is looked at. Needs nothing but the devices.
///
/// # Errors
/// As [`advance`]; also at an earlier step.
pub fn hand_out<D: Devices, N: Notes>(claim: &mut Claim, devices: &mut D, notes: &mut N) -> Result<Step, ClaimError> {
    claim.expect_whole()?;
    match claim.step {
        Step::Bound => {
            let next = Claim { step: bound(claim, devices)?, ..claim.clone() };
            notes.flush(&next).map_err(|cause| ClaimError::Note { vf: next.vf, cause })?;
            *claim = next;
        }
        Step::InUse => drop(bound(claim, devices)?),
        Step::Observed | Step::Saved | Step::Taken => {
            return Err(ClaimError::Lost { vf: claim.vf, driver: VFIO_PCI.to_owned() });
        }
        step @ (Step::Rebinding | Step::Restored) => return Err(ClaimError::Ended { vf: claim.vf, step }),
    }
    Ok(claim.step)
}

/// Takes the claim to [`Step::Bound`].
///
/// # Errors
/// As [`advance`].
pub fn take<W: World, N: Notes>(claim: &mut Claim, world: &mut W, notes: &mut N) -> Result<(), ClaimError> {
    while claim.step < Step::Bound {
        advance(claim, world, notes)?;
    }
    Ok(())
}

/// Has the PF lay down what the guest shall have. Before vfio-pci has the VF, as some PFs tell its address to the network
/// when it is bound.
fn set_up<W: World>(next: &mut Claim, world: &mut W) -> Result<Step, ClaimError> {
    let vf = next.vf;
    let saved = next.saved.as_ref().ok_or(ClaimError::Broken { vf, step: next.step })?;
    ours(next, world)?;
    let applied = settings::apply_to(world, next.pf, next.number, &saved.settings, &next.wanted);
    next.unsupported = applied.map_err(|cause| ClaimError::Settings { vf, cause })?;
    Ok(Step::Taken)
}

fn bind<W: World>(claim: &Claim, world: &mut W) -> Result<Step, ClaimError> {
    let vf = claim.vf;
    let seen = ours(claim, world)?;
    if seen.driver.as_deref() == Some(VFIO_PCI) {
        return Ok(Step::Bound);
    }
    match seen.driver {
        _ if claim.arrival == Arrival::Vfio => {
            return Err(ClaimError::Lost { vf, driver: claim.driver.clone() });
        }
        Some(driver) if driver != claim.driver => return Err(ClaimError::Foreign { vf, driver }),
        _ => {}
    }
    // Others may have come into the group since.
    admit_group(vf, &claim.together, world)?;
    world.set_driver_override(vf, Some(VFIO_PCI)).map_err(failed("choose the driver of", vf))?;
    world.unbind(vf).map_err(failed("unbind", vf))?;
    world.probe(vf, VFIO_PCI).map_err(failed("bind vfio-pci to", vf))?;
    Ok(Step::Bound)
}

fn bound<D: Devices>(claim: &Claim, world: &mut D) -> Result<Step, ClaimError> {
    let vf = claim.vf;
    match ours(claim, world)?.driver {
        Some(driver) if driver == VFIO_PCI => Ok(Step::InUse),
        Some(driver) => Err(ClaimError::Foreign { vf, driver }),
        None => Err(ClaimError::Lost { vf, driver: VFIO_PCI.to_owned() }),
    }
}

/// The VF, if it is still the one that was claimed.
fn ours<D: Devices>(claim: &Claim, world: &mut D) -> Result<Seen, ClaimError> {
    let vf = claim.vf;
    let seen = world.look(vf).map_err(failed("look at", vf))?;
    seen.filter(|seen| claim.is_of(seen)).ok_or(ClaimError::Gone { vf })
}

/// The netdev that the VF came with.
fn netdev<W: World>(vf: PciAddr, driver: &str, arrival: &Arrival, world: &mut W) -> Result<Option<Netdev>, ClaimError> {
    let Arrival::Netdev { netns, name } = arrival else { return Ok(None) };
    let found = world.find(vf, Place::Netns(netns)).map_err(failed("find the netdev of", vf))?;
    let admitted = policy::admit_netdev(driver, name, found.as_ref().map(|netdev| netdev.name.as_str()));
    admitted.map_err(|cause| ClaimError::Refused { vf, cause })?;
    Ok(found)
}

fn admit_group<W: World>(vf: PciAddr, together: &BTreeSet<PciAddr>, world: &mut W) -> Result<u32, ClaimError> {
    let group = world.group(vf).map_err(failed("find the IOMMU group of", vf))?;
    group.admit(together).map_err(|cause| ClaimError::Shared { vf, cause })?;
    Ok(group.number)
}
