//! Recovers one pod after a restart of the daemon: the first thing that its actor does.
//!
//! It undoes an Attach and finishes a Detach that were cut off, takes away a pod of an earlier boot of the node, and
//! serves any other pod again ([`crate::pod::machine::on_restart`]). It logs a failure, and leaves the pod for a later
//! Detach.
//!
//! The number of pods that are recovered at once is limited, so that those of a full node do not start all together.
//! Looking at a pod and serving it takes the kernel a moment. Taking a pod away runs plugins, which may hang until
//! their deadlines, so it has a limit of its own. A pod that a client asks for does not wait for either.

use std::ops::ControlFlow;
use std::sync::Arc;

use common::Chain;
use proto::tap::{Attach, PodId, PodPhase};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tracing::{error, info, warn};

use super::{Actor, PodState};
use crate::journal::{Record, Unreadable};
use crate::pod::command::Command;
use crate::pod::machine::{OnRestart, on_restart};
use crate::pod::world::{NetnsState, World};
use crate::pod::{NetnsNames, View};

/// Pods that are looked at, and served again, at the same time: each takes a thread in its namespace for a moment.
const LOOKED_AT_ONCE: usize = 8;
/// Pods whose plugins are run at the same time.
const TAKEN_AWAY_AT_ONCE: usize = 8;

/// What an earlier life of the daemon left of a pod.
#[derive(Debug)]
pub(in crate::pod) enum Inherited {
    Record(Box<PodState>),
    /// A file that is not understood.
    Unread(View),
}

/// Whose turn it is.
#[derive(Debug)]
pub(in crate::pod) struct RecoveryLimits {
    look: Semaphore,
    take_away: Semaphore,
}

impl RecoveryLimits {
    pub(in crate::pod) const fn new() -> Self {
        Self { look: Semaphore::const_new(LOOKED_AT_ONCE), take_away: Semaphore::const_new(TAKEN_AWAY_AT_ONCE) }
    }
}

impl Inherited {
    pub(in crate::pod) fn record(record: Record) -> Self {
        Self::Record(Box::new(PodState::left(record)))
    }

    pub(in crate::pod) fn unread(names: &NetnsNames, pod: PodId, file: &Unreadable) -> Self {
        Self::Unread(unread(names, pod, file))
    }

    pub(in crate::pod) fn view(&self) -> View {
        match self {
            Self::Record(state) => state.view(),
            Self::Unread(view) => view.clone(),
        }
    }
}

/// A pod of which nothing is known but that it was here. A machine may run in it.
fn unread(names: &NetnsNames, pod: PodId, file: &Unreadable) -> View {
    View {
        phase: PodPhase::Attached,
        netns: names.path(&pod).into(),
        request: Arc::new(Attach::new(pod)),
        net: None,
        recovering: false,
        unread: true,
        trouble: Some(format!("{}; it is kept until it is forgotten", Chain(file)).into()),
    }
}

impl<W: World> Actor<W> {
    /// Recovers the pod. Breaks if the daemon goes down before it is its turn.
    pub(super) async fn restore(&mut self, queue: &mut mpsc::Receiver<Command>) -> ControlFlow<()> {
        let shared = Arc::clone(&self.shared);
        let turns = &shared.operations.recovery_limits;
        let turn = self.turn(&turns.look, queue).await?;
        let take_away = self.look_at_left().await;
        drop(turn);
        if take_away {
            let _turn = self.turn(&turns.take_away, queue).await?;
            // Logged where it fails; it is tried again then.
            let _ = self.detach().await;
        }
        if let Some(state) = &mut self.state {
            state.recovering = false;
            state.show(&self.publish);
        }
        ControlFlow::Continue(())
    }

    /// Waits for a turn, or until somebody asks for the pod.
    async fn turn<'a>(
        &mut self,
        turns: &'a Semaphore,
        queue: &mut mpsc::Receiver<Command>,
    ) -> ControlFlow<(), Option<SemaphorePermit<'a>>> {
        if self.early.is_some() {
            return ControlFlow::Continue(None);
        }
        tokio::select! {
            biased;
            turn = turns.acquire() => ControlFlow::Continue(turn.ok()),
            asked = queue.recv() => match asked {
                None => ControlFlow::Break(()),
                asked => {
                    self.early = asked;
                    ControlFlow::Continue(None)
                }
            },
        }
    }

    /// Looks at the pod and serves it again, unless it has to be taken away.
    async fn look_at_left(&mut self) -> bool {
        let operations = &self.shared.operations;
        let Some(state) = &mut self.state else { return false };
        let seen = match operations.world.look(&state.record.netns).await {
            Ok(seen) => seen,
            Err(error) => {
                error!(error = %Chain(&error), "pod was not recovered");
                state.in_trouble(&Chain(&error).to_string(), &self.publish);
                return false;
            }
        };
        let phase = state.record.phase;
        // No mount outlives a reboot.
        let same_boot = state.record.boot.as_ref().map_or(seen == NetnsState::Present, |boot| *boot == operations.boot);
        match on_restart(phase, same_boot, seen) {
            OnRestart::TakeAway => {
                info!(?phase, same_boot, "taking away what an earlier run left");
                // After a power failure the results may be gone: any ADD may have run.
                if phase == PodPhase::Attaching && same_boot {
                    state.record.keep_begun();
                }
                return true;
            }
            OnRestart::Report(trouble) => {
                warn!(trouble, "pod cannot be served");
                state.in_trouble(trouble, &self.publish);
            }
            OnRestart::Serve => match self.serve_again().await {
                Ok(_) => info!("pod is served again"),
                Err(error) => {
                    error!(error = %Chain(&error), "pod cannot be served again");
                    self.trouble(&Chain(&error).to_string());
                }
            },
        }
        false
    }
}
