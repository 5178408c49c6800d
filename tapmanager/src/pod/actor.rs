//! The actor of one pod: executes commands one after the other, and keeps record, servers and view consistent.
//!
//! [`super::Pods`] starts it. [`super::machine`] decides what may follow what; [`super::attach`] and [`super::detach`]
//! have the steps; [`recovery`] takes a pod up after a restart; [`health`] looks after a pod that is attached. The
//! actor logs each error once, and returns it to the client if that is still there.

mod collect;
mod forget;
mod health;
mod recovery;

use std::path::Path;
use std::sync::Arc;

use common::Chain;
use proto::tap::{Attach, PodId, PodNet, PodPhase};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{Instrument as _, Span, error, info};

use super::attach::Progress;
use super::command::Command;
use super::error::{AttachError, DetachError, PodError, StepError, Undone};
use super::machine::{AfterFailure, NETNS_GONE, OnAttach, after_failure, on_attach};
use super::world::{Serving, World};
use super::{Shared, View};
use crate::blocking::operation;
use crate::cni::settle_macs;
use crate::journal::Record;
use crate::span;
pub(super) use recovery::{Inherited, RecoveryLimits};

/// The trouble of a pod whose server ended by itself.
const SERVER_ENDED: &str = "a server of its guest has ended, which is a bug; recover the pod";

#[derive(Debug)]
pub(super) struct Actor<W> {
    pub(super) shared: Arc<Shared<W>>,
    pub(super) pod: PodId,
    pub(super) publish: watch::Sender<Option<View>>,
    /// `None` while the pod is not on record.
    pub(super) state: Option<PodState>,
    /// There while its record is not understood.
    pub(super) unread: Option<View>,
    /// What was asked before the pod was recovered.
    pub(super) early: Option<Command>,
}

/// A pod that is on record.
#[derive(Debug)]
pub(super) struct PodState {
    pub(super) record: Record,
    pub(super) request: Arc<Attach>,
    netns: Arc<Path>,
    pub(super) serving: Option<Serving>,
    pub(super) trouble: Option<Arc<str>>,
    pub(super) net: Option<Arc<PodNet>>,
    /// When it is tried again to take it away.
    pub(super) retry: Option<Instant>,
    /// An earlier life of the daemon left it, and nobody has looked at it yet.
    pub(super) recovering: bool,
    /// It has been said that it is overdue.
    overdue: bool,
}

/// What wakes an actor.
enum Event {
    Asked(Command),
    Retry,
    ServerEnded,
    Closing,
}

impl<W: World> Actor<W> {
    pub(super) fn new(
        shared: Arc<Shared<W>>,
        pod: PodId,
        publish: watch::Sender<Option<View>>,
        left: Option<Inherited>,
    ) -> Self {
        let (state, unread) = match left {
            None => (None, None),
            Some(Inherited::Record(state)) => (Some(*state), None),
            Some(Inherited::Unread(view)) => (None, Some(view)),
        };
        Self { shared, pod, publish, state, unread, early: None }
    }

