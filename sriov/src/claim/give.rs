//! The way of a VF back.
//!
//! Called by `tapmanager` after the guest's end and before the CNI plugins' DEL, and when a claim failed.

use std::time::Duration;

use super::note::{Claim, End, Notes, Outcome, Saved, Step};
use super::problem::{ClaimError, failed};
use super::world::{Netdev, Place, World};
use crate::bind::VFIO_PCI;
use crate::device::Seen;
use crate::mac::Mac;
use crate::policy::Arrival;
use crate::reset::Reset;
use crate::settings::{self, VfSettings};

const VANISHED: Outcome = Outcome { end: End::Vanished, unreset: false };

/// How a guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// Its process closed the device by itself.
    Ended,
    /// It was killed, or nobody knows: the VF is reset before anything else uses it.
    Died,
}

/// How a claim ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending<'a> {
    /// This boot: VFs of an earlier one are gone.
    pub boot: &'a str,
    /// The guest's end. It must have ended, as far as the kernel can tell.
    pub guest: Guest,
    /// How long the VF's driver has for its netdev.
    pub netdev_within: Duration,
}

/// Gives the VF back as it was, from any step.
///
/// # Errors
/// See [`ClaimError`]. Call it again: what is done is not done twice.
pub fn release<W: World, N: Notes>(
    claim: &mut Claim,
    world: &mut W,
    notes: &mut N,
    ending: Ending<'_>,
) -> Result<Outcome, ClaimError> {
    if let (Step::Restored, Some(outcome)) = (claim.step, claim.outcome) {
        return Ok(outcome);
    }
    claim.expect_whole()?;
    let Some(saved) = claim.saved.clone().filter(|_| claim.step != Step::Observed) else {
        return finish(claim, notes, Outcome { end: End::Untouched, unreset: false });
    };
    expect_closed(claim, world, ending.boot)?;
    let mut next = claim.clone();
    // No guest had it before.
    next.reset |= claim.step == Step::InUse && ending.guest == Guest::Died;
    next.step = Step::Rebinding;
    // Even if it is noted as far as we know: a note of the end that failed may be on the disk.
    note(claim, notes, next)?;
    let outcome = match still_there(claim, world, ending.boot)? {
        None => VANISHED,
        Some(seen) => match put_back(claim, &saved, &seen, world, ending.netdev_within) {
            Ok(outcome) => outcome,
            // It went meanwhile, and that is why.
            Err(_) if matches!(still_there(claim, world, ending.boot), Ok(None)) => VANISHED,
            Err(error) => return Err(error),
        },
    };
    finish(claim, notes, outcome)
}

/// A machine that runs keeps its VF: a reset would hit it, and unbinding would wait in the kernel for its end.
fn expect_closed<W: World>(claim: &Claim, world: &mut W, boot: &str) -> Result<(), ClaimError> {
    let vf = claim.vf;
    let bound = still_there(claim, world, boot)?.is_some_and(|seen| seen.driver.as_deref() == Some(VFIO_PCI));
    if bound && world.in_use(vf).map_err(failed("find out who has", vf))? {
        return Err(ClaimError::InUse { vf });
    }
    Ok(())
}

/// The VF that was claimed; `None` if it is gone.
fn still_there<W: World>(claim: &Claim, world: &mut W, boot: &str) -> Result<Option<Seen>, ClaimError> {
    if claim.boot != boot {
        return Ok(None);
    }
    let seen = world.look(claim.vf).map_err(failed("look at", claim.vf))?;
    Ok(seen.filter(|seen| claim.is_of(seen)))
}

fn put_back<W: World>(
    claim: &Claim,
    saved: &Saved,
    seen: &Seen,
    world: &mut W,
    netdev_within: Duration,
) -> Result<Outcome, ClaimError> {
    let vf = claim.vf;
    let unreset = free(claim, seen, world)?;
    let restore = |world: &mut W, settings: &VfSettings| {
        let restored = settings::restore(world, claim.pf, claim.number, settings);
        restored.map_err(|cause| ClaimError::Settings { vf, cause })
    };
    // Before its driver has it, which asks the PF for its address.
    restore(world, &saved.settings)?;
    let mut chosen = seen.driver_override.as_ref();
    if seen.driver.as_ref() != Some(&claim.driver) {
        // By its name even if nothing was set before: without an override no driver gets a VF whose PF has
        // `sriov_drivers_autoprobe` 0, and another one may match.
        world.set_driver_override(vf, Some(&claim.driver)).map_err(failed("choose the driver of", vf))?;
        world.probe(vf, &claim.driver).map_err(failed("give its driver back to", vf))?;
        chosen = Some(&claim.driver);
    }
    if chosen != claim.driver_override.as_ref() {
        let restored = world.set_driver_override(vf, claim.driver_override.as_deref());
        restored.map_err(failed("put back the driver override of", vf))?;
    }
    let end = match (&saved.netdev, &claim.arrival) {
        (Some(netdev), Arrival::Netdev { netns, .. }) => put_back_netdev(claim, netdev, netns, world, netdev_within)?,
        _ => End::AsBefore,
    };
    // Its driver may have changed some. A VF of which its PF sets no address may have given itself one, as it does.
    let set = saved.settings.mac.filter(|mac| *mac != Mac::UNSET);
    restore(world, &VfSettings { mac: set, ..saved.settings.clone() })?;
    Ok(Outcome { end, unreset })
}

