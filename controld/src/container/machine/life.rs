//! The states of a container and what moves it. Needs no clock.
//!
//! ```text
//! Created --start--> Starting --came up--> Running --ended--> Exited
//!    |                  |                     ^                  ^
//!    |                  |                     | found on         |
//!    |                  `-- failed, restart --> Uncertain -------|  nothing is there, or it was cleared away
//!    `-- replaced by the next attempt ---------------------------'
//! ```
//!
//! `Starting` lasts as long as the task of the start. If that fails, or controld is restarted amid it, a machine may be there
//! or may still come: `Uncertain`, CRI's UNKNOWN, which kubelet answers by StopContainer. Only what libvirt has confirmed
//! leads to `Exited`, and an `Exited` container has no machine: one that is found is cleared away.

use std::time::Duration;

use vmspec::error::Kind;

use crate::hypervisor::{DomainPhase, Ending};
use crate::model::{ContainerState, ExitReason};

/// Where a container stands, with what its record does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) struct Life {
    state: ContainerState,
    /// Why a machine that may be there has to go; only of an uncertain container.
    unwanted: Option<String>,
}

/// What happens to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) enum Event {
    /// It is to be started.
    Start,
    /// The intent to start it could not be recorded, and why. Nothing was done.
    NotBegun(String),
    /// Its start succeeded.
    CameUp,
    /// Its start failed, and why.
    StartFailed(String),
    /// It is to be stopped within this time.
    Stop(Duration),
    /// The container's next attempt is being made: its machine must not be there.
    MakeWay,
    /// The container's next attempt, of this number, takes its place.
    Replaced(u32),
    /// It is to be removed.
    Remove,
    /// libvirt told the end of its machine.
    Ended(Ending),
    /// libvirt was asked for its machine.
    Seen(Option<DomainPhase>),
    /// libvirt has confirmed that there is no machine.
    Cleared,
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) enum Act {
    Nothing,
    /// Record the state, then start the machine.
    Boot,
    /// The start under way decides; what was asked waits for it.
    Await,
    /// Record that the machine runs, and copy its console.
    Run,
    /// The machine runs and is on record: copy its console, if nobody does.
    Follow,
    /// Power the guest off, by force after this time.
    PowerOff(Duration),
    /// Destroy the machine and undefine it, whether or not there is one. Then comes [`Event::Cleared`].
    Clear,
    /// Record the end, then undefine the machine.
    End(End),
    /// Say no.
    Refuse(Kind, &'static str),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::container) enum End {
    /// Its machine ended like this.
    Machine(Ending),
    /// It was never up, for this reason.
    NeverUp(String),
}

/// What tells ends apart that look the same to libvirt.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::container) struct Circumstances {
    /// We were stopping the machine: if it was destroyed, it was by us.
    pub(in crate::container) stopping: bool,
    /// The node was restarted since: what ended unseen ended with it.
    pub(in crate::container) node_rebooted: bool,
    /// The kernel has killed its process for want of memory.
    pub(in crate::container) oom_killed: bool,
    /// virtiofsd has ended, and we destroyed the machine for that.
    pub(in crate::container) unshared: bool,
}

// === impl Life ===

impl Life {
    /// A container as its record says. A start on record is of a controld that is no more: how it came out is not known.
    pub(in crate::container) fn on_record(state: ContainerState) -> Self {
        let state = if state == ContainerState::Starting { ContainerState::Uncertain } else { state };
        Self { state, unwanted: None }
    }

    pub(in crate::container) fn state(&self) -> ContainerState {
        self.state
    }

    /// Whether its machine has to go whatever libvirt says of it.
    pub(in crate::container) fn is_unwanted(&self) -> bool {
        self.unwanted.is_some()
    }

    /// Whether it is worth a question what libvirt has, of which it told something other than the machine's end. A machine
    /// that runs stirs all the time; of one that is not to be there nothing is to be heard.
    pub(in crate::container) fn heeds_stirring(&self, is_paused: bool) -> bool {
        self.state != ContainerState::Running || is_paused
    }

    /// Takes an event; what is to be done now.
    pub(in crate::container) fn on(&mut self, event: Event) -> Act {
        match self.state {
            ContainerState::Created => self.created(event),
            ContainerState::Starting => self.starting(event),
            ContainerState::Running => self.running(event),
            ContainerState::Uncertain => self.uncertain(event),
            ContainerState::Exited => exited(event),
        }
    }

    fn created(&mut self, event: Event) -> Act {
        match event {
            Event::Start => {
                self.state = ContainerState::Starting;
                Act::Boot
            }
            Event::Replaced(attempt) => self.never_up(format!("never started; attempt {attempt} took its place")),
            Event::Stop(_) | Event::MakeWay | Event::Remove | Event::Seen(Some(_)) => Act::Clear,
            Event::Seen(None) | Event::Cleared | Event::Ended(_) => Act::Nothing,
            Event::NotBegun(_) | Event::CameUp | Event::StartFailed(_) => Act::Nothing,
        }
    }

    fn starting(&mut self, event: Event) -> Act {
        match event {
            Event::Start | Event::Stop(_) => Act::Await,
            Event::NotBegun(why) => self.never_up(why),
            Event::CameUp => {
                self.state = ContainerState::Running;
                Act::Run
            }
            Event::StartFailed(why) => self.clear_away(why),
            Event::MakeWay | Event::Replaced(_) | Event::Remove => {
                Act::Refuse(Kind::State, "is being started; try again when that is done")
            }
            Event::Ended(_) | Event::Seen(_) | Event::Cleared => Act::Nothing,
        }
    }

