//! The pods that this daemon has on record. Each has an actor, which alone changes it.
//!
//! Called by [`crate::daemon`]. The [`actor`] of a pod does one thing after the other, and finishes it even if the
//! client has hung up. Pods do not wait for each other. Lists and hand-offs read the view that the actor publishes, and
//! do not ask the actor.
//!
//! An actor lives while its pod is on record. Commands are queued, and an idle actor retires, under the same lock, so
//! that no command is lost in between; that lock is never held across an await.

mod actor;
mod attach;
mod collect;
mod command;
mod detach;
mod error;
mod explain;
mod forget;
mod gc_lock;
mod kernel;
mod machine;
mod names;
mod recovery;
mod request;
mod sysctl;
mod world;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::Chain;
use futures_util::StreamExt as _;
use proto::tap::{
    Attach, CheckReport, DataPath, List, MAX_PAGE, MAX_STATS_PAGE, MAX_TROUBLE, PciAddress, PodDetail, PodId, PodNet,
    PodPage, PodPhase, PodStats, PodSummary, StatsPage,
};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::TaskTracker;
use tracing::{Span, debug, warn};

use crate::blocking::off_reactor;
use crate::cni::Ready;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::net::Opened;
use crate::span;
use crate::vf::Devices;
use actor::{Actor, Inherited, RecoveryLimits};
use command::Command;
pub(crate) use command::{Occasion, bounded};
pub(crate) use error::PodError;
pub(crate) use kernel::Kernel;
pub(crate) use machine::RetryPolicy;
pub(crate) use names::NetnsNames;
pub(crate) use world::World;

/// Commands that may wait for one pod. `controld` asks one thing at a time; more is a client gone wild.
const MAX_WAITING: usize = 16;
/// Pods that are counted or collected at the same time: each may run a plugin or a thread in its namespace.
const WORKED_ON_AT_ONCE: usize = 8;

/// What actors do to pods, one step after the other, and what they need for it.
#[derive(Debug)]
pub(crate) struct Operations<W> {
    world: W,
    journal: Journal,
    names: NetnsNames,
    /// This boot of the node.
    boot: String,
    settings: Settings,
    faults: Arc<Faults>,
    gc_lock: gc_lock::GcLock,
    recovery_limits: RecoveryLimits,
}

/// What the configuration says.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Where a pod says none.
    pub(crate) data_path: DataPath,
    /// Where a pod does not say.
    pub(crate) anti_spoof: bool,
    /// Most queues of a NIC, whatever a pod says.
    pub(crate) max_queues: u16,
    /// How often a pod is tried that cannot be taken away.
    pub(crate) retry: RetryPolicy,
    /// Whether networks are collected by CNI GC.
    pub(crate) cni_gc: bool,
}

/// All pods on record.
#[derive(Debug)]
pub(crate) struct Pods<W> {
    shared: Arc<Shared<W>>,
}

/// A pod as its actor last published it.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) phase: PodPhase,
    pub(crate) request: Arc<Attach>,
    /// Its record is not understood: whose it is, and all else, is not known.
    pub(crate) unread: bool,
    /// File of its namespace.
    pub(crate) netns: Arc<Path>,
    /// What it was given; there while it is attached.
    pub(crate) net: Option<Arc<PodNet>>,
    /// An earlier life of the daemon left it, and it is not known yet how it is.
    pub(crate) recovering: bool,
    /// Why it is of no use although it is attached.
    pub(crate) trouble: Option<Arc<str>>,
}

/// The NICs of a pod, opened for its machine.
#[derive(Debug)]
pub(crate) struct OpenedNics {
    pub(crate) net: Arc<PodNet>,
    /// One for each NIC; empty for one that is no tap.
    pub(crate) taps: Vec<Opened>,
    /// Those that are passed through, if they go by descriptor.
    pub(crate) devices: Option<Devices>,
}

#[derive(Debug)]
struct Shared<W> {
    operations: Operations<W>,
    /// `None` once the daemon goes down.
    handles: Mutex<Option<BTreeMap<PodId, Handle>>>,
    actors: TaskTracker,
}

#[derive(Debug)]
struct Handle {
    commands: mpsc::Sender<Command>,
    view: watch::Receiver<Option<View>>,
}

// === impl Operations ===

