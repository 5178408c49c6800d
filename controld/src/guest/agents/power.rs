//! Asks a guest to power off, by whichever agent answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use common::Chain;
use proto::agent::{Message, Start};
use tokio::time::{Instant, timeout};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::output::{self, Room};
use super::{Agents, Machine};

/// How long `poweroff` may run in the guest, where some wait for services.
const DEADLINE: Duration = Duration::from_secs(60);

impl Agents {
    /// Asks until an agent has heard it, which is enough. It is fine if none does: this is beside the power button, for guests that
    /// do not heed it.
    pub async fn power_off(&self, id: MachineId) {
        let machine = self.machine(id);
        if machine.is_powering_off.swap(true, Ordering::Relaxed) {
            return;
        }
        let Err(ours) = self.by_ours(&machine, id).await else { return };
        if let Err(qemus) = machine.qga.power_off().await {
            let (ours, qemus) = (Chain(&ours), Chain(&qemus));
            tracing::debug!(machine = %id, %ours, %qemus, "no agent powers the guest off");
            machine.is_powering_off.store(false, Ordering::Relaxed);
        }
    }

    async fn by_ours(&self, machine: &Machine, id: MachineId) -> Result<()> {
        let absent = || Error::new(Kind::State, "it does not answer");
        let link = self.link(machine, id, Instant::now()).await.ok_or_else(absent)?;
        let process = link.begin(Message::Start(Start { argv: vec!["poweroff".into()], ..Start::default() })).await?;
        let late = |_elapsed| Error::new(Kind::Deadline, "`poweroff` did not end");
        match timeout(DEADLINE, output::collect(process, Room::none())).await.map_err(late)?? {
            output if output.code == 0 => Ok(()),
            output => Err(Error::new(Kind::State, format!("`poweroff` ended with exit code {}", output.code))),
        }
    }
}
