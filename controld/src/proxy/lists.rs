//! Lists of what both sides have: the default's first, then ours, concatenated as they are encoded.
//!
//! All lists of CRI are one repeated message in field 1 of the answer, in `List*` and in the pieces of `Stream*` alike (a test holds the
//! protocol to it). So two lists after each other are the list of both, a collected stream is a list, and a list cut between its items is
//! a stream.
//!
//! What kubelet acts upon ([`Kind::is_kept`]) is whole or an error: while the default does not answer it is the last good list
//! ([`last_good`]). Usage and metrics of a moment that has gone are worth nothing, so that a side without an answer is left out of these;
//! but that the default does not know a call for usage is passed on, as kubelet has another source then ([`Kind::has_another_source`]).

pub(super) mod filter;
pub(super) mod last_good;
mod legible;
mod lengths;
mod look;
mod pieces;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tracing::Instrument as _;

use self::filter::Sides;
use self::last_good::{Ages, LastGood};
use self::lengths::Lengths;
use super::ask::{self, Question};
use super::backend::Backend;
use super::frames;
use super::kind::Kind;
use super::metrics::Metrics;
use super::own::{Own, ended_in_bug};
use super::side::Side;
use super::stats::Looks;
use super::unfit::{Names, fitting};
use super::{calls, wire};

#[cfg(test)]
mod tests;

/// Whole lists of one kind that may be under way at once. One that comes late is still kept, so it is not given up at the deadline.
const AT_ONCE: usize = 4;
/// How late that may be.
const LATEST: Duration = Duration::from_secs(60);

/// A call for a list.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// The request, with its filter.
    pub(super) message: Bytes,
    pub(super) sides: Sides,
    /// For the default.
    pub(super) metadata: MetadataMap,
    pub(super) streamed: bool,
    /// Metrics of ours that are left out.
    pub(super) unfit: Names,
}

/// Makes lists. Clones share what is kept.
#[derive(Debug, Clone)]
pub(super) struct Lists(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backend: Backend,
    own: Own,
    metrics: Metrics,
    sandboxes: Kept,
    containers: Kept,
    images: Kept,
    /// The default has said that it streams no lists; until its next connection.
    streams_none: AtomicBool,
    looks: Looks,
    lengths: Mutex<Lengths>,
}

