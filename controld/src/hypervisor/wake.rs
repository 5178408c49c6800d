//! A machine that goes on from memory that was saved: libvirt starts its QEMU as at any start, vmwrapper included, and has it read the
//! memory. Then its guest is held, until it is let run without carriers, so that it asks for its addresses anew once it gets them.
//!
//! It has turns of its own: reading a large memory takes minutes, which starts are not to wait for, and saves may be to a file server that is gone,
//! which is not to hold up what goes on from files of this node.

use std::path::Path;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use vmspec::error::{Error, Kind, Result};

use super::calls::QUICK_DEADLINE;
use super::ffi::Connection;
use super::link::Lane;
use super::machines::existing;
use super::start::{set_carrier, with_wrappers_word};
use super::{Hypervisor, StartTurn, meaning};

const WHAT: &str = "restore the machine's memory";

impl Hypervisor {
    /// Waits for the turn to restore a machine; `unwanted` gives it up.
    ///
    /// # Errors
    /// When it is given up, there is no connection, or others take too long.
    pub async fn wake_turn(&self, unwanted: &CancellationToken) -> Result<StartTurn> {
        self.turn_to_start(Lane::Wakes, unwanted).await
    }

    /// Starts a machine that is defined, of which libvirt logs at `log`, from a file with its memory, whose head has the same description, and
    /// holds its guest. `deadline` is for reading the memory. If it is `unwanted` meanwhile, its process is killed.
    ///
    /// # Errors
    /// When it does not start, QEMU does not take the memory, or neither is known; if vmwrapper said why, that is the cause.
    pub async fn wake(
        &self,
        turn: StartTurn,
        id: Uuid,
        (memory, log): (&Path, &Path),
        deadline: Duration,
        unwanted: &CancellationToken,
    ) -> Result<()> {
        let file = memory.to_str().map(str::to_owned).ok_or_else(|| {
            Error::new(Kind::Invalid, format!("`{}` is not UTF-8, which libvirt wants", memory.display()))
        })?;
        let log = log.to_owned();
        let wake = move |connection: &Connection| {
            connection.restore_paused(&file).map_err(|error| with_wrappers_word(error, &log))
        };
        self.come_up(turn, id, (WHAT, self.shared.start_deadline + deadline), unwanted, wake).await
    }

    /// Lets a guest run that was restored, without carriers of these NICs, each by its place among vmwrapper's; again is fine.
    ///
    /// # Errors
    /// When it is not on, or libvirt does not do it.
    pub async fn run_woken(&self, id: Uuid, nics: Vec<usize>) -> Result<()> {
        let run = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            nics.iter().try_for_each(|nic| set_carrier(&domain, *nic, false))?;
            if meaning::state_of(domain.state()?).pause.is_some() { domain.resume() } else { Ok(()) }
        };
        self.call_in(Lane::Presses, "let the guest run", QUICK_DEADLINE, run).await
    }

    /// Gives a guest the carriers of these NICs, each by its place among vmwrapper's; again is fine.
    ///
    /// # Errors
    /// When it is not on, or libvirt does not do it.
    pub async fn give_carriers(&self, id: Uuid, nics: Vec<usize>) -> Result<()> {
        let give = move |connection: &Connection| {
            let domain = existing(connection, id)?;
            nics.iter().try_for_each(|nic| set_carrier(&domain, *nic, true))
        };
        self.call_in(Lane::Presses, "give the guest's NICs their carriers", QUICK_DEADLINE, give).await
    }
}