impl<W> Operations<W> {
    /// In `boot` of the node, with namespaces of these `names`.
    pub(crate) fn new(
        world: W,
        journal: Journal,
        (names, boot): (NetnsNames, String),
        settings: Settings,
        faults: Arc<Faults>,
    ) -> Self {
        Self {
            world,
            journal,
            names,
            boot,
            settings,
            faults,
            gc_lock: gc_lock::GcLock::default(),
            recovery_limits: RecoveryLimits::new(),
        }
    }
}

// === impl Pods ===

impl<W: World> Pods<W> {
    /// No pod yet.
    pub(crate) fn new(operations: Operations<W>) -> Self {
        let handles = Mutex::new(Some(BTreeMap::new()));
        Self { shared: Arc::new(Shared { operations, handles, actors: TaskTracker::new() }) }
    }

    /// Gives the pod its network; repeating it gives the same answer.
    pub(crate) async fn attach(&self, attach: Attach) -> Result<Arc<PodNet>, PodError> {
        request::check(&attach)?;
        let (reply, answer) = oneshot::channel();
        let pod = attach.pod.clone();
        self.shared.tell(&pod, Command::Attach(Box::new(attach), reply)).await?;
        answer.await.map_err(|_| PodError::Died { pod })?
    }

    /// Takes the pod's network away; fine if it has none.
    pub(crate) async fn detach(&self, pod: &PodId) -> Result<(), PodError> {
        if !self.shared.lock().as_ref().ok_or(PodError::Closing)?.contains_key(pod) {
            // Every pod on record has its actor.
            return Ok(());
        }
        let (reply, answer) = oneshot::channel();
        self.shared.tell(pod, Command::Detach(reply)).await?;
        answer.await.map_err(|_| PodError::Died { pod: pod.clone() })?
    }

    /// Takes a pod that is in trouble up again.
    pub(crate) async fn take_up(&self, pod: &PodId) -> Result<Arc<PodNet>, PodError> {
        self.known(pod)?;
        let (reply, answer) = oneshot::channel();
        self.shared.tell(pod, Command::Recover(reply)).await?;
        answer.await.map_err(|_| PodError::Died { pod: pod.clone() })?
    }

    /// Compares a pod with what it was given.
    pub(crate) async fn check(&self, pod: &PodId) -> Result<CheckReport, PodError> {
        self.known(pod)?;
        let (reply, answer) = oneshot::channel();
        self.shared.tell(pod, Command::Check(reply)).await?;
        answer.await.map_err(|_| PodError::Died { pod: pod.clone() })?
    }

    /// All that is known of a pod.
    pub(crate) async fn inspect(&self, pod: &PodId) -> Result<PodDetail, PodError> {
        let view = self.known(pod)?;
        let (journal, of) = (self.shared.operations.journal.clone(), pod.clone());
        // What is only asked for now and then is not kept in memory.
        let record = off_reactor(move || journal.read(&of)).await;
        let explanation = record.ok().flatten().map_or_else(Vec::new, |record| explain::explain(&record));
        Ok(PodDetail {
            summary: view.summary(pod),
            request: view.request.as_ref().clone(),
            net: view.net.map(|net| net.as_ref().clone()),
            explanation: command::bounded(explanation),
        })
    }

    /// One page of the counters of the attached pods that are asked for, in the order of their ids. A pod that cannot be
    /// counted is left out.
    pub(crate) async fn stats(&self, list: &List) -> StatsPage {
        let (pods, more) = self.attached(list);
        let world = &self.shared.operations.world;
        let counted = futures_util::stream::iter(pods).map(|(pod, net)| async move {
            match world.stats(&net.netns, &net.nics).await {
                Ok(nics) => Some(PodStats { pod, nics }),
                Err(error) => {
                    debug!(pod = pod.as_str(), error = %Chain(&error), "pod is not counted");
                    None
                }
            }
        });
        let pods = counted.buffered(WORKED_ON_AT_ONCE).filter_map(std::future::ready).collect().await;
        StatsPage { pods, more }
    }

    fn attached(&self, list: &List) -> (Vec<(PodId, Arc<PodNet>)>, bool) {
        let handles = self.shared.lock();
        let mut attached = asked_for(handles.as_ref(), list).filter_map(|(pod, view)| Some((pod.clone(), view.net?)));
        let pods = attached.by_ref().take(usize::from(MAX_STATS_PAGE)).collect();
        (pods, attached.next().is_some())
    }

    fn known(&self, pod: &PodId) -> Result<View, PodError> {
        self.view(pod).ok_or_else(|| PodError::Unknown { pod: pod.clone() })
    }

