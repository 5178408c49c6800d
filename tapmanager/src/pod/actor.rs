//! The owner of one pod: takes commands one after the other, keeps record, servers and view in step.
//!
//! Started by [`super::Pods`]. What may follow what is decided in [`super::machine`]; how it is done is in
//! [`super::attach`]. Errors are logged here, once, and returned to whoever asked, if they are still there.

use std::sync::Arc;
use std::time::Instant;

use proto::tap::{Attach, PodId, PodNet, PodPhase};
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{error, info, warn};

use super::attach::Progress;
use super::error::{AttachError, DetachError, PodError, Undone};
use super::machine::{OnAttach, OnRestart, on_attach, on_restart};
use super::world::{Serving, World};
use super::{Shared, View};
use crate::chain::Chain;
use crate::journal::Record;

/// What can be asked of a pod. The larger parts are boxed, because queues are made of these.
#[derive(Debug)]
pub(super) enum Command {
    Attach(Box<Attach>, oneshot::Sender<Result<Arc<PodNet>, PodError>>),
    Detach(oneshot::Sender<Result<(), PodError>>),
    /// Take the pod up from an earlier life of the daemon.
    Recover(Box<Record>, oneshot::Sender<()>),
}

#[derive(Debug)]
pub(super) struct Actor<W> {
    shared: Arc<Shared<W>>,
    pod: PodId,
    publish: watch::Sender<Option<View>>,
    /// `None` while the pod is not on record.
    held: Option<Held>,
}

/// A pod on record.
#[derive(Debug)]
struct Held {
    record: Record,
    request: Arc<Attach>,
    serving: Option<Serving>,
    trouble: Option<Arc<str>>,
    net: Option<Arc<PodNet>>,
}

impl<W: World> Actor<W> {
    pub(super) const fn new(shared: Arc<Shared<W>>, pod: PodId, publish: watch::Sender<Option<View>>) -> Self {
        Self { shared, pod, publish, held: None }
    }

    /// Works until the pod is gone, or the daemon goes down, which leaves the pod as it is.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        while let Some(command) = queue.recv().await {
            // Whoever asked may have hung up: the work is done all the same, the answer is nobody's.
            match command {
                Command::Attach(request, reply) => drop(reply.send(self.attach(*request).await)),
                Command::Detach(reply) => drop(reply.send(self.detach().await)),
                Command::Recover(record, done) => {
                    self.recover(*record).await;
                    let _ = done.send(());
                }
            }
            if self.held.is_none() && self.shared.retire(&self.pod, &queue) {
                return;
            }
        }
        if let Some(serving) = self.held.and_then(|held| held.serving) {
            serving.ended().await;
        }
    }

    async fn attach(&mut self, request: Attach) -> Result<Arc<PodNet>, PodError> {
        let held = self.held.as_ref();
        let standing = held.map(|held| (held.record.phase, &held.record.request));
        let trouble = held.and_then(|held| held.trouble.as_deref());
        match (on_attach(standing, trouble, &request), held.and_then(|held| held.net.as_ref())) {
            (OnAttach::Same, Some(net)) => Ok(Arc::clone(net)),
            (OnAttach::Refuse(why), _) => Err(PodError::Conflict { pod: self.pod.clone(), why }),
            // An attached pod that has no network on record does not exist: the journal refuses it.
            (OnAttach::Make | OnAttach::Same, _) => self.make(&request).await.map_err(|error| {
                error!(error = %Chain(&error), undone = %error.undone, "attach failed");
                PodError::from(Box::new(error))
            }),
        }
    }

    async fn make(&mut self, request: &Attach) -> Result<Arc<PodNet>, AttachError> {
        let started = Instant::now();
        let tools = &self.shared.tools;
        let failed = |cause, undone| AttachError { pod: request.pod.clone(), cause, undone };
        let record = tools.intend(request).await.map_err(|cause| failed(cause, Undone::default()))?;
        let held = self.held.insert(Held::new(record));
        held.show(&self.publish);
        let mut progress = Progress::none();
        match tools.make(&mut held.record, &mut progress).await {
            Ok(net) => {
                held.serving = progress.serving;
                held.net = Some(Arc::clone(&net));
                held.show(&self.publish);
                let addresses = net.nics.iter().flat_map(|nic| &nic.addresses).map(ToString::to_string);
                let addresses = addresses.collect::<Vec<_>>().join(",");
                info!(addresses, ms = started.elapsed().as_secs_f64() * 1e3, "pod attached");
                Ok(net)
            }
            Err(cause) => {
                let undone = tools.undo(&mut held.record, progress, &cause).await;
                if undone.on_record {
                    held.show(&self.publish);
                } else {
                    self.held = None;
                    self.publish.send_replace(None);
                }
                Err(failed(cause, undone))
            }
        }
    }

    async fn detach(&mut self) -> Result<(), PodError> {
        let Some(held) = &mut self.held else { return Ok(()) };
        let started = Instant::now();
        held.net = None;
        held.trouble = None;
        // Shown before it is begun: no descriptor is handed out any more.
        held.show_as(PodPhase::Detaching, &self.publish);
        match self.shared.tools.detach(&mut held.record, held.serving.take()).await {
            Ok(()) => {
                self.held = None;
                self.publish.send_replace(None);
                info!(ms = started.elapsed().as_secs_f64() * 1e3, "pod detached");
                Ok(())
            }
            Err(cause) => {
                let error = DetachError { pod: self.pod.clone(), cause };
                error!(error = %Chain(&error), "detach failed");
                Err(Box::new(error).into())
            }
        }
    }

    async fn recover(&mut self, record: Record) {
        let world = &self.shared.tools.world;
        let held = self.held.insert(Held::new(record));
        held.show(&self.publish);
        let seen = match world.look(&held.record.netns).await {
            Ok(seen) => seen,
            Err(error) => {
                error!(error = %Chain(&error), "pod was not recovered");
                return held.in_trouble(&Chain(&error).to_string(), &self.publish);
            }
        };
        match on_restart(held.record.phase, seen) {
            OnRestart::TakeAway => {
                info!(phase = ?held.record.phase, "taking away what an earlier run left half done");
                // Logged where it fails; the pod waits for a detach then.
                let _ = self.detach().await;
            }
            OnRestart::Report(trouble) => {
                warn!(trouble, "pod cannot be served");
                held.in_trouble(trouble, &self.publish);
            }
            OnRestart::Serve => {
                let Some(net) = held.net.clone() else { return };
                match world.rejoin(&net.netns, &net.nics).await {
                    Ok(sockets) => {
                        held.serving = Some(world.serve(&net, &held.record.request.hostname, sockets));
                        info!("pod is served again");
                    }
                    Err(error) => {
                        error!(error = %Chain(&error), "pod cannot be served again");
                        held.in_trouble(&Chain(&error).to_string(), &self.publish);
                    }
                }
            }
        }
    }
}

impl Held {
    fn new(record: Record) -> Self {
        let net = record.net.clone().map(Arc::new);
        Self { request: Arc::new(record.request.clone()), record, serving: None, trouble: None, net }
    }

    fn in_trouble(&mut self, trouble: &str, publish: &watch::Sender<Option<View>>) {
        self.trouble = Some(trouble.into());
        self.show(publish);
    }

    fn show(&self, publish: &watch::Sender<Option<View>>) {
        self.show_as(self.record.phase, publish);
    }

    fn show_as(&self, phase: PodPhase, publish: &watch::Sender<Option<View>>) {
        publish.send_replace(Some(View {
            phase,
            request: Arc::clone(&self.request),
            net: self.net.clone(),
            trouble: self.trouble.clone(),
        }));
    }
}
