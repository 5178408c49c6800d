//! Taking up the pods that an earlier life of the daemon left.
//!
//! Called at the start of the daemon, before it listens: every pod on record has its actor and is shown as its record has
//! it, *being recovered*, before anybody can ask for it. To recover it is the first thing that its actor does, and what is
//! asked of the pod meanwhile waits for that: nobody is told that a pod is unknown, or gone, or well, before it is known.
//!
//! What was half made is undone, what was half taken away is finished, what an earlier boot of the node left is taken
//! away, the rest is served again ([`super::machine::on_restart`]). What fails is logged, and stays for a later detach.
//!
//! Pods take turns, so that a node full of them does not start all at once. Looking at a pod and serving it takes the
//! kernel a moment. Taking one away runs plugins, which may hang: those turns are others, each ends with the plugins'
//! deadlines at the latest, and a pod that somebody asks for does not wait for its turn.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Attach, PodId, PodNet, PodPhase};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, watch};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::actor::{Actor, Command, Held};
use super::error::PodError;
use super::machine::{OnRestart, on_restart};
use super::world::{Seen, World};
use super::{NetnsNames, Pods, View};
use crate::chain::Chain;
use crate::journal::{Loaded, Record, Unreadable};

/// Pods that are looked at, and served again, at the same time: each takes a thread in its namespace for a moment.
const LOOKED_AT_ONCE: usize = 8;
/// Pods whose plugins are run at the same time.
const TAKEN_AWAY_AT_ONCE: usize = 8;

/// What an earlier life of the daemon left of a pod.
#[derive(Debug)]
pub(super) enum Left {
    Record(Box<Held>),
    /// A file that is not understood.
    Unread(View),
}

/// Whose turn it is.
#[derive(Debug)]
pub(super) struct Turns {
    look: Semaphore,
    take_away: Semaphore,
}

impl Turns {
    pub(super) const fn new() -> Self {
        Self { look: Semaphore::const_new(LOOKED_AT_ONCE), take_away: Semaphore::const_new(TAKEN_AWAY_AT_ONCE) }
    }
}

impl<W: World> Pods<W> {
    /// Starts the actors of the pods on record, also of those whose file is not understood. Ends at once; they are
    /// recovered afterwards.
    pub(crate) fn take_over(&self, Loaded { records, unreadable }: Loaded) {
        let mut guard = self.shared.lock();
        let Some(handles) = guard.as_mut() else { return };
        let unread = unreadable.iter().filter_map(|file| {
            let pod = file.pod()?;
            Some((pod.clone(), Left::unread(&self.shared.tools.names, pod, file)))
        });
        let left = records.into_iter().map(|(pod, record)| (pod, Left::record(record)));
        for (pod, left) in left.chain(unread) {
            let handle = self.shared.start(pod.clone(), Some(left));
            handles.insert(pod, handle);
        }
    }

    /// How many pods are being recovered.
    pub(crate) fn recovering(&self) -> usize {
        let handles = self.shared.lock();
        let views = handles.iter().flat_map(|handles| handles.values());
        views.filter(|handle| handle.view.borrow().as_ref().is_some_and(|view| view.recovering)).count()
    }

    /// Waits until all pods that were taken over are recovered.
    pub(crate) async fn recovered(&self) {
        let views: Vec<_> = {
            let handles = self.shared.lock();
            handles.iter().flat_map(|handles| handles.values()).map(|handle| handle.view.clone()).collect()
        };
        for view in views {
            settled(view).await;
        }
    }

    /// As [`Self::usable`], but waits for a pod that is being recovered, for as long as `within`.
    pub(crate) async fn soon_usable(&self, pod: &PodId, within: Duration) -> Result<Arc<PodNet>, PodError> {
        let view = self.shared.lock().as_ref().and_then(|handles| Some(handles.get(pod)?.view.clone()));
        if let Some(view) = view {
            // What comes of it is told below.
            let _ = timeout(within, settled(view)).await;
        }
        self.usable(pod)
    }
}

impl Left {
    pub(super) fn record(record: Record) -> Self {
        Self::Record(Box::new(Held::left(record)))
    }

    pub(super) fn unread(names: &NetnsNames, pod: PodId, file: &Unreadable) -> Self {
        Self::Unread(unread(names, pod, file))
    }

    pub(super) fn view(&self) -> View {
        match self {
            Self::Record(held) => held.view(),
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

/// Waits until it is known how the pod is.
async fn settled(mut view: watch::Receiver<Option<View>>) {
    // An actor that ended has said so itself.
    let _ = view.wait_for(|view| view.as_ref().is_none_or(|view| !view.recovering)).await;
}

impl<W: World> Actor<W> {
    /// Recovers the pod. Breaks if the daemon goes down before it is its turn.
    pub(super) async fn restore(&mut self, queue: &mut mpsc::Receiver<Command>) -> ControlFlow<()> {
        let shared = Arc::clone(&self.shared);
        let turns = &shared.tools.turns;
        let turn = self.turn(&turns.look, queue).await?;
        let take_away = self.look_at_left().await;
        drop(turn);
        if take_away {
            let _turn = self.turn(&turns.take_away, queue).await?;
            // Logged where it fails; it is tried again then.
            let _ = self.detach().await;
        }
        if let Some(held) = &mut self.held {
            held.recovering = false;
            held.show(&self.publish);
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
        let tools = &self.shared.tools;
        let Some(held) = &mut self.held else { return false };
        let seen = match tools.world.look(&held.record.netns).await {
            Ok(seen) => seen,
            Err(error) => {
                error!(error = %Chain(&error), "pod was not recovered");
                held.in_trouble(&Chain(&error).to_string(), &self.publish);
                return false;
            }
        };
        let phase = held.record.phase;
        // No mount outlives a reboot.
        let same_boot = held.record.boot.as_ref().map_or(seen == Seen::Netns, |boot| *boot == tools.boot);
        match on_restart(phase, same_boot, seen) {
            OnRestart::TakeAway => {
                info!(?phase, same_boot, "taking away what an earlier run left");
                // After a power failure the results may be gone: any ADD may have run.
                if phase == PodPhase::Attaching && same_boot {
                    held.record.keep_begun();
                }
                return true;
            }
            OnRestart::Report(trouble) => {
                warn!(trouble, "pod cannot be served");
                held.in_trouble(trouble, &self.publish);
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