    /// The span of work on the pod.
    pub(crate) fn span(&self, pod: &PodId) -> Span {
        span::of_pod(pod, self.view(pod).as_ref().map(|view| &*view.request))
    }

    /// The pod, if it is on record.
    pub(crate) fn view(&self, pod: &PodId) -> Option<View> {
        self.shared.lock().as_ref()?.get(pod)?.view.borrow().clone()
    }

    /// The pod if it is attached and of use: whoever gets a token or descriptors for it can use them.
    pub(crate) fn usable(&self, pod: &PodId) -> Result<Arc<PodNet>, PodError> {
        let view = self.known(pod)?;
        if view.recovering {
            return Err(PodError::Recovering { pod: pod.clone() });
        }
        match (view.phase, view.net, view.trouble) {
            (PodPhase::Attached, _, Some(trouble)) => {
                Err(PodError::Unusable { pod: pod.clone(), trouble: trouble.to_string() })
            }
            (PodPhase::Attached, Some(net), None) => Ok(net),
            (phase, _, _) => Err(PodError::NotAttached { pod: pod.clone(), phase }),
        }
    }

    /// Notes that a machine may have the pod's virtual functions from now on; see [`World::hand_out`]. Fine if it has none.
    pub(crate) async fn hand_out(&self, pod: &PodId, by_descriptor: bool) -> Result<Vec<PciAddress>, PodError> {
        let net = self.usable(pod)?;
        if net.vfio().next().is_none() {
            return Ok(Vec::new());
        }
        let handed = self.shared.operations.world.hand_out(pod, &net, by_descriptor).await;
        handed.map_err(|cause| PodError::HandOut { pod: pod.clone(), cause })
    }

    /// Opens the pod's NICs for its machine. The caller sends them and closes them at once. Blocks, and leaves this thread in
    /// the pod's namespace.
    pub(crate) fn open_nics(&self, pod: &PodId) -> Result<OpenedNics, PodError> {
        let net = self.usable(pod)?;
        let world = &self.shared.operations.world;
        let failed = |cause| PodError::Nics { pod: pod.clone(), cause };
        let devices = world.open_devices(pod, &net).map_err(failed)?;
        let taps = world.open_taps(&net.netns, &net.nics).map_err(failed)?;
        Ok(OpenedNics { net, taps, devices })
    }

    /// Whether a pod could be given a network now.
    pub(crate) async fn ready(&self) -> Ready {
        self.shared.operations.world.ready().await
    }

    /// The same from memory.
    pub(crate) fn known_ready(&self) -> Ready {
        self.shared.operations.world.known_ready()
    }

    /// Time spent on CNI plugins, in microseconds.
    pub(crate) fn plugin_micros(&self) -> u64 {
        self.shared.operations.world.plugin_micros()
    }

    /// A line for each network whose last ADD failed.
    pub(crate) fn failed_adds(&self) -> Vec<String> {
        self.shared.operations.world.failed_adds()
    }

    /// One page of the pods that are asked for, in the order of their ids.
    pub(crate) fn page(&self, list: &List) -> PodPage {
        let handles = self.shared.lock();
        let mut on_record = asked_for(handles.as_ref(), list).map(|(pod, view)| view.summary(pod));
        let pods = on_record.by_ref().take(usize::from(MAX_PAGE)).collect();
        PodPage { pods, more: on_record.next().is_some() }
    }

    /// How many pods are on record.
    pub(crate) fn count(&self) -> usize {
        let handles = self.shared.lock();
        handles.iter().flat_map(BTreeMap::values).filter(|handle| handle.view.borrow().is_some()).count()
    }

    /// Lets the actors finish what they are at and end, for as long as `grace`. Pods stay as they are.
    pub(crate) async fn close(&self, grace: Duration) {
        // Without senders an actor ends after its last command.
        drop(self.shared.lock().take());
        self.shared.actors.close();
        if tokio::time::timeout(grace, self.shared.actors.wait()).await.is_err() {
            warn!(left = self.shared.actors.len(), "pods were still being worked on; the next start recovers them");
        }
    }
}

