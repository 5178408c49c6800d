//! Finds out how things stand: with libvirt, with what could not be done, and with a machine that is paused.

use common::Chain;
use proto::pause::Pause;
use tokio::time::Instant;
use vmspec::error::{Error, Kind, Result};

use super::Task;
use crate::container::host::Host;
use crate::container::machine::Event;
use crate::model::ContainerState;

impl<H: Host> Task<H> {
    /// Brings record, libvirt and the container's state together. What cannot be done now is tried again by the clock.
    pub(super) async fn settle(&mut self) {
        if self.starting.is_some() {
            return;
        }
        self.again.begin();
        let recorded = if self.unwritten { self.record().await } else { Ok(()) };
        let compared = self.compare().await;
        self.end_checkpoint();
        if let Err(error) = recorded.and(compared) {
            tracing::warn!(error = %Chain(&error), "the container is not settled; trying again");
        }
        // What is left of a checkpoint is removed beside this.
        if self.checkpoint.is_none() {
            self.again.end();
        }
    }

    async fn compare(&mut self) -> Result<()> {
        // What has to go is not asked for first: a start that is still on its way would not show.
        let seen = if self.life.is_unwanted() { Ok(None) } else { self.host.state(&self.container).await };
        match seen {
            Ok(seen) => {
                let done = self.happens(Event::Seen(seen.map(|seen| seen.phase))).await;
                let pause = seen.and_then(|seen| seen.pause);
                let is_coming_up = seen.is_some_and(|seen| seen.coming_up);
                if self.life.state() == ContainerState::Running && self.container.restore.is_some() {
                    // A guest that goes on from a checkpoint runs when it is let, and before that it is held to its resources.
                    self.confine(is_coming_up).await;
                }
                let runs_now = self.let_run(pause, is_coming_up).await;
                // For its checkpoint, that is our affair alone.
                let is_written = pause == Some(Pause::ByHand) && self.container.is_written();
                self.paused(pause.filter(|_| !runs_now && !is_written));
                if self.life.state() == ContainerState::Running {
                    self.confine(is_coming_up).await;
                    self.remove_seed(is_coming_up);
                }
                done
            }
            Err(error) => {
                self.again.failed(Instant::now());
                Err(error)
            }
        }
    }

