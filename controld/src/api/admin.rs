//! The service for looking after images, beside CRI on the same socket: what CRI has no call for.
//!
//! Called by `virtletctl image`. Only root reaches the socket, so whoever calls may see all that the store knows.
//! Failures get their codes from the same place as CRI's.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use common::Chain;
use imagestore::StoreError;
use proto::images::image_admin_server::ImageAdmin;
use proto::images::*;
use tokio::sync::mpsc;
use tokio::time::interval;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use vmspec::error::Error;

use crate::api::status;
use crate::images::{Images, store_failed};

mod convert;
mod import;
pub mod machines;
pub mod orphans;
#[cfg(test)]
pub(crate) mod tests;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Messages that may wait for a slow reader.
const WAITING: usize = 16;

/// Messages that come one after the other.
type Messages<T> = ReceiverStream<Result<T, Status>>;

/// The service behind the calls.
#[derive(Debug, Clone)]
pub struct AdminCalls {
    images: Images,
}

impl AdminCalls {
    /// Calls to the image store.
    #[must_use]
    pub fn new(images: Images) -> Self {
        Self { images }
    }

    fn store(&self) -> &imagestore::Store {
        self.images.store()
    }

    fn present(&self, name: &str, handler: &str) -> Result<imagestore::Details, Status> {
        let found = self.store().inspect(name, handler).map_err(failed("image not looked up"))?;
        found.ok_or_else(|| failed("image not looked up")(StoreError::absent(name)))
    }
}

fn failed(what: &'static str) -> impl Fn(StoreError) -> Status {
    move |cause| status::of(&store_failed(what, cause))
}