    /// Works until the pod is gone, or the daemon goes down, which leaves the pod as it is.
    pub(super) async fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        if self.state.is_some() {
            let span = self.span(None);
            if self.restore(&mut queue).instrument(span).await.is_break() {
                return;
            }
        }
        loop {
            let nothing = self.state.is_none() && self.unread.is_none() && self.early.is_none();
            if nothing && self.shared.retire(&self.pod, &queue) {
                return;
            }
            let event = self.next(&mut queue).await;
            // Its own: the work outlives the request for it.
            let span = self.span(Some(&event));
            match event {
                Event::Asked(command) if command.is_operation() => {
                    let work = operation(async move {
                        self.obey(command).await;
                        self
                    });
                    self = work.instrument(span).await;
                }
                Event::Asked(command) => self.obey(command).instrument(span).await,
                Event::Retry => drop(self.detach().instrument(span).await),
                Event::ServerEnded => span.in_scope(|| self.server_ended()),
                Event::Closing => break,
            }
        }
        if let Some(serving) = self.state.and_then(|state| state.serving) {
            serving.ended().await;
        }
    }

    fn span(&self, event: Option<&Event>) -> Span {
        let attach = match (event, &self.state) {
            (Some(Event::Asked(Command::Attach(attach, _))), _) => Some(&**attach),
            (_, state) => state.as_ref().map(|state| &*state.request),
        };
        span::of_pod(&self.pod, attach)
    }

    async fn next(&mut self, queue: &mut mpsc::Receiver<Command>) -> Event {
        if let Some(early) = self.early.take() {
            return Event::Asked(early);
        }
        let state = self.state.as_ref();
        let retry = state.and_then(|state| state.retry);
        let broken = state.filter(|state| state.trouble.is_none()).and_then(|state| state.serving.as_ref());
        tokio::select! {
            biased;
            command = queue.recv() => command.map_or(Event::Closing, Event::Asked),
            () = until(retry) => Event::Retry,
            () = ended(broken) => Event::ServerEnded,
        }
    }

    async fn obey(&mut self, command: Command) {
        // Whoever asked may have hung up: the work is done all the same, the answer is nobody's.
        match command {
            Command::Attach(request, reply) => drop(reply.send(self.attach(*request).await)),
            Command::Detach(reply) => self.detach_for(reply).await,
            Command::Recover(reply) => drop(reply.send(self.recover().await)),
            Command::Check(reply) => drop(reply.send(self.check().await)),
            Command::LookAfter(done) => {
                self.look_after().await;
                let _ = done.send(());
            }
            Command::Collect { leftovers, occasion, reply } => {
                drop(reply.send(self.collect(&leftovers, occasion).await));
            }
            Command::Forget { leftovers, reply } => drop(reply.send(self.forget(&leftovers).await)),
        }
    }

    async fn attach(&mut self, mut request: Attach) -> Result<Arc<PodNet>, PodError> {
        let state = self.state.as_ref();
        // As it was when the record was written, or the same request would differ from it.
        let networks = state.iter().flat_map(|state| &state.record.attachments).map(|attachment| &attachment.network);
        settle_macs(&mut request, networks);
        let standing = state.map(|state| (state.record.phase, &state.record.request));
        let trouble = state.and_then(|state| state.trouble.as_deref());
        match (on_attach(standing, trouble, &request), state.and_then(|state| state.net.as_ref())) {
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
        let operations = &self.shared.operations;
        let failed = |cause, undone| AttachError { pod: request.pod.clone(), cause, undone };
        let record = operations.intend(request).await.map_err(|cause| failed(cause, Undone::default()))?;
        self.unread = None;
        let state = self.state.insert(PodState::new(record));
        state.show(&self.publish);
        let mut progress = Progress::default();
        match operations.make(&mut state.record, &mut progress).await {
            Ok(net) => {
                state.serving = progress.serving;
                state.net = Some(Arc::clone(&net));
                state.show(&self.publish);
                let addresses = net.nics.iter().flat_map(|nic| &nic.addresses).map(ToString::to_string);
                let addresses = addresses.collect::<Vec<_>>().join(",");
                info!(addresses, ms = started.elapsed().as_secs_f64() * 1e3, "pod attached");
                Ok(net)
            }
            Err(cause) => {
                let undone = operations.undo(&mut state.record, progress).await;
                if undone.on_record {
                    self.schedule();
                } else {
                    self.gone();
                }
                Err(failed(cause, undone))
            }
        }
    }

    /// Takes the pod away, and answers as soon as its networks have it back: what is left then is the pod's alone.
    async fn detach_for(&mut self, reply: oneshot::Sender<Result<(), PodError>>) {
        let given_back = self.give_back().await;
        let goes_on = given_back.is_ok() && self.state.is_some();
        if goes_on {
            // Lists do not show the pod from here on, unless the rest fails.
            self.publish.send_replace(None);
        }
        let _ = reply.send(given_back.or_else(|cause| self.fail(cause)));
        if goes_on && let Err(cause) = self.drop_rest().await {
            // Whoever asked has the answer; the next try is the actor's own.
            let _ = self.fail(cause);
        }
    }

    /// Takes the pod away. Fine if it is overdue, whatever comes of it.
    pub(super) async fn detach(&mut self) -> Result<(), PodError> {
        let taken_away = self.take_away().await;
        taken_away.or_else(|cause| self.fail(cause))
    }

    /// After a failed try to take the pod away.
    fn fail(&mut self, cause: StepError) -> Result<(), PodError> {
        let error = DetachError { pod: self.pod.clone(), cause };
        match self.schedule() {
            AfterFailure::Overdue => Ok(()),
            AfterFailure::Again(pause) => {
                error!(error = %Chain(&error), again_s = pause.as_secs_f64(), "detach failed");
                Err(Box::new(error).into())
            }
        }
    }

    /// Tries to take the pod away, and notes what comes of it.
    pub(super) async fn take_away(&mut self) -> Result<(), StepError> {
        self.give_back().await?;
        self.drop_rest().await
    }

    /// Gives the pod's networks back.
    async fn give_back(&mut self) -> Result<(), StepError> {
        let Some(state) = &mut self.state else {
            self.leave_unread().await;
            return Ok(());
        };
        let started = Instant::now();
        state.net = None;
        state.trouble = None;
        state.retry = None;
        // Shown before it is begun: no descriptor is handed out any more.
        state.show_as(PodPhase::Detaching, &self.publish);
        self.shared.operations.give_back(&mut state.record, state.serving.as_ref()).await?;
        info!(ms = started.elapsed().as_secs_f64() * 1e3, "pod detached");
        Ok(())
    }

    /// Takes away what is left of the pod after [`Self::give_back`].
    async fn drop_rest(&mut self) -> Result<(), StepError> {
        let Some(state) = &mut self.state else { return Ok(()) };
        self.shared.operations.drop_rest(&mut state.record, state.serving.take()).await?;
        self.gone();
        Ok(())
    }

    /// After a failure to take the pod away: shows it, and decides when it is tried again.
    pub(super) fn schedule(&mut self) -> AfterFailure {
        let operations = &self.shared.operations;
        let Some(state) = &mut self.state else { return AfterFailure::Overdue };
        let Some(failing) = &state.record.failing else { return AfterFailure::Overdue };
        let after = after_failure(failing, operations.settings.retry, operations.world.now());
        let tries = failing.tries;
        let trouble = match after {
            AfterFailure::Again(pause) => {
                state.retry = Some(Instant::now() + pause);
                format!("not wholly taken away after {tries} tries, which go on: {}", failing.why)
            }
            AfterFailure::Overdue => {
                state.retry = None;
                if !std::mem::replace(&mut state.overdue, true) {
                    error!(tries, error = failing.why, "pod is overdue: something of it is left until it is collected");
                }
                format!("overdue, not wholly taken away after {tries} tries; collect tries again: {}", failing.why)
            }
        };
        state.in_trouble(&trouble, &self.publish);
        after
    }

    pub(super) fn gone(&mut self) {
        (self.state, self.unread) = (None, None);
        self.publish.send_replace(None);
    }

    fn server_ended(&mut self) {
        error!("a server of the pod has ended");
        self.trouble(SERVER_ENDED);
    }

    pub(super) fn trouble(&mut self, trouble: &str) {
        if let Some(state) = &mut self.state {
            state.in_trouble(trouble, &self.publish);
        }
    }

    /// Why there is nothing that could be checked or taken up.
    pub(super) fn not_here(&self) -> PodError {
        match self.unread.as_ref().and_then(|view| view.trouble.as_deref()) {
            Some(trouble) => PodError::Unusable { pod: self.pod.clone(), trouble: trouble.to_owned() },
            None => PodError::Unknown { pod: self.pod.clone() },
        }
    }

    pub(super) fn netns_gone(&self) -> PodError {
        PodError::Unusable { pod: self.pod.clone(), trouble: NETNS_GONE.to_owned() }
    }
}

