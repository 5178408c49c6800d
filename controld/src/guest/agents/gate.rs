//! Guests that wait at the gate: early in their boot, before anything in them has read what their pods want of them, our agent waits until it
//! hears that they may go on. A checkpoint that is made there has nothing of its pod (`crate::container::warm`).

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use proto::agent::{Message, Start};
use tokio::time::{sleep, timeout};
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::link::Link;
use super::output::{self, Output};
use super::{Agents, Machine, NOT_THERE, our_socket};

/// Between two connections of which the first has ended.
const AGAIN: Duration = Duration::from_secs(1);
/// How long an agent may take to say that it waits, of a guest that goes on there.
const SAYS_SO: Duration = Duration::from_secs(60);

/// The gate of a machine. It does not keep what is known of its agent: a machine that is forgotten has no gate.
#[derive(Debug, Clone)]
pub struct Gate {
    machine: Weak<Machine>,
    socket: PathBuf,
}

impl Agents {
    /// The gate of a machine.
    #[must_use]
    pub fn gate(&self, id: MachineId) -> Gate {
        Gate { machine: Arc::downgrade(&self.machine(id)), socket: our_socket(&self.dir, id) }
    }

    /// The same, for whoever asks first: that one lets the guest go on.
    #[must_use]
    pub fn keep_gate(&self, id: MachineId) -> Option<Gate> {
        let is_kept = self.machine(id).gate_is_kept.swap(true, Ordering::Relaxed);
        (!is_kept).then(|| self.gate(id))
    }

    /// Notes, until controld's next start, that a guest of this image did not wait at the gate though it was to.
    pub fn has_no_gate(&self, image: &str) {
        self.without_gate.lock().unwrap_or_else(PoisonError::into_inner).insert(image.to_owned());
    }

    /// Whether no guest of an image is known not to wait.
    #[must_use]
    pub fn may_have_gate(&self, image: &str) -> bool {
        !self.without_gate.lock().unwrap_or_else(PoisonError::into_inner).contains(image)
    }
}

impl Gate {
    /// Ends when the guest waits there: `true`, or when the machine is forgotten.
    pub async fn waits(&self) -> bool {
        self.until(|link| link.gate(false)).await
    }

    /// Ends when the agent answers and the guest does not wait there: `true`, or when the machine is forgotten.
    pub async fn is_passed(&self) -> bool {
        self.until(|link| link.gate(true)).await
    }

    async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn(&Link) -> F) -> bool {
        while let Some(machine) = self.machine.upgrade() {
            let told = machine.open(&self.socket).await.ok().map(|(link, _)| is_so(&link));
            // Whoever forgets it is not to wait for this.
            drop(machine);
            if let Some(told) = told
                && told.await
            {
                return true;
            }
            sleep(AGAIN).await;
        }
        false
    }

    /// Whether the machine is forgotten.
    #[must_use]
    pub fn is_forgotten(&self) -> bool {
        self.machine.strong_count() == 0
    }

    /// Whether the guest was rebooted since controld has known of it.
    #[must_use]
    pub fn was_rebooted(&self) -> bool {
        let rebooted =
            |machine: Arc<Machine>| machine.rebooted.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        self.machine.upgrade().is_some_and(rebooted)
    }

    /// Lets a guest go on that waits there; fine if it does not.
    ///
    /// # Errors
    /// When there is no connection to its agent, or that does not take it.
    pub async fn open(&self) -> Result<()> {
        self.link().await?.1.open_gate().await
    }

    async fn link(&self) -> Result<(Arc<Machine>, Arc<Link>)> {
        let forgotten = || Error::new(Kind::NotFound, "the machine is gone");
        let lost = |cause| Error::because(Kind::Unavailable, "no connection to the guest's agent", cause);
        let machine = self.machine.upgrade().ok_or_else(forgotten)?;
        let (link, _) = machine.open(&self.socket).await.map_err(lost)?;
        Ok((machine, link))
    }

    /// Runs a command in a guest that waits there, which is asked for once its agent has said so.
    ///
    /// # Errors
    /// When no agent says so, the command cannot be started, or does not end within `limit`.
    pub(super) async fn run(&self, argv: impl FnOnce() -> Vec<String>, limit: Duration) -> Result<Output> {
        if !timeout(SAYS_SO, self.waits()).await.is_ok_and(|waits| waits) {
            return Err(Error::new(Kind::State, format!("the guest does not wait at the gate: {NOT_THERE}")));
        }
        let (machine, link) = self.link().await?;
        let run = async {
            let process = link.begin(Message::Start(Start { argv: argv(), ..Start::default() })).await?;
            output::collect(process, machine.budget.room()).await
        };
        let late = |_| Err(Error::new(Kind::Deadline, format!("it did not end within {} s", limit.as_secs())));
        timeout(limit, run).await.unwrap_or_else(late)
    }
}