    fn running(&mut self, event: Event) -> Act {
        match event {
            Event::Stop(grace) => Act::PowerOff(grace),
            Event::Ended(ending) | Event::Seen(Some(DomainPhase::Off(ending))) => self.machine_ended(ending),
            Event::Seen(None) => self.machine_ended(Ending::Unseen),
            Event::Seen(Some(DomainPhase::On)) => Act::Follow,
            Event::MakeWay | Event::Replaced(_) | Event::Remove => Act::Refuse(Kind::State, "runs; stop it first"),
            Event::Start | Event::NotBegun(_) | Event::CameUp | Event::StartFailed(_) | Event::Cleared => Act::Nothing,
        }
    }

    fn uncertain(&mut self, event: Event) -> Act {
        match event {
            Event::Start => {
                Act::Refuse(Kind::Unavailable, "was being started before, and libvirt has yet to say what came of it")
            }
            Event::Stop(_) | Event::MakeWay | Event::Remove | Event::Replaced(_) => {
                self.clear_away("stopped before it was known to run".into())
            }
            // What has ended did run. A start that failed, and a machine that nobody knows the end of, did not.
            Event::Ended(ending @ (Ending::Shutdown | Ending::Panicked))
            | Event::Seen(Some(DomainPhase::Off(ending @ (Ending::Shutdown | Ending::Panicked))))
                if !self.is_unwanted() =>
            {
                self.machine_ended(ending)
            }
            Event::Seen(Some(DomainPhase::On)) if !self.is_unwanted() => {
                self.state = ContainerState::Running;
                Act::Run
            }
            // The start may still be on its way inside libvirt: only what is undefined cannot be started.
            Event::Seen(_) | Event::Ended(_) => {
                self.clear_away("controld was restarted while the machine was being started".into())
            }
            Event::Cleared => {
                let why = self.unwanted.take().unwrap_or_default();
                self.never_up(why)
            }
            Event::NotBegun(_) | Event::CameUp | Event::StartFailed(_) => Act::Nothing,
        }
    }

    fn clear_away(&mut self, why: String) -> Act {
        self.state = ContainerState::Uncertain;
        // The first reason is the one that explains the others.
        self.unwanted.get_or_insert(why);
        Act::Clear
    }

    fn machine_ended(&mut self, ending: Ending) -> Act {
        self.state = ContainerState::Exited;
        Act::End(End::Machine(ending))
    }

    fn never_up(&mut self, why: String) -> Act {
        self.state = ContainerState::Exited;
        self.unwanted = None;
        Act::End(End::NeverUp(why))
    }
}

fn exited(event: Event) -> Act {
    match event {
        Event::Start => Act::Refuse(Kind::State, "has ended and is not started again; make a new one"),
        Event::Stop(_) | Event::MakeWay | Event::Remove | Event::Seen(Some(_)) => Act::Clear,
        Event::Replaced(_) | Event::Ended(_) | Event::Seen(None) | Event::Cleared => Act::Nothing,
        Event::NotBegun(_) | Event::CameUp | Event::StartFailed(_) => Act::Nothing,
    }
}

// === impl End ===

impl End {
    /// Whether the machine ran, so that it may have printed what is not copied yet.
    pub(in crate::container) fn was_up(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// Whether the end was seen, so that what the machine printed last is still on its way.
    pub(in crate::container) fn was_seen(&self) -> bool {
        matches!(self, Self::Machine(ending) if *ending != Ending::Unseen)
    }

    /// What the record says of it.
    pub(in crate::container) fn reason(self, seen: Circumstances) -> (ExitReason, String) {
        let ending = match self {
            Self::NeverUp(why) => return (ExitReason::StartError, why),
            Self::Machine(ending) => ending,
        };
        let (reason, message) = match ending {
            Ending::Shutdown => (ExitReason::Completed, ""),
            Ending::Destroyed if seen.stopping => {
                (ExitReason::Error, "the guest did not power off in time and was destroyed")
            }
            Ending::Destroyed if seen.unshared && seen.oom_killed => (
                ExitReason::OomKilled,
                "the kernel killed virtiofsd: the pod was at its memory limit; raise the limit, or RuntimeClass `overhead.podFixed`",
            ),
            Ending::Destroyed if seen.unshared => (
                ExitReason::VirtiofsdDied,
                "the file sharing daemon ended, by which the guest saw its volumes, so the machine was destroyed; see \
                 libvirt's log of virtiofsd",
            ),
            Ending::Destroyed => (ExitReason::Error, "the machine was destroyed from outside"),
            Ending::Panicked => (ExitReason::GuestPanicked, "the guest's kernel panicked; see the console log"),
            Ending::Failed | Ending::Unseen if seen.oom_killed => (
                ExitReason::OomKilled,
                "the kernel killed QEMU: the machine, or its pod, was at its memory limit; raise the limit, or RuntimeClass \
                 `overhead.podFixed`",
            ),
            Ending::Failed => (ExitReason::QemuDied, "QEMU died; see libvirt's log of the machine"),
            Ending::Unseen if seen.node_rebooted => (ExitReason::NodeRebooted, "the node was restarted"),
            Ending::Unseen => (ExitReason::Unknown, "the machine ended while nobody watched"),
        };
        (reason, message.into())
    }
}

#[cfg(test)]
mod tests;
