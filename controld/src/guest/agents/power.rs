//! Asks a guest to power off or to reboot, by whichever agent answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::Chain;
use proto::agent::{Message, Start};
use tokio::time::{Instant, timeout};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::output::{self, Room};
use super::{Agents, Machine};

/// How long `poweroff` or `reboot` may run in the guest, where some wait for services.
const DEADLINE: Duration = Duration::from_secs(60);

impl Agents {
    /// Asks until an agent has heard it, which is enough. It is fine if none does: this is beside the power button, for guests that
    /// do not heed it.
    pub async fn power_off(&self, id: MachineId) {
        let machine = self.machine(id);
        if machine.is_powering_off.swap(true, Ordering::Relaxed) {
            return;
        }
        let Err(ours) = self.by_ours(&machine, id, "poweroff").await else { return };
        if let Err(qemus) = machine.qga.shut_down("powerdown").await {
            let (ours, qemus) = (Chain(&ours), Chain(&qemus));
            tracing::debug!(machine = %id, %ours, %qemus, "no agent powers the guest off");
            machine.is_powering_off.store(false, Ordering::Relaxed);
        }
    }

    /// Asks for a reboot once; the guest begins it when it likes.
    ///
    /// # Errors
    /// When no agent answers, or the guest refuses.
    pub async fn reboot(&self, id: MachineId) -> Result<()> {
        let machine = self.machine(id);
        let Err(ours) = self.by_ours(&machine, id, "reboot").await else { return Ok(()) };
        machine.qga.shut_down("reboot").await.map_err(|qemus| {
            tracing::debug!(machine = %id, ours = %Chain(&ours), "our agent does not reboot the guest");
            Error::because(Kind::State, "no agent in the guest reboots it", qemus)
        })
    }

    async fn by_ours(&self, machine: &Machine, id: MachineId, command: &'static str) -> Result<()> {
        let absent = || Error::new(Kind::State, "it does not answer");
        let link = self.link(machine, id, Instant::now()).await.ok_or_else(absent)?;
        let process = link.begin(Message::Start(Start { argv: vec![command.into()], ..Start::default() })).await?;
        let late = |_elapsed| Error::new(Kind::Deadline, format!("`{command}` did not end"));
        match timeout(DEADLINE, output::collect(process, Room::none())).await.map_err(late)? {
            Ok(output) if output.code == 0 => Ok(()),
            Ok(output) => Err(Error::new(Kind::State, format!("`{command}` ended with exit code {}", output.code))),
            // It did begin, and the guest may be down before the end of it is told.
            Err(error) if error.kind() == Kind::Unavailable => Ok(()),
            Err(error) => Err(error),
        }
    }
}
