//! The fake's service for images: a list that changes, and canned answers to all else.

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use proto::images::image_admin_server::ImageAdmin;
use proto::images::*;
use tonic::{Request, Response, Status, Streaming};

use super::{Answer, Handle};

type Messages<T> = BoxStream<'static, Result<T, Status>>;

/// What the service answers to those who look.
#[derive(Default)]
pub(in crate::tests) struct Canned {
    /// Messages of a pull; if there are none, it makes an image.
    pub(in crate::tests) pull: Vec<Result<PullWithProgressResponse, Status>>,
    /// Whether a pull never ends.
    pub(in crate::tests) stalls: bool,
    pub(in crate::tests) found: Vec<RemoteImage>,
    pub(in crate::tests) details: InspectResponse,
    pub(in crate::tests) verdicts: Vec<VerifyResponse>,
    pub(in crate::tests) report: GcResponse,
    /// What keeps the file of an image that is removed.
    pub(in crate::tests) kept: Option<Keepers>,
    pub(in crate::tests) providers: Vec<Provider>,
    pub(in crate::tests) outcomes: Vec<refresh_providers_response::Outcome>,
}

impl Handle {
    /// Pulls that were asked for.
    pub(in crate::tests) fn pulls(&self) -> Vec<PullWithProgressRequest> {
        self.state().pulls.clone()
    }

    pub(in crate::tests) fn add_image(&self, image: Image) {
        self.state().images.push(image);
    }
}

/// Whether a name, or the beginning of an id, means an image.
pub(super) fn is_meant(image: &Image, name: &str) -> bool {
    let prefix = name.strip_prefix("sha256:").unwrap_or(name);
    let latest = format!("{name}:latest");
    image.repo_tags.iter().any(|tag| tag == name || *tag == latest)
        || (prefix.len() >= 8 && image.id.starts_with(&format!("sha256:{prefix}")))
}

#[tonic::async_trait]
impl ImageAdmin for Handle {
    type PullWithProgressStream = Messages<PullWithProgressResponse>;
    type VerifyStream = Messages<VerifyResponse>;

    async fn pull_with_progress(
        &self,
        request: Request<PullWithProgressRequest>,
    ) -> Answer<Self::PullWithProgressStream> {
        let request = request.into_inner();
        self.called("PullWithProgress", &request.name.clone(), |state| {
            state.pulls.push(request.clone());
            let mut messages = state.canned.pull.clone();
            if messages.is_empty() {
                let image = Image {
                    id: format!("sha256:{}", "ab".repeat(32)),
                    handler: if request.handler.is_empty() { "virtlet".into() } else { request.handler },
                    repo_tags: vec![request.name],
                    size: 3 << 20,
                    virtual_size: 1 << 30,
                    ..Image::default()
                };
                state.images.push(image.clone());
                let event = pull_with_progress_response::Event::Result(PullResult {
                    image: Some(image),
                    stale: false,
                    downloaded: false,
                });
                messages.push(Ok(PullWithProgressResponse { event: Some(event) }));
            }
            let messages = stream::iter(messages);
            if state.canned.stalls { messages.chain(stream::pending()).boxed() } else { messages.boxed() }
        })
    }

    async fn import(&self, request: Request<Streaming<ImportRequest>>) -> Answer<ImportResponse> {
        use import_request::Part;
        let mut parts = request.into_inner();
        let Some(ImportRequest { part: Some(Part::Head(head)) }) = parts.message().await? else {
            return Err(Status::invalid_argument("no head"));
        };
        if head.name.starts_with("refused/") {
            return Err(Status::failed_precondition("UnsafeImage: image not taken: its header is \u{1b}[2Jodd"));
        }
        let mut bytes = Vec::new();
        loop {
            match parts.message().await?.and_then(|message| message.part) {
                Some(Part::Piece(piece)) => bytes.extend(piece),
                Some(Part::End(_)) => break,
                other => return Err(Status::invalid_argument(format!("cut off, or odd: {other:?}"))),
            }
        }
        let ImportHead { name, handler, format, length } = head;
        let image = Image {
            id: format!("sha256:{}", "ef".repeat(32)),
            handler: if handler.is_empty() { "virtlet".into() } else { handler },
            repo_tags: vec![name.clone()],
            size: bytes.len() as u64,
            format: format.clone(),
            provider: "import".into(),
            ..Image::default()
        };
        let told = format!("{name} {} {format} {length} {}", image.handler, String::from_utf8_lossy(&bytes));
        self.called("Import", &told, |state| {
            state.images.push(image.clone());
            ImportResponse { image: Some(image) }
        })
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        let ListRequest { handler, name } = request.into_inner();
        let state = self.state();
        let of_handler = state.images.iter().filter(|image| handler.is_empty() || image.handler == handler);
        let mut images: Vec<Image> =
            of_handler.filter(|image| name.is_empty() || is_meant(image, &name)).cloned().collect();
        // As in the store, what is stale is meant by nobody, and the beginning of several ids means none.
        images.retain(|image| name.is_empty() || !image.stale);
        if !name.is_empty() && images.iter().any(|image| image.id != images[0].id) {
            images.clear();
        }
        Ok(Response::new(ListResponse { images }))
    }

