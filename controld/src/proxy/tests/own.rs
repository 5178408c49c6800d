//! Services of our own that a test puts behind the door.

use std::sync::{Arc, Mutex};

use proto::cri::image_service_server::{ImageService, ImageServiceServer};
use proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use proto::cri::*;
use tonic::codegen::BoxStream;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// What our side has, and was asked. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnSide(Arc<Mutex<Has>>);

#[derive(Debug, Default)]
pub(super) struct Has {
    pub(super) sandboxes: Vec<PodSandbox>,
    pub(super) containers: Vec<Container>,
    pub(super) images: Vec<Image>,
    pub(super) stats: Vec<ContainerStats>,
    pub(super) descriptors: Vec<MetricDescriptor>,
    pub(super) metrics: Vec<PodSandboxMetrics>,
    pub(super) conditions: Vec<RuntimeCondition>,
    /// Calls, by what they were about.
    pub(super) asked: Vec<String>,
    /// A bug of ours.
    pub(super) panics: bool,
    pub(super) hangs: bool,
}

impl OwnSide {
    pub(super) fn has(&self) -> std::sync::MutexGuard<'_, Has> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn routes(&self) -> Routes {
        Routes::new(RuntimeServiceServer::new(self.clone()))
            .add_service(ImageServiceServer::new(self.clone()))
            .prepare()
    }

    fn note(&self, call: &str, what: &str) {
        self.has().asked.push(format!("{call} {what}"));
    }

    async fn trouble(&self) {
        assert!(!self.has().panics, "a bug of ours");
        if self.has().hangs {
            std::future::pending::<()>().await;
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl RuntimeService for OwnSide {
    async fn status(&self, _request: Request<StatusRequest>) -> Answer<StatusResponse> {
        self.trouble().await;
        let status = Some(RuntimeStatus { conditions: self.has().conditions.clone() });
        let handler = |name: &str| RuntimeHandler { name: name.into(), ..Default::default() };
        let runtime_handlers = vec![handler(""), handler("virtlet")];
        let features = Some(RuntimeFeatures { mount_options: true, ..Default::default() });
        Ok(Response::new(StatusResponse { status, runtime_handlers, features, ..Default::default() }))
    }

    async fn list_pod_sandbox(&self, _request: Request<ListPodSandboxRequest>) -> Answer<ListPodSandboxResponse> {
        self.trouble().await;
        Ok(Response::new(ListPodSandboxResponse { items: self.has().sandboxes.clone() }))
    }

    async fn list_containers(&self, _request: Request<ListContainersRequest>) -> Answer<ListContainersResponse> {
        self.trouble().await;
        Ok(Response::new(ListContainersResponse { containers: self.has().containers.clone() }))
    }

    async fn list_container_stats(
        &self,
        _request: Request<ListContainerStatsRequest>,
    ) -> Answer<ListContainerStatsResponse> {
        self.trouble().await;
        Ok(Response::new(ListContainerStatsResponse { stats: self.has().stats.clone() }))
    }

    async fn list_metric_descriptors(
        &self,
        _request: Request<ListMetricDescriptorsRequest>,
    ) -> Answer<ListMetricDescriptorsResponse> {
        self.trouble().await;
        Ok(Response::new(ListMetricDescriptorsResponse { descriptors: self.has().descriptors.clone() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _request: Request<ListPodSandboxMetricsRequest>,
    ) -> Answer<ListPodSandboxMetricsResponse> {
        self.trouble().await;
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics: self.has().metrics.clone() }))
    }

    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        self.note("RunPodSandbox", &request.into_inner().runtime_handler);
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: "vm01".into() }))
    }

    async fn update_runtime_config(
        &self,
        request: Request<UpdateRuntimeConfigRequest>,
    ) -> Answer<UpdateRuntimeConfigResponse> {
        let network = request.into_inner().runtime_config.and_then(|config| config.network_config);
        self.note("UpdateRuntimeConfig", &network.unwrap_or_default().pod_cidr);
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn pod_sandbox_status(&self, request: Request<PodSandboxStatusRequest>) -> Answer<PodSandboxStatusResponse> {
        self.note("PodSandboxStatus", &request.into_inner().pod_sandbox_id);
        Ok(Response::new(PodSandboxStatusResponse::default()))
    }

    async fn create_container(&self, request: Request<CreateContainerRequest>) -> Answer<CreateContainerResponse> {
        let image = request.into_inner().config.and_then(|config| config.image).unwrap_or_default().image;
        self.note("CreateContainer", &image);
        let found = self.has().images.iter().any(|has| has.id == image || has.repo_tags.contains(&image));
        if !found {
            return Err(Status::not_found(format!("no image `{image}`")));
        }
        Ok(Response::new(CreateContainerResponse { container_id: "vm02".into() }))
    }

    async fn get_container_events(
        &self,
        _request: Request<GetEventsRequest>,
    ) -> Answer<BoxStream<ContainerEventResponse>> {
        let event = ContainerEventResponse { container_id: "vm02".into(), ..Default::default() };
        let events = tokio_stream::StreamExt::chain(tokio_stream::once(Ok(event)), tokio_stream::pending());
        Ok(Response::new(Box::pin(events)))
    }
}

#[tonic::async_trait]
impl ImageService for OwnSide {
    async fn list_images(&self, _request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        Ok(Response::new(ListImagesResponse { images: self.has().images.clone() }))
    }

    async fn image_status(&self, request: Request<ImageStatusRequest>) -> Answer<ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        self.note("ImageStatus", &name);
        let image = self.has().images.iter().find(|image| image.id == name || image.repo_tags.contains(&name)).cloned();
        Ok(Response::new(ImageStatusResponse { image, ..Default::default() }))
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        self.note("PullImage", &request.into_inner().image.unwrap_or_default().image);
        Ok(Response::new(PullImageResponse { image_ref: "sha256:ours".into() }))
    }

    async fn remove_image(&self, request: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        self.note("RemoveImage", &request.into_inner().image.unwrap_or_default().image);
        Ok(Response::new(RemoveImageResponse {}))
    }
}