/// The pods of a list with their views.
fn asked_for<'a>(
    handles: Option<&'a BTreeMap<PodId, Handle>>,
    list: &'a List,
) -> impl Iterator<Item = (&'a PodId, View)> {
    let bounds = match &list.pod {
        Some(only) => (Bound::Included(only), Bound::Included(only)),
        None => (list.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded),
    };
    handles
        .into_iter()
        .flat_map(move |handles| handles.range::<PodId, _>(bounds))
        .filter_map(|(pod, handle)| Some((pod, handle.view.borrow().clone()?)))
        .filter(|(_, view)| list.owner.is_none() || view.unread || view.request.owner == list.owner)
}

// === impl Shared ===

impl<W: World> Shared<W> {
    fn lock(&self) -> MutexGuard<'_, Option<BTreeMap<PodId, Handle>>> {
        // The map is whole between two statements, so a panic elsewhere does not spoil it.
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a command for the pod's actor, which is started if there is none. One that a bug has ended is started anew, from
    /// what is on record of the pod.
    async fn tell(self: &Arc<Self>, pod: &PodId, command: Command) -> Result<(), PodError> {
        let refused = match self.queue(pod, command)? {
            Err(TrySendError::Closed(command)) => {
                self.revive(pod).await;
                self.queue(pod, command)?
            }
            queued => queued,
        };
        refused.map_err(|refused| match refused {
            TrySendError::Full(_) => PodError::Busy { pod: pod.clone() },
            TrySendError::Closed(_) => PodError::Died { pod: pod.clone() },
        })
    }

    fn queue(self: &Arc<Self>, pod: &PodId, command: Command) -> Result<Result<(), TrySendError<Command>>, PodError> {
        let mut guard = self.lock();
        let handles = guard.as_mut().ok_or(PodError::Closing)?;
        let handle = handles.entry(pod.clone()).or_insert_with(|| self.start(pod.clone(), None));
        Ok(handle.commands.try_send(command))
    }

    async fn revive(self: &Arc<Self>, pod: &PodId) {
        let (journal, of) = (self.operations.journal.clone(), pod.clone());
        let read = off_reactor(move || journal.read(&of)).await;
        let mut guard = self.lock();
        let Some(handles) = guard.as_mut() else { return };
        if !handles.get(pod).is_some_and(|handle| handle.commands.is_closed()) {
            // Somebody else has done it meanwhile.
            return;
        }
        warn!(pod = pod.as_str(), "pod is taken up from its record, as its actor had ended by a bug");
        let left = match read {
            Ok(record) => record.map(Inherited::record),
            Err(file) => Some(Inherited::unread(&self.operations.names, pod.clone(), &file)),
        };
        let handle = self.start(pod.clone(), left);
        handles.insert(pod.clone(), handle);
    }

    /// Starts the actor of a pod: of a new one, or of one that an earlier life of the daemon left.
    fn start(self: &Arc<Self>, pod: PodId, left: Option<Inherited>) -> Handle {
        let (commands, queue) = mpsc::channel(MAX_WAITING);
        let (publish, view) = watch::channel(left.as_ref().map(Inherited::view));
        let actor = Actor::new(Arc::clone(self), pod, publish, left);
        self.actors.spawn(actor.run(queue));
        Handle { commands, view }
    }

    /// Forgets the actor of a pod that is no longer on record, unless somebody asked for something meanwhile.
    fn retire(&self, pod: &PodId, queue: &mpsc::Receiver<Command>) -> bool {
        let mut guard = self.lock();
        if !queue.is_empty() {
            return false;
        }
        if let Some(handles) = guard.as_mut() {
            handles.remove(pod);
        }
        true
    }
}

// === impl View ===

impl View {
    fn summary(&self, pod: &PodId) -> PodSummary {
        PodSummary {
            pod: pod.clone(),
            namespace: self.request.namespace.clone(),
            name: self.request.name.clone(),
            owner: self.request.owner.clone(),
            phase: self.phase,
            recovering: self.recovering,
            ip: self.net.as_ref().and_then(|net| net.addresses().first().copied()),
            trouble: self.trouble.as_deref().map(|trouble| shortened(trouble, MAX_TROUBLE)),
        }
    }
}

/// At most `room` bytes of JSON, without control characters.
fn shortened(text: &str, mut room: usize) -> String {
    let mut short = String::new();
    for c in text.chars() {
        let c = if c.is_control() { ' ' } else { c };
        // The quotation mark and the backslash are escaped.
        let bytes = c.len_utf8() + usize::from(matches!(c, '"' | '\\'));
        if bytes > room {
            break;
        }
        room -= bytes;
        short.push(c);
    }
    short
}

#[cfg(test)]
pub(crate) mod tests;