#[derive(Debug)]
struct Kept {
    good: Mutex<LastGood>,
    ages: Mutex<Ages>,
    under_way: Arc<Semaphore>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { good: Mutex::default(), ages: Mutex::default(), under_way: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl Kept {
    fn good(&self) -> MutexGuard<'_, LastGood> {
        self.good.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ages(&self) -> MutexGuard<'_, Ages> {
        self.ages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lists {
    pub(super) fn new(backend: Backend, own: Own, metrics: Metrics) -> Self {
        let (sandboxes, containers, images) = Default::default();
        Self(Arc::new(Shared {
            backend,
            own,
            metrics,
            sandboxes,
            containers,
            images,
            streams_none: AtomicBool::new(false),
            looks: Looks::default(),
            lengths: Mutex::default(),
        }))
    }

    pub(super) fn looks(&self) -> &Looks {
        &self.0.looks
    }

    /// There is a new connection, perhaps to another version.
    pub(super) fn connected(&self) {
        self.0.streams_none.store(false, Ordering::Relaxed);
    }

    /// The default has removed what is called so.
    pub(super) fn removed(&self, kind: Kind, name: &str) {
        let mut touched = self.kept(kind).into_iter().collect::<Vec<_>>();
        if kind == Kind::Sandboxes {
            // Which takes its containers with it.
            touched.push(&self.0.containers);
        }
        for kept in touched {
            kept.good().remove(name);
        }
    }

    /// The default has made this, which a list shows as `item`.
    pub(super) fn made(&self, kind: Kind, id: &str, item: Bytes) {
        if let Some(kept) = self.kept(kind) {
            kept.good().make(id, item);
        }
    }

    /// Of each kept list, how old and how long it is.
    pub(super) fn shown(&self) -> Vec<(&'static str, Option<(Duration, usize)>)> {
        let of = |name, kept: &Kept| (name, kept.good().shown(Instant::now()));
        vec![of("sandboxes", &self.0.sandboxes), of("containers", &self.0.containers), of("images", &self.0.images)]
    }

    /// The answer to a call for a list.
    pub(super) async fn answer(&self, wanted: Wanted) -> Response<Body> {
        match self.parts(&wanted).await {
            Err(status) => status.into_http(),
            Ok(parts) if wanted.streamed => match pieces::of(&parts) {
                Ok(pieces) => frames::stream(tokio_stream::iter(pieces.into_iter().map(|piece| Ok(vec![piece])))),
                Err(error) => Status::internal(error.to_string()).into_http(),
            },
            Ok(parts) => frames::answer(parts),
        }
    }

    async fn parts(&self, wanted: &Wanted) -> Result<Vec<Bytes>, Status> {
        let default =
            async { if wanted.sides.has(Side::Default) { self.of_default(wanted).await } else { Ok(Bytes::new()) } };
        let own = async { if wanted.sides.has(Side::Ours) { self.of_own(wanted).await } else { Ok(Bytes::new()) } };
        let (default, own) = tokio::join!(default, own);
        let parts = vec![default?, own?];
        if wanted.sides == Sides::Both && is_whole(wanted)? {
            self.measure(wanted, &parts);
        }
        Ok(parts)
    }

    /// How long the whole of both is.
    fn measure(&self, wanted: &Wanted, parts: &[Bytes]) {
        let length: usize = parts.iter().map(Bytes::len).sum();
        let call = calls::name(wanted.kind.path());
        self.0.metrics.merged(call, length);
        let mut lengths = self.0.lengths.lock().unwrap_or_else(PoisonError::into_inner);
        // A stream is cut.
        if !wanted.streamed && lengths.is_news(call, length) {
            let [default, own] = [0, 1].map(|at: usize| parts.get(at).map_or(0, Bytes::len));
            tracing::warn!(call, default, own, "answer of {length} bytes; kubelet takes 16 MiB, and fails beyond");
        }
    }

    async fn of_own(&self, wanted: &Wanted) -> Result<Bytes, Status> {
        let question = Question::new(wanted.kind.path(), wanted.message.clone());
        let listed = match self.0.own.ask_for_list(question).await {
            Err(status) if !wanted.kind.is_kept() => return Ok(self.left_out(wanted.kind, Side::Ours, &status)),
            listed => listed?,
        };
        Ok(self.0.looks.checked(wanted.kind, fitting(listed, &wanted.unfit)?).await)
    }

    async fn of_default(&self, wanted: &Wanted) -> Result<Bytes, Status> {
        let Some(kept) = self.kept(wanted.kind) else {
            let listed = self.in_time(wanted, self.ask(wanted.clone())).await;
            return match listed {
                Ok(listed) => Ok(self.0.looks.checked(wanted.kind, listed).await),
                Err(status) if status.code() == Code::Unimplemented && wanted.kind.has_another_source() => Err(status),
                Err(status) => Ok(self.left_out(wanted.kind, Side::Default, &status)),
            };
        };
        let whole = is_whole(wanted)?;
        let listed = match self.0.backend.refused() {
            Some(refused) => Err(refused),
            None if whole => self.whole(kept, wanted).await,
            None => self.in_time(wanted, self.ask(wanted.clone())).await,
        };
        match listed {
            Ok(listed) => {
                // One with a filter is answered sooner, and says nothing of the rest.
                if whole {
                    self.0.metrics.fresh(calls::name(wanted.kind.path()));
                    kept.ages().fresh();
                }
                Ok(listed)
            }
            Err(status) => self.last_good(kept, wanted, status),
        }
    }

    /// Asks for a whole list, as soon as no more than [`AT_ONCE`] are under way, in a task that goes on behind the deadline.
    async fn whole(&self, kept: &Kept, wanted: &Wanted) -> Result<Bytes, Status> {
        self.in_time(wanted, async {
            let permit = kept.under_way.clone().acquire_owned().await;
            let permit = permit.map_err(|_closed| Status::internal("lists are not asked for any more"))?;
            let task = self.begin_whole(kept, wanted, permit);
            task.await.unwrap_or_else(|bug| Err(ended_in_bug("a list", &bug)))
        })
        .await
    }

    fn begin_whole(
        &self,
        kept: &Kept,
        wanted: &Wanted,
        permit: OwnedSemaphorePermit,
    ) -> JoinHandle<Result<Bytes, Status>> {
        let (lists, wanted, asked) = (self.clone(), wanted.clone(), kept.good().ask());
        tokio::spawn(
            async move {
                let listed = match timeout(LATEST, lists.ask(wanted.clone())).await {
                    Ok(listed) => listed?,
                    Err(_elapsed) => {
                        return Err(Status::deadline_exceeded("a list of the container runtime never came"));
                    }
                };
                if let Some(kept) = lists.kept(wanted.kind) {
                    kept.good().keep(asked, listed.clone(), Instant::now());
                }
                drop(permit);
                Ok(listed)
            }
            .in_current_span(),
        )
    }

    fn last_good(&self, kept: &Kept, wanted: &Wanted, status: Status) -> Result<Bytes, Status> {
        let Some(answer) = kept.good().answer(Instant::now()) else { return Err(status) };
        let listed = if is_whole(wanted)? && answer.gone.is_empty() {
            answer.list
        } else {
            let items = wire::items(&answer.list).map_err(wire::refused)?;
            filter::kept(wanted.kind, &wanted.message, items, &answer.gone).map_err(wire::refused)?.concat().into()
        };
        let call = calls::name(wanted.kind.path());
        tracing::debug!(call, age_s = answer.age.as_secs(), %status, "last good list in place of the container runtime's");
        self.0.metrics.stale(call, answer.age);
        if kept.ages().is_news(answer.age) {
            let age_s = answer.age.as_secs();
            tracing::warn!(call, age_s, %status, "the container runtime's pods are listed as they were last");
        }
        Ok(listed)
    }

    /// An empty part.
    fn left_out(&self, kind: Kind, side: Side, status: &Status) -> Bytes {
        let call = calls::name(kind.path());
        tracing::debug!(call, ?side, %status, "a side is left out of an answer");
        self.0.metrics.left_out(call, side);
        Bytes::new()
    }

    async fn in_time(
        &self,
        wanted: &Wanted,
        listed: impl Future<Output = Result<Bytes, Status>>,
    ) -> Result<Bytes, Status> {
        self.0.backend.within_deadline(calls::name(wanted.kind.path()), listed).await
    }

    /// The default's list. What is none would spoil ours behind it.
    async fn ask(&self, wanted: Wanted) -> Result<Bytes, Status> {
        let kind = wanted.kind;
        let listed = self.ask_unchecked(wanted).await?;
        legible::check(kind, &listed)
            .map_err(|error| Status::internal(format!("the container runtime's list is {error}")))?;
        Ok(listed)
    }

    async fn ask_unchecked(&self, wanted: Wanted) -> Result<Bytes, Status> {
        let shared = &self.0;
        let question = |path| Question {
            path: PathAndQuery::from_static(path),
            message: wanted.message.clone(),
            metadata: wanted.metadata.clone(),
        };
        if wanted.streamed && !shared.streams_none.load(Ordering::Relaxed) {
            let streamed = async {
                let path = wanted.kind.stream_path();
                ask::collected(ask::stream(shared.backend.clone(), question(path)).await?).await
            };
            match streamed.await {
                Err(status) if status.code() == Code::Unimplemented => {
                    // kubelet would give up streaming for good.
                    shared.streams_none.store(true, Ordering::Relaxed);
                }
                streamed => return streamed,
            }
        }
        let answer = ask::one(shared.backend.clone(), question(wanted.kind.path())).await?;
        Ok(answer.into_inner())
    }

    fn kept(&self, kind: Kind) -> Option<&Kept> {
        match kind {
            Kind::Sandboxes => Some(&self.0.sandboxes),
            Kind::Containers => Some(&self.0.containers),
            Kind::Images => Some(&self.0.images),
            Kind::ContainerStats | Kind::SandboxStats | Kind::Metrics => None,
        }
    }
}

fn is_whole(wanted: &Wanted) -> Result<bool, Status> {
    filter::is_whole(wanted.kind, &wanted.message).map_err(wire::refused)
}