    async fn search(&self, request: Request<SearchRequest>) -> Answer<SearchResponse> {
        let SearchRequest { query, handler, provider, secrets } = request.into_inner();
        self.called("Search", &format!("{query} {handler} {provider} {secrets}"), |state| SearchResponse {
            images: state.canned.found.clone(),
        })
    }

    async fn inspect(&self, request: Request<InspectRequest>) -> Answer<InspectResponse> {
        let InspectRequest { name, handler } = request.into_inner();
        self.called("Inspect", &format!("{name} {handler}"), |state| state.canned.details.clone())
    }

    async fn verify(&self, request: Request<VerifyRequest>) -> Answer<Self::VerifyStream> {
        let name = request.into_inner().name;
        if name == "absent" {
            return Err(Status::not_found("no image `absent`"));
        }
        self.called("Verify", &name, |state| stream::iter(state.canned.verdicts.clone()).map(Ok).boxed())
    }

    async fn remove(&self, request: Request<RemoveRequest>) -> Answer<RemoveResponse> {
        let RemoveRequest { name, handler, only_name } = request.into_inner();
        if !only_name {
            return Err(Status::invalid_argument("a person means the name that they say"));
        }
        self.called("Remove", &format!("{name} {handler}"), |state| {
            let is_going = |image: &Image| {
                let is_of = handler.is_empty() || image.handler == handler;
                is_of && !image.repo_digests.is_empty() | !image.repo_tags.is_empty() && is_meant(image, &name)
            };
            let (going, staying): (Vec<Image>, Vec<Image>) = state.images.drain(..).partition(is_going);
            // As in the store, the beginning of several ids means none.
            if going.iter().any(|image| image.id != going[0].id) {
                state.images = going.into_iter().chain(staying).collect();
                return RemoveResponse::default();
            }
            state.images = staying;
            let removed = |image: Image| Removed {
                names: image
                    .repo_tags
                    .into_iter()
                    .map(|name| Binding { name, handler: image.handler.clone() })
                    .collect(),
                kept: state.canned.kept.clone(),
                id: image.id,
            };
            RemoveResponse { images: going.into_iter().map(removed).collect() }
        })
    }

    async fn pin(&self, request: Request<PinRequest>) -> Answer<PinResponse> {
        let PinRequest { name, handler, pinned } = request.into_inner();
        self.called("Pin", &format!("{name} {handler} {pinned}"), |_| PinResponse { id: "sha256:ab\u{1b}".into() })
    }

    async fn gc(&self, request: Request<GcRequest>) -> Answer<GcResponse> {
        self.called("Gc", &format!("{:?}", request.into_inner()), |state| state.canned.report)
    }

    async fn list_providers(&self, _: Request<ListProvidersRequest>) -> Answer<ListProvidersResponse> {
        Ok(Response::new(ListProvidersResponse { providers: self.state().canned.providers.clone() }))
    }

    async fn refresh_providers(&self, request: Request<RefreshProvidersRequest>) -> Answer<RefreshProvidersResponse> {
        self.called("RefreshProviders", &request.into_inner().provider, |state| RefreshProvidersResponse {
            outcomes: state.canned.outcomes.clone(),
        })
    }

    async fn clear_provider_caches(
        &self,
        request: Request<ClearProviderCachesRequest>,
    ) -> Answer<ClearProviderCachesResponse> {
        let ClearProviderCachesRequest { provider, forget_seen } = request.into_inner();
        let call = if forget_seen { "ForgetProvider" } else { "ClearProviderCaches" };
        self.called(call, &provider, |_| ClearProviderCachesResponse {})
    }
}
