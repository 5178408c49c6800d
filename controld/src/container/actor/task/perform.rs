//! Does what was decided, and writes it down.

use common::{Chain, now_nanos};
use tokio::time::Instant;
use vmspec::error::{Error, Result};

use super::Task;
use crate::container::host::Host;
use crate::container::machine::{Act, Circumstances, End, Event};
use crate::guest::console::end::show_none;
use crate::model::{ContainerState, Exit, ExitReason};

impl<H: Host> Task<H> {
    pub(super) async fn happens(&mut self, event: Event) -> Result<()> {
        let act = self.life.on(event);
        self.perform(act).await
    }

    /// Does what was decided. After an error the clock is set.
    pub(super) async fn perform(&mut self, act: Act) -> Result<()> {
        let done = match act {
            Act::Nothing | Act::Boot | Act::Await | Act::PowerOff(_) => Ok(()),
            Act::Refuse(kind, why) => {
                return Err(Error::new(kind, format!("container `{}` {why}", self.container.id)));
            }
            Act::Run => {
                self.runs().await;
                Ok(())
            }
            Act::Follow => {
                self.follow().await;
                Ok(())
            }
            Act::End(end) => {
                self.end(end).await;
                Ok(())
            }
            Act::Clear => match self.clear().await {
                Ok(()) => {
                    if let Act::End(end) = self.life.on(Event::Cleared) {
                        self.end(end).await;
                    }
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if done.is_err() {
            self.show();
            self.again.failed(Instant::now());
        }
        done
    }

    async fn runs(&mut self) {
        self.container.started_at = now_nanos();
        self.container.process = self.host.process(&self.container).or(self.container.process);
        if !self.is_held {
            // Its start has done all of it.
            self.container.restore = None;
        }
        // Before anybody can have a command started in it.
        self.host.set_up(&self.container, &self.cuts);
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "running machine not recorded; trying again");
        }
        self.follow().await;
    }

    async fn follow(&mut self) {
        if self.console.is_some() {
            return;
        }
        self.host.set_up(&self.container, &self.cuts);
        match self.host.follow(&self.container).await {
            Ok(console) => self.console = console,
            Err(error) => {
                tracing::error!(%error, "console not followed; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    async fn end(&mut self, end: End) {
        // It would make the cgroup again that is about to go.
        self.end_change().await;
        self.unwant_checkpoint();
        let (was_seen, was_up) = (end.was_seen(), end.was_up());
        let seen = Circumstances {
            stopping: self.stopping.is_some(),
            node_rebooted: self.host.boot().is_after(&self.container.boot),
            oom_killed: self.host.was_oom_killed(&self.container),
            unshared: self.host.is_unshared(&self.container),
        };
        let (reason, message) = end.reason(seen);
        let mut exit = Exit::now(reason, message);
        let is_all = match self.console.take() {
            Some(console) => self.host.finish(console, was_seen).await,
            // Ended while we were down: what it printed last is still to be copied.
            None if was_up => match self.host.follow(&self.container).await {
                Ok(Some(console)) => self.host.finish(console, false).await,
                Ok(None) => false,
                Err(error) => {
                    tracing::warn!(%error, "what the console printed last is not in the pod's log");
                    false
                }
            },
            None => false,
        };
        if exit.reason == ExitReason::GuestPanicked {
            match self.host.last_words(&self.container).await {
                Ok(words) if words.is_empty() => {}
                Ok(words) => exit.message = format!("{}, which ends:\n{words}", exit.message),
                Err(error) => tracing::warn!(%error, "what the guest printed last was not read"),
            }
        }
        if was_up && self.container.machine.guest.command.is_some() {
            // One that was killed says nothing, and a stop waits for this.
            match self.host.command_end(&self.container, was_seen && !is_all).await {
                Ok(Some(end)) => end.show(&mut exit),
                Ok(None) => show_none(&mut exit),
                Err(error) => tracing::warn!(%error, "how the machine's command has ended was not read"),
            }
        }
        tracing::info!(code = exit.code, reason = exit.reason.as_str(), "container ended");
        self.container.exit = Some(exit);
        self.container.pause = None;
        self.lookout.over();
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "end of the container not recorded; trying again");
        }
        // What libvirt knows of the end is needed until the record has it.
        if !self.unwritten
            && let Err(error) = self.host.clear(&self.container).await
        {
            tracing::warn!(error = %Chain(&error), "ended machine not undefined; trying again");
            self.again.failed(Instant::now());
        }
        self.answer_stops(|| Ok(()));
    }

    /// Makes sure that libvirt has no machine. One whose end is not on record yet stays, off: libvirt knows how it ended.
    async fn clear(&mut self) -> Result<()> {
        let ended = self.life.state() == ContainerState::Exited;
        if ended && self.unwritten && self.record().await.is_err() {
            return self.host.destroy(&self.container).await;
        }
        self.host.clear(&self.container).await
    }

    pub(super) async fn remove(&mut self) -> Result<()> {
        let act = self.life.on(Event::Remove);
        if matches!(act, Act::Refuse(..)) {
            return self.perform(act).await;
        }
        // It is on record as long as something is left of it.
        self.no_checkpoint().await?;
        let removed = async {
            self.host.clear(&self.container).await?;
            self.host.forget(&self.container).await
        };
        let removed = removed.await;
        if removed.is_err() {
            self.again.failed(Instant::now());
        }
        removed
    }

    /// Writes the record. One that cannot be written is true all the same: it is shown, and written when that is possible.
    pub(super) async fn record(&mut self) -> Result<()> {
        self.container.state = self.life.state();
        let written = self.host.put(&self.container).await;
        self.unwritten = written.is_err();
        if self.unwritten {
            self.host.show(&self.container);
            self.again.failed(Instant::now());
        }
        written
    }

    /// Shows the state, if it is not what the record says.
    pub(super) fn show(&mut self) {
        if self.container.state != self.life.state() {
            self.container.state = self.life.state();
            self.host.show(&self.container);
        }
    }
}