    /// Does what an earlier controld had yet to do to a guest that it has started and held, and lets it run unless its pod wants it to wait.
    /// Whether it was held, and is not to be any more.
    async fn let_run(&mut self, pause: Option<Pause>, is_coming_up: bool) -> bool {
        if !self.is_held || self.life.state() != ContainerState::Running {
            return false;
        }
        // libvirt has yet to hold it.
        if is_coming_up {
            self.again.failed(Instant::now());
            return false;
        }
        // One that goes on from a checkpoint may have no carriers yet, though it runs.
        if pause != Some(Pause::ByHand) && self.container.restore.is_none() {
            self.is_held = false;
            return false;
        }
        match self.host.let_run(&self.container).await {
            Ok(()) => {
                // Somebody may have paused it since it ran: that is to be shown.
                if self.container.restore.is_some() && pause.is_some() {
                    self.again.failed(Instant::now());
                }
                self.is_held = false;
                self.gone_on().await;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "guest of an earlier start is not ready to run; trying again");
                self.again.failed(Instant::now());
            }
        }
        !self.container.machine.hardware.described.start_paused
    }

    /// Notes that a guest has gone on from its checkpoint, if it was to.
    async fn gone_on(&mut self) {
        if self.container.restore.take().is_none() {
            return;
        }
        if let Err(error) = self.record().await {
            tracing::error!(error = %Chain(&error), "that a guest has gone on from its checkpoint is not recorded; trying again");
        }
        // It may wait at the gate until all else is done to it.
        self.host.set_up(&self.container, &self.cuts);
    }

    /// Holds a machine to its resources that a start of an earlier controld has left as libvirt starts it.
    async fn confine(&mut self, is_coming_up: bool) {
        if !self.is_loose {
            return;
        }
        if is_coming_up || self.change.is_some() {
            self.again.failed(Instant::now());
            return;
        }
        match self.host.confine(&self.container).await {
            Ok(()) => self.is_loose = false,
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "running machine not held to its resources; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    /// Removes the seed that a start of an earlier controld has left.
    fn remove_seed(&mut self, is_coming_up: bool) {
        if !self.seed_left {
            return;
        }
        if is_coming_up {
            self.again.failed(Instant::now());
            return;
        }
        match self.host.seed_is_read(&self.container) {
            Ok(()) => self.seed_left = false,
            Err(error) => {
                tracing::warn!(%error, "seed of a running machine not removed; trying again");
                self.again.failed(Instant::now());
            }
        }
    }

    /// Shows whether the machine is paused, and sets the clock if it is for us to end that.
    fn paused(&mut self, pause: Option<Pause>) {
        let pause = pause.filter(|_| self.life.state() == ContainerState::Running);
        match pause {
            Some(Pause::DiskFull) => self.lookout.paused(Instant::now()),
            Some(Pause::ByHand) | None => self.lookout.over(),
        }
        if pause == self.container.pause {
            return;
        }
        match pause {
            Some(pause) => tracing::warn!(disk = %self.container.machine.root.overlay.display(), "{}", pause.message()),
            None => tracing::info!("the guest is not paused any more"),
        }
        self.container.pause = pause;
        self.host.show(&self.container);
    }

    /// Pauses the guest, until somebody lets it go on.
    pub(super) async fn pause(&mut self) -> Result<()> {
        self.runs_for("paused")?;
        self.is_not_written("paused")?;
        self.is_let_run("paused").await?;
        if self.container.pause == Some(Pause::DiskFull) {
            let what = format!("container `{}` is paused already: {}", self.container.id, Pause::DiskFull.message());
            return Err(Error::new(Kind::State, what));
        }
        if self.stopping.is_some() {
            let what = format!("container `{}` is being stopped, so it cannot be paused", self.container.id);
            return Err(Error::new(Kind::State, what));
        }
        let paused = self.host.pause(&self.container).await;
        self.settle().await;
        paused
    }

    /// Lets the guest go on, whoever has paused it.
    pub(super) async fn resume(&mut self) -> Result<()> {
        self.runs_for("resumed")?;
        self.is_not_written("resumed")?;
        self.is_let_run("resumed").await?;
        let resumed = self.host.resume(&self.container).await;
        self.settle().await;
        resumed
    }

    /// Not before all is done to it that an earlier controld had yet to do.
    async fn is_let_run(&mut self, what: &str) -> Result<()> {
        if self.is_held {
            self.settle().await;
        }
        if !self.is_held {
            return Ok(());
        }
        let what =
            format!("container `{}` is still being started, so it cannot be {what}; try again", self.container.id);
        Err(Error::new(Kind::State, what))
    }

    pub(super) fn runs_for(&self, what: &str) -> Result<()> {
        if self.life.state() == ContainerState::Running {
            return Ok(());
        }
        let what = format!("container `{}` does not run, so it cannot be {what}", self.container.id);
        Err(Error::new(Kind::State, what))
    }

    pub(super) async fn look_for_room(&mut self, now: Instant) {
        self.lookout.looked(now);
        // It goes on when its disks are copied.
        if self.container.is_written() {
            return;
        }
        let gone_on = match self.host.room(&self.container).await {
            Ok(room) if room.is_enough() => self.host.go_on(&self.container).await,
            Ok(_full) => return,
            Err(cause) => Err(Error::because(Kind::Internal, "room on the machine's disk not looked for", cause)),
        };
        match gone_on {
            Ok(()) => {
                self.lookout.went_on(now);
                self.settle().await;
            }
            Err(error) => tracing::warn!(error = %Chain(&error), "paused machine does not go on; trying again"),
        }
    }
}
