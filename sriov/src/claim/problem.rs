//! Why a claim does not go on.
//!
//! Called by [`super::take`] and [`super::give`], which make these errors, and by `tapmanager`, which tells them.

use std::time::Duration;

use super::note::{Claim, Step};
use super::world::Cause;
use crate::address::PciAddr;
use crate::group::SharedGroup;
use crate::policy::Refusal;
use crate::settings::SettingsError;

/// Why a claim does not go on. All calls may be repeated when the cause is gone.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// It is not for guests.
    #[error("`{vf}` is not handed out")]
    Refused {
        /// The device.
        vf: PciAddr,
        /// Why.
        #[source]
        cause: Refusal,
    },
    /// Its group is not for one guest.
    #[error("`{vf}` is not handed out")]
    Shared {
        /// The VF.
        vf: PciAddr,
        /// Why.
        #[source]
        cause: SharedGroup,
    },
    /// Somebody has it.
    #[error("`{vf}` is claimed by `{owner}`; release that claim first")]
    Claimed {
        /// The VF.
        vf: PciAddr,
        /// Whose it is.
        owner: String,
    },
    /// There is no such VF, or not any more.
    #[error("there is no `{vf}`; its PF has no VFs any more (`sriov_numvfs`) or other ones, or the address is wrong")]
    Gone {
        /// The VF.
        vf: PciAddr,
    },
    /// Something else has bound it meanwhile.
    #[error(
        "`{vf}` has the driver `{driver}`, which is not our doing; unbind it, and see what bound it (driverctl, udev)"
    )]
    Foreign {
        /// The VF.
        vf: PciAddr,
        /// The driver.
        driver: String,
    },
    /// Its machine runs.
    #[error("`{vf}` is open in a process; end the machine that has it first")]
    InUse {
        /// The VF.
        vf: PciAddr,
    },
    /// It has lost its driver meanwhile.
    #[error("`{vf}` has not the driver `{driver}` any more; release the claim and see what unbound it")]
    Lost {
        /// The VF.
        vf: PciAddr,
        /// The driver that it had.
        driver: String,
    },
    /// A step failed.
    #[error("failed to {doing} `{vf}`")]
    World {
        /// What was tried.
        doing: &'static str,
        /// The VF.
        vf: PciAddr,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// The settings.
    #[error("failed to set up `{vf}` at its PF")]
    Settings {
        /// The VF.
        vf: PciAddr,
        /// Why.
        #[source]
        cause: SettingsError,
    },
    /// The netdev does not come.
    #[error(
        "driver `{driver}` has `{vf}`, which has no netdev after {} s; the kernel's log may say why",
        limit.as_secs_f32()
    )]
    NoNetdev {
        /// The VF.
        vf: PciAddr,
        /// Its driver.
        driver: String,
        /// How long was waited.
        limit: Duration,
    },
    /// It is not as it was.
    #[error("the {what} of `{vf}` is `{found}` after it was put back to `{wanted}`; see what else changes it")]
    Differs {
        /// The VF.
        vf: PciAddr,
        /// What.
        what: &'static str,
        /// What it is.
        found: String,
        /// What it was.
        wanted: String,
    },
    /// It was not noted, so nothing was done.
    #[error("failed to note the claim of `{vf}`")]
    Note {
        /// The VF.
        vf: PciAddr,
        /// Why.
        #[source]
        cause: Cause,
    },
    /// A step without what it is noted for.
    #[error("the note of `{vf}` is at `{step:?}` and does not say what the VF was like; put it back by hand")]
    Broken {
        /// The VF.
        vf: PciAddr,
        /// How far it is.
        step: Step,
    },
    /// It is on its way back.
    #[error("the claim of `{vf}` is at `{step:?}` and does not go forward; release it and claim the VF anew")]
    Ended {
        /// The VF.
        vf: PciAddr,
        /// How far it is.
        step: Step,
    },
}

impl Claim {
    /// Whether the note can be gone by.
    pub(super) const fn expect_whole(&self) -> Result<(), ClaimError> {
        match (self.step, &self.saved) {
            (Step::Observed | Step::Restored, _) | (_, Some(_)) => Ok(()),
            (step, None) => Err(ClaimError::Broken { vf: self.vf, step }),
        }
    }
}

/// Says what was tried with which VF when it fails.
pub(super) fn failed(doing: &'static str, vf: PciAddr) -> impl Fn(Cause) -> ClaimError {
    move |cause| ClaimError::World { doing, vf, cause }
}
