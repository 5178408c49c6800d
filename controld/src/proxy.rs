//! The CRI of a node that has another container runtime beside us, the *default*: whose pods are containers, and all that we do not
//! know is its own.
//!
//! [`Front`] takes every call of the socket in the place of [`Door`]. [`calls`] says where each goes: to the default ([`backend`]), to our
//! own services behind the door ([`own`]), or to both. What always holds:
//!
//! - What one side alone answers goes through as it came ([`relay`]). Messages are read where something is decided or added, and then
//!   only the fields that it takes ([`wire`], [`frames`]): a newer kubelet and a newer runtime meet through an older proxy.
//! - An id tells its side by its first two letters ([`side`]); nothing is kept by id. [`keys`] decides for what has no id yet.
//! - A side that is away or slow shortens no list ([`lists`]), since kubelet takes what is not listed for gone, and makes it again.
//! - Neither side waits for the other: a call to the default needs nothing of ours but this room, and what is asked of either for a
//!   common answer has a deadline, after which the last good answer serves. So has what one is asked about a call to the other
//!   ([`pods`], [`images`]).
//! - Which side answers a call is told by the call alone; where nothing tells, both are asked, the default first.
//!
//! The decisions are ADR 44's; `docs/proxy.md` is for people.

mod ask;
mod backend;
mod calls;
mod client_deadline;
mod containers;
mod descriptors;
mod events;
mod filesystems;
mod frames;
mod images;
mod keys;
mod kind;
mod lists;
pub mod metrics;
mod node;
mod own;
mod pods;
mod relay;
mod saved;
mod side;
mod stats;
mod status;
mod unfit;
mod uses;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use common::watch::Watcher;
use futures_util::future::BoxFuture;
use proto::side::{OURS, SIDE};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{Request, Response};
use tower::Service;
use tracing::Instrument as _;

use self::ask::metadata;
use self::backend::{Backend, Greeted, Pace};
use self::calls::{Known, Route};
use self::frames::Read;
use self::keys::Keys;
use self::kind::Kind;
use self::lists::{Lists, Wanted};
use self::metrics::Metrics;
use self::own::{Deadlines, Own};
use self::saved::Saved;
use self::side::Side;
use self::uses::{State, Uses, plain};
use crate::api::door::Door;
use crate::api::edge::PassedOn;
use crate::config::Config;

#[cfg(test)]
mod tests;

/// Takes all calls. Clones share what they use.
#[derive(Debug, Clone)]
pub struct Front(Arc<Uses>);

/// A proxy that has begun to connect.
#[derive(Debug)]
pub struct Proxy {
    front: Front,
    /// Ends with us.
    _keeper: AbortOnDropHandle<()>,
}

impl Proxy {
    /// In front of what is behind `door`, whose work `runtime` does, if the configuration names another runtime than the process `us`,
    /// which we are. It may come, go and come back at any time.
    #[must_use]
    pub fn open(config: &Config, (door, runtime): (&Door, &Handle), us: u32) -> Option<Self> {
        Self::open_with(config, (door, runtime), us, own::DEADLINE)
    }

    /// [`Self::open`], with another deadline for our part of an answer.
    fn open_with(config: &Config, (door, runtime): (&Door, &Handle), us: u32, deadline: Duration) -> Option<Self> {
        let endpoint = config.proxy.runtime_endpoint.as_ref()?;
        let metrics = Metrics::default();
        let backend = Backend::new(endpoint.path().to_owned(), us, config.proxy.list_deadline, metrics.clone());
        let own =
            Own::new(door.clone(), runtime.clone(), Deadlines { most: deadline, lists: config.proxy.list_deadline });
        let uses = Uses {
            lists: Lists::new(backend.clone(), own.clone(), metrics.clone()),
            keys: Keys::new(config),
            saved: Saved::open(config.state_dir.join("proxy.json"), endpoint.to_string()),
            state: State::new(config.cgroup_driver),
            status_turn: Arc::new(Semaphore::new(1)),
            backend,
            own,
            metrics,
        };
        let front = Front(Arc::new(uses));
        let keeper = backend::keep(front.0.backend.clone(), front.clone(), Watcher::start(), Pace::default());
        let keeper = AbortOnDropHandle::new(tokio::spawn(keeper));
        tracing::info!(runtime_endpoint = %endpoint, "in front of another container runtime");
        Some(Self { front, _keeper: keeper })
    }

    /// What takes the calls.
    #[must_use]
    pub fn front(&self) -> Front {
        self.front.clone()
    }

    /// Warns of ids on our records that lead to the other runtime.
    pub fn warn_of(&self, ids: impl IntoIterator<Item = String>) {
        let ids = side::not_told(ids);
        if !ids.is_empty() {
            tracing::warn!(
                ?ids,
                "records of an early release: their ids do not begin with `vm`, and calls for them go to the container runtime, which \
                 does not know them; remove their pods with `[proxy]` off"
            );
        }
    }