impl PodState {
    /// Of a record that an earlier life of the daemon left.
    pub(super) fn left(record: Record) -> Self {
        Self { recovering: true, ..Self::new(record) }
    }

    fn new(record: Record) -> Self {
        let net = record.net.clone().filter(|_| record.phase == PodPhase::Attached).map(Arc::new);
        let request = Arc::new(record.request.clone());
        let netns = Arc::from(record.netns.as_path());
        Self {
            request,
            netns,
            record,
            serving: None,
            trouble: None,
            net,
            retry: None,
            recovering: false,
            overdue: false,
        }
    }

    pub(super) fn in_trouble(&mut self, trouble: &str, publish: &watch::Sender<Option<View>>) {
        self.trouble = Some(trouble.into());
        self.show(publish);
    }

    pub(super) fn show(&self, publish: &watch::Sender<Option<View>>) {
        self.show_as(self.record.phase, publish);
    }

    fn show_as(&self, phase: PodPhase, publish: &watch::Sender<Option<View>>) {
        publish.send_replace(Some(View { phase, ..self.view() }));
    }

    pub(super) fn view(&self) -> View {
        View {
            phase: self.record.phase,
            request: Arc::clone(&self.request),
            netns: Arc::clone(&self.netns),
            net: self.net.clone(),
            recovering: self.recovering,
            unread: false,
            trouble: self.trouble.clone(),
        }
    }
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

async fn ended(serving: Option<&Serving>) {
    match serving {
        Some(serving) => serving.broken().cancelled().await,
        None => std::future::pending().await,
    }
}