fn optional(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// Pulls, and tells how far it is until it ends or nobody listens any more.
async fn pull(
    images: Images,
    request: imagestore::PullRequest,
    to: mpsc::Sender<Result<PullWithProgressResponse, Status>>,
) {
    let (name, handler) = (request.name.clone(), request.handler.clone());
    let mut pull = pin!(images.pull(request));
    // The first poll begins the download, or joins one.
    let first = poll_fn(|context| Poll::Ready(pull.as_mut().poll(context))).await;
    let progress = images.store().watch_pull(&name, &handler);
    let now = || progress.as_ref().map(|progress| *progress.borrow());
    let told_last = |outcome: Result<imagestore::Image, Error>| {
        let downloaded = now().is_some_and(|progress| progress.came() > 0);
        outcome.map(|pulled| convert::pulled(pulled, downloaded)).map_err(|error| status::of(&error))
    };
    if let Poll::Ready(outcome) = first {
        // Whoever went away wants no answer.
        let _ = to.send(told_last(outcome)).await;
        return;
    }
    let mut ticks = interval(PROGRESS_EVERY);
    let mut told = None;
    loop {
        tokio::select! {
            outcome = &mut pull => {
                let _ = to.send(told_last(outcome)).await;
                return;
            }
            () = to.closed() => return,
            _ = ticks.tick() => {
                if let Some(progress) = now().filter(|progress| told != Some(*progress)) {
                    told = Some(progress);
                    // One that finds no room is as good as the next one.
                    let _ = to.try_send(Ok(convert::progress(progress)));
                }
            }
        }
    }
}

#[tonic::async_trait]
impl ImageAdmin for AdminCalls {
    type PullWithProgressStream = Messages<PullWithProgressResponse>;
    type VerifyStream = Messages<VerifyResponse>;

    async fn pull_with_progress(
        &self,
        request: Request<PullWithProgressRequest>,
    ) -> Result<Response<Self::PullWithProgressStream>, Status> {
        let request = convert::pull_request(request.into_inner()).map_err(|error| status::of(&error))?;
        let (to, messages) = mpsc::channel(WAITING);
        tokio::spawn(pull(self.images.clone(), request, to));
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn import(&self, request: Request<Streaming<ImportRequest>>) -> Result<Response<ImportResponse>, Status> {
        let image = import::take(&self.images, request.into_inner()).await?;
        Ok(Response::new(ImportResponse { image: Some(convert::image(image)) }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let ListRequest { handler, name } = request.into_inner();
        let not_listed = failed("images not listed");
        let images = match name.is_empty() {
            true => self.store().list(&handler).map_err(not_listed)?,
            false => self.store().named(&name, &handler).map_err(not_listed)?,
        };
        let nameless = if name.is_empty() && handler.is_empty() { self.store().nameless() } else { Vec::new() };
        let images = images.into_iter().map(Arc::unwrap_or_clone).chain(nameless);
        Ok(Response::new(ListResponse { images: images.map(convert::image).collect() }))
    }

    async fn search(&self, request: Request<SearchRequest>) -> Result<Response<SearchResponse>, Status> {
        let SearchRequest { query, handler, provider, secrets } = request.into_inner();
        let found = self.store().search(&query, &handler, optional(&provider)).await;
        let found = found.map_err(failed("providers not searched"))?;
        let images = found.into_iter().map(|found| convert::remote(found, secrets)).collect();
        Ok(Response::new(SearchResponse { images }))
    }

    async fn inspect(&self, request: Request<InspectRequest>) -> Result<Response<InspectResponse>, Status> {
        let InspectRequest { name, handler } = request.into_inner();
        Ok(Response::new(convert::details(self.present(&name, &handler)?)))
    }

    async fn verify(&self, request: Request<VerifyRequest>) -> Result<Response<Self::VerifyStream>, Status> {
        let name = request.into_inner().name;
        let ids = self.store().stored(optional(&name));
        if ids.is_empty() && !name.is_empty() {
            return Err(failed("image not verified")(StoreError::absent(&name)));
        }
        let (to, messages) = mpsc::channel(WAITING);
        let store = self.store().clone();
        tokio::spawn(async move {
            for id in ids {
                let message = match store.verify(&id).await {
                    Ok(Some(verified)) => Ok(convert::verified(verified)),
                    // Removed in the meantime.
                    Ok(None) => continue,
                    Err(cause) => Err(failed("image not verified")(cause)),
                };
                let last = message.is_err();
                if to.send(message).await.is_err() || last {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Result<Response<RemoveResponse>, Status> {
        let RemoveRequest { name, handler, only_name } = request.into_inner();
        let store = self.store();
        let removed =
            if only_name { store.remove_name(&name, &handler).await } else { store.remove(&name, &handler).await };
        let removed = removed.map_err(failed("image not removed"))?;
        Ok(Response::new(RemoveResponse { images: removed.into_iter().map(convert::removed).collect() }))
    }

    async fn pin(&self, request: Request<PinRequest>) -> Result<Response<PinResponse>, Status> {
        let PinRequest { name, handler, pinned } = request.into_inner();
        let id = match self.present(&name, &handler) {
            Ok(found) => found.image.id,
            Err(absent) => self.store().pinned(&name).filter(|_| !pinned).ok_or(absent)?,
        };
        let done = if pinned { self.store().pin(&id).await } else { self.store().unpin(&id).await };
        done.map_err(failed("image not pinned"))?;
        Ok(Response::new(PinResponse { id: id.to_string() }))
    }

    async fn gc(&self, request: Request<GcRequest>) -> Result<Response<GcResponse>, Status> {
        let GcRequest { partials, orphan_handlers, quarantine } = request.into_inner();
        let options = imagestore::GcOptions { partials, orphan_handlers, quarantine };
        let report = self.store().gc(options).await.map_err(failed("nothing collected"))?;
        Ok(Response::new(convert::report(&report)))
    }

    async fn list_providers(
        &self,
        _request: Request<ListProvidersRequest>,
    ) -> Result<Response<ListProvidersResponse>, Status> {
        let providers = self.store().providers().into_iter().map(convert::provider).collect();
        Ok(Response::new(ListProvidersResponse { providers }))
    }

    async fn refresh_providers(
        &self,
        request: Request<RefreshProvidersRequest>,
    ) -> Result<Response<RefreshProvidersResponse>, Status> {
        let provider = request.into_inner().provider;
        let outcomes = self.store().refresh(optional(&provider)).await.map_err(failed("providers not refreshed"))?;
        let outcome = |(provider, outcome): (String, Result<(), _>)| refresh_providers_response::Outcome {
            provider,
            error: outcome.err().map(|error| Chain(&error).to_string()).unwrap_or_default(),
        };
        Ok(Response::new(RefreshProvidersResponse { outcomes: outcomes.into_iter().map(outcome).collect() }))
    }

    async fn clear_provider_caches(
        &self,
        request: Request<ClearProviderCachesRequest>,
    ) -> Result<Response<ClearProviderCachesResponse>, Status> {
        let ClearProviderCachesRequest { provider, forget_seen } = request.into_inner();
        match forget_seen {
            true => self.store().forget(&provider).await.map_err(failed("what was seen is not forgotten"))?,
            false => self.store().clear_caches(optional(&provider)).map_err(failed("caches not cleared"))?,
        }
        Ok(Response::new(ClearProviderCachesResponse {}))
    }
}