    /// Its figures.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.front.0.metrics
    }
}

impl Front {
    /// Waits until the runtime can be asked.
    pub async fn reaches_runtime(&self) {
        self.0.backend.back().await;
    }
}

impl Greeted for Front {
    fn connected(&self, version: Bytes) {
        self.0.lists.connected();
        let uses = self.0.clone();
        // Beside the calls, which need not wait.
        tokio::spawn(async move {
            node::keep_version(&uses, &version);
            node::compare(&uses).await;
        });
    }

    fn reachable(&self, is: bool) {
        self.0.metrics.up(is);
    }
}

impl Service<Request<Body>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let uses = self.0.clone();
        let means_ours = request.headers().get(SIDE).is_some_and(|side| side == OURS);
        let route = if means_ours { Route::Ours } else { calls::route(request.uri().path()) };
        Box::pin(
            async move {
                Ok(match route {
                    Route::Ours => uses.own.call(request).await,
                    Route::V1Alpha2 => node::too_old(),
                    Route::Default => {
                        let (parts, body) = request.into_parts();
                        relay::forward(&uses.backend, parts, body).await
                    }
                    Route::Read(known) => {
                        let (parts, body) = request.into_parts();
                        let answered = async { answer(&uses, known, parts, frames::read(body).await?).await };
                        answered.await.unwrap_or_else(|status: Status| status.into_http())
                    }
                })
            }
            .in_current_span(),
        )
    }
}

/// The answer to a call that has to be looked at.
async fn answer(uses: &Arc<Uses>, known: Known, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    match known {
        Known::Id(field) | Known::Url(field) | Known::Removal(field, _) => {
            by_id(uses, known, field, parts, request).await
        }
        Known::Sandbox { config, handler } => containers::sandbox(uses, parts, request, config, handler).await,
        Known::CreateContainer => containers::create(uses, parts, request).await,
        Known::List(kind) | Known::Stream(kind) => {
            let streamed = matches!(known, Known::Stream(_));
            list(uses, kind, streamed, &parts, request).await
        }
        Known::MetricDescriptors => descriptors::answer(uses).await,
        Known::Events => events::answer(uses, request.message).await,
        Known::PullImage => images::pull(uses, parts, request).await,
        Known::ImageStatus => images::status(uses, parts, request).await,
        Known::RemoveImage => images::remove(uses, parts, request).await,
        Known::ImageFsInfo => Ok(frames::answer(filesystems::answer(uses).await?)),
        Known::Version => node::version(uses, &parts, request).await,
        Known::Status => node::status(uses, &parts, request).await,
        Known::RuntimeConfig => node::runtime_config(uses, &parts).await,
        Known::UpdateRuntimeConfig => node::update_runtime_config(uses, parts, request).await,
    }
}

async fn by_id(uses: &Uses, known: Known, field: u32, parts: Parts, request: Read) -> Result<Response<Body>, Status> {
    let id = wire::text(&request.message, &[field]).map_err(wire::refused)?;
    if Side::of_id(id) == Side::Ours {
        return Ok(uses.own.call(plain(parts, request.body())).await);
    }
    match known {
        Known::Url(_) => url(uses, &parts, request).await,
        Known::Removal(_, kind) => containers::remove(uses, parts, request, kind).await,
        _ => Ok(relay::forward(&uses.backend, parts, request.body()).await),
    }
}

/// A URL that kubelet connects to. One without a host, as dockershim had them, would lead to kubelet itself.
async fn url(uses: &Uses, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    PassedOn::note(&parts.extensions);
    let answer = containers::inspected(uses, parts, &request).await?;
    let url = wire::text(answer.get_ref(), &[1]).unwrap_or_default();
    let host = url.split_once("://").map_or("", |(_, rest)| rest);
    if host.is_empty() || host.starts_with('/') {
        return Err(Status::internal(format!(
            "the container runtime's streaming URL `{}` has no host; set an absolute stream URL in the runtime",
            keys::shown(url)
        )));
    }
    Ok(containers::answered(answer))
}

async fn list(uses: &Uses, kind: Kind, streamed: bool, parts: &Parts, request: Read) -> Result<Response<Body>, Status> {
    let sides = match kind {
        Kind::Images => images::sides(uses, &request.message)?,
        _ => lists::filter::sides(kind, &request.message).map_err(wire::refused)?,
    };
    let unfit = if kind == Kind::Metrics { descriptors::unfit(uses).await } else { unfit::Names::default() };
    let metadata = metadata(parts, false);
    let wanted = Wanted { kind, message: request.message, sides, metadata, streamed, unfit };
    Ok(uses.lists.answer(wanted).await)
}
