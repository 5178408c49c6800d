//! Tells our agent in a guest of the guest, and of the command that the machine is for ([`vmspec::agent`] says what).
//!
//! It is told at each greeting, before anything else, so that whatever is started in the guest finds it so. A task keeps a
//! connection to the agent of each such machine: an agent that starts is greeted at once, whether or not anybody wants something
//! of it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use proto::agent::{Message, Setup};
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;
use vmspec::MachineId;
use vmspec::error::{Error, Kind, Result};

use super::process::Process;
use super::shared::ANSWER_DEADLINE;
use super::{Agents, Command, Machine, NOT_THERE, our_socket};
use crate::model::Container;
use crate::store::moments::Phase;

/// When a connection that was lost, or could not be made, is made anew: at first, and at the latest for a guest that
/// lets none live.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

impl Agents {
    /// Has a machine's agent told how its guest is to be, now and after each boot; again is fine.
    pub fn set_up(&self, id: MachineId, setup: Setup) {
        let machine = self.machine(id);
        if machine.setup.set(setup).is_ok() {
            let span = machine.span();
            let moments = self.moments.clone();
            let greeted = move || moments.reached(id, Phase::Agent, true);
            tokio::spawn(keep(Arc::downgrade(&machine), our_socket(&self.dir, id), greeted).instrument(span));
        }
    }

    /// Joins the machine's command.
    ///
    /// # Errors
    /// When our agent does not answer, or the command does not run.
    pub async fn attach(&self, container: &Container) -> Result<Process> {
        // Its words are not sent, but who may have a command run may attach.
        let Command { machine: id, patience, .. } = Command::of(container, vec![String::new()])?;
        let machine = self.machine(id);
        let not_there = || Error::new(Kind::State, format!("failed to attach to the machine's command: {NOT_THERE}"));
        let link = self.link(&machine, id, machine.booted(patience)).await.ok_or_else(not_there)?;
        if !link.is_ready(ANSWER_DEADLINE).await {
            return Err(Error::new(
                Kind::State,
                "failed to attach to the machine's command: the `virtlet-agent` in the guest is of an \
                                                earlier release, which runs no command; install this one's",
            ));
        }
        link.begin(Message::Attach).await
    }

    /// Asks the machine's command to end.
    ///
    /// # Errors
    /// When our agent does not answer.
    pub async fn stop(&self, id: MachineId) -> Result<()> {
        let not_there = || Error::new(Kind::State, NOT_THERE);
        let machine = self.machine(id);
        let link = self.link(&machine, id, Instant::now()).await.ok_or_else(not_there)?;
        link.say(Message::Stop).await?;
        // The port takes more than an agent that hangs, or has ended, will ever hear.
        let setup = machine.setup.get().cloned().unwrap_or_default();
        if link.answers(setup, ANSWER_DEADLINE).await? { Ok(()) } else { Err(not_there()) }
    }
}

/// Keeps a connection until the machine is forgotten. `greeted` hears each time that an agent has answered.
async fn keep(machine: Weak<Machine>, socket: PathBuf, greeted: impl Fn() + Clone + Send + 'static) {
    let [soon, late] = AGAIN;
    let mut pause = soon;
    while let Some(end) = connect(&machine, &socket, greeted.clone()).await {
        let began = Instant::now();
        if let Some(end) = end {
            end.await;
        }
        pause = if began.elapsed() > late { soon } else { pause };
        sleep(pause).await;
        pause = late.min(pause * 2);
    }
}

/// A connection's end, if there is a connection; `None` once the machine is forgotten.
async fn connect<F: FnOnce() + Send + 'static>(
    machine: &Weak<Machine>,
    socket: &Path,
    greeted: F,
) -> Option<Option<impl Future<Output = ()> + use<F>>> {
    let machine = machine.upgrade()?;
    let (link, was_there) =
        machine.open(socket).await.map_or((None, false), |(link, was_there)| (Some(link), was_there));
    // One that has yet to answer is told then, or once it goes on from the gate.
    if let Some(link) = link.as_ref().filter(|link| was_there && link.has_answered())
        && let Some(setup) = machine.setup.get()
    {
        // It may have been greeted before there was something to be told; that is told twice then.
        let _ = link.say(Message::Setup(setup.clone())).await;
    }
    Some(link.as_deref().map(|link| link.end(greeted)))
}
