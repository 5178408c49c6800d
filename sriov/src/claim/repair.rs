//! What is to be done about a claim that a restart finds noted.
//!
//! Called by `tapmanager` at its start and by `tapmanager sriov repair`. Changes nothing.

use super::note::{Claim, Step};
use super::problem::{ClaimError, failed};
use super::world::Devices;
use crate::bind::VFIO_PCI;

/// What is known besides the note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now<'a> {
    /// This boot.
    pub boot: &'a str,
    /// Whether the claim's owner is there. Who does not know says yes: a VF is not taken from a guest that may run.
    pub owner_lives: bool,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Nothing. The note may go.
    Forget,
    /// Nothing: the VF is its owner's, and the note stays. [`super::advance`] goes on where it was.
    Adopt,
    /// [`super::release`].
    GiveBack(Why),
}

/// Why a VF is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It was not yet ready for the guest.
    Unfinished,
    /// That had begun.
    Begun,
    /// Its owner is gone.
    OwnerGone,
    /// It is gone, or another one is at its address.
    Vanished,
    /// vfio-pci has it no more.
    Unbound,
}

/// Decides from the note and a look at the VF.
///
/// # Errors
/// If it cannot be looked at, or the note is broken.
pub fn repair<D: Devices>(claim: &Claim, world: &mut D, now: Now<'_>) -> Result<Repair, ClaimError> {
    claim.expect_whole()?;
    match claim.step {
        Step::Observed | Step::Restored => return Ok(Repair::Forget),
        // VFs are made anew by each boot, with settings of their own.
        _ if claim.boot != now.boot => return Ok(Repair::Forget),
        Step::Saved | Step::Taken => return Ok(Repair::GiveBack(Why::Unfinished)),
        Step::Rebinding => return Ok(Repair::GiveBack(Why::Begun)),
        Step::Bound | Step::InUse => {}
    }
    if !now.owner_lives {
        return Ok(Repair::GiveBack(Why::OwnerGone));
    }
    let seen = world.look(claim.vf).map_err(failed("look at", claim.vf))?;
    Ok(match seen.filter(|seen| claim.is_of(seen)) {
        None => Repair::GiveBack(Why::Vanished),
        Some(seen) if seen.driver.as_deref() == Some(VFIO_PCI) => Repair::Adopt,
        Some(_) => Repair::GiveBack(Why::Unbound),
    })
}