/// Resets the VF if it has to be, and takes it from vfio-pci if it came from another driver. Returns whether it should have
/// been reset and was not.
fn free<W: World>(claim: &Claim, seen: &Seen, world: &mut W) -> Result<bool, ClaimError> {
    let vf = claim.vf;
    let mut unreset = false;
    match seen.driver.as_deref() {
        Some(VFIO_PCI) => {
            if claim.reset {
                unreset = world.reset(vf).map_err(failed("reset", vf))? == Reset::NoMethod;
            }
            if claim.driver != VFIO_PCI {
                world.unbind(vf).map_err(failed("unbind", vf))?;
            }
        }
        Some(driver) if driver != claim.driver => {
            return Err(ClaimError::Foreign { vf, driver: driver.to_owned() });
        }
        _ => {}
    }
    Ok(unreset)
}

fn put_back_netdev<W: World>(
    claim: &Claim,
    saved: &Netdev,
    netns: &str,
    world: &mut W,
    limit: Duration,
) -> Result<End, ClaimError> {
    let vf = claim.vf;
    let finding = failed("find the netdev of", vf);
    let shaping = failed("put back address and MTU of", vf);
    let pod = Place::Netns(netns);
    let alive = world.netns_exists(netns).map_err(failed("find the namespace of", vf))?;
    let in_pod = if alive { world.find(vf, pod).map_err(&finding)? } else { None };
    if let Some(found) = &in_pod {
        if !found.is_shaped_as(saved) {
            world.shape(pod, found.index, saved.mac, saved.mtu).map_err(&shaping)?;
        }
    } else {
        let found = match world.find(vf, Place::Host).map_err(&finding)? {
            Some(found) => found,
            None => world.await_netdev(vf, limit).map_err(&finding)?.ok_or_else(|| ClaimError::NoNetdev {
                vf,
                driver: claim.driver.clone(),
                limit,
            })?,
        };
        if !found.is_shaped_as(saved) {
            world.shape(Place::Host, found.index, saved.mac, saved.mtu).map_err(&shaping)?;
        }
        if alive {
            world.move_into(found.index, netns, &saved.name).map_err(failed("move into its pod the netdev of", vf))?;
        }
    }
    let place = if alive { pod } else { Place::Host };
    let lost = || ClaimError::NoNetdev { vf, driver: claim.driver.clone(), limit: Duration::ZERO };
    let mut found = world.find(vf, place).map_err(&finding)?.ok_or_else(lost)?;
    if alive && !found.is_dressed_as(saved) {
        world.dress(netns, found.index, saved).map_err(failed("put back name and addresses of", vf))?;
        found = world.find(vf, place).map_err(&finding)?.ok_or_else(lost)?;
    }
    compare(claim, saved, &found, alive)?;
    Ok(if alive { End::AsBefore } else { End::OnHost })
}

/// What the caller calls `extra` is its own to compare.
fn compare(claim: &Claim, saved: &Netdev, found: &Netdev, in_pod: bool) -> Result<(), ClaimError> {
    let differs = |what, found: String, wanted: String| {
        if found == wanted { Ok(()) } else { Err(ClaimError::Differs { vf: claim.vf, what, found, wanted }) }
    };
    differs("address", found.mac.to_string(), saved.mac.to_string())?;
    differs("MTU", found.mtu.to_string(), saved.mtu.to_string())?;
    if in_pod {
        let state = |netdev: &Netdev| if netdev.up { "up" } else { "down" }.to_owned();
        differs("name", found.name.clone(), saved.name.clone())?;
        differs("state", state(found), state(saved))?;
    }
    Ok(())
}

fn finish<N: Notes>(claim: &mut Claim, notes: &mut N, outcome: Outcome) -> Result<Outcome, ClaimError> {
    let next = Claim { step: Step::Restored, outcome: Some(outcome), ..claim.clone() };
    note(claim, notes, next)?;
    Ok(outcome)
}

fn note<N: Notes>(claim: &mut Claim, notes: &mut N, next: Claim) -> Result<(), ClaimError> {
    notes.flush(&next).map_err(|cause| ClaimError::Note { vf: next.vf, cause })?;
    *claim = next;
    Ok(())
}

// === impl Netdev ===

impl Netdev {
    fn is_shaped_as(&self, saved: &Self) -> bool {
        (self.mac, self.mtu) == (saved.mac, saved.mtu)
    }

    fn is_dressed_as(&self, saved: &Self) -> bool {
        (&self.name, self.up, &self.extra) == (&saved.name, saved.up, &saved.extra)
    }
}
