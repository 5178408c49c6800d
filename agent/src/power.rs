//! The guest's power-off, once the command is over that its machine was for.

use std::io::{Write as _, stderr};
use std::process::{Child, Command};

use nix::sys::reboot::{RebootMode, reboot};
use nix::unistd::sync;

use crate::process::PATH;

/// What ends the machine.
#[derive(Debug)]
pub(crate) enum Power {
    /// It runs.
    On,
    /// The guest's own program for it runs.
    GoingOff(Option<Child>),
    /// For tests: the agent ends in place of the guest.
    Agent { is_off: bool },
}

impl Power {
    /// Asks the guest to power off, which ends the agent; again is fine.
    pub(crate) fn off(&mut self) {
        match self {
            Self::On => {
                let asked = Command::new("poweroff").env("PATH", PATH).spawn();
                let at_once = asked.is_err();
                *self = Self::GoingOff(asked.ok());
                if at_once {
                    pull_the_plug();
                }
            }
            Self::GoingOff(_) => {}
            Self::Agent { is_off } => *is_off = true,
        }
    }

    /// Looks whether the guest has refused.
    pub(crate) fn pump(&mut self) {
        let Self::GoingOff(asked) = self else { return };
        let ended = asked.as_mut().and_then(|child| child.try_wait().ok().flatten());
        if let Some(status) = ended {
            *asked = None;
            if !status.success() {
                pull_the_plug();
            }
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Agent { is_off: true })
    }
}

/// For a guest that has no program for it.
fn pull_the_plug() {
    sync();
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    // The machine stays until it is stopped from outside.
    let _ = writeln!(stderr(), "virtlet-agent: the guest does not power off: {error}");
}
