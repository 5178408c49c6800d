//! RuntimeService. Calls that are not here answer Unimplemented.

mod checkpoint;
mod conditions;
mod events;
mod facts;
mod metrics;
mod restore;
mod sessions;
mod stats;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use common::watch::Watcher;
use proto::cri::runtime_service_server::RuntimeService;
use proto::cri::*;
use proto::pause::Pause;
use proto::tap::PodId;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;
use vmspec::error::{Kind, Result};
use vmspec::{ContainerId, SandboxConfig};

use super::{convert, find, lists, metrics as pod_metrics, starting};
use crate::api::sessions::Sessions;
use crate::api::span;
use crate::api::status::{self, finish};
use crate::api::verbs::{self, Answer};
use crate::config::{CgroupDriver, Config};
use crate::container::{Containers, Create, explain};
use crate::guest::agents::Output;
use crate::hypervisor::Hypervisor;
use crate::hypervisor::accelerator::AcceleratorChoice;
use crate::hypervisor::emulator::Emulator;
use crate::images::Images;
use crate::model::{Container, Sandbox};
use crate::orphans::Known;
use crate::orphans::instance::Instance;
use crate::sandbox::Sandboxes;
use crate::store::Store;
use crate::tap::Tap;

/// The longest a stop may ask for: a grace in seconds that no clock overflows with.
const MAX_GRACE_S: i64 = 7 * 24 * 3600;

/// What the calls use beside the services.
#[derive(Debug, Clone)]
pub struct Uses {
    /// What we say our version is.
    pub version: &'static str,
    pub config: Arc<Config>,
    pub store: Store,
    pub hypervisor: Hypervisor,
    /// The pods' networks.
    pub tap: Tap,
    pub images: Images,
    pub accel: AcceleratorChoice,
    pub emulator: Emulator,
    /// The orphans that were seen last.
    pub orphans: Arc<Known>,
    pub instance: Arc<Instance>,
    pub watcher: Watcher,
    /// Serves streaming clients.
    pub sessions: Arc<Sessions>,
}

/// The service behind the calls. Clones share it.
#[derive(Debug, Clone)]
pub struct Runtime {
    uses: Uses,
    sandboxes: Sandboxes,
    containers: Containers,
}

impl Runtime {
    /// Calls to these services.
    #[must_use]
    pub fn new(uses: Uses, sandboxes: Sandboxes, containers: Containers) -> Self {
        Self { uses, sandboxes, containers }
    }

    fn sandbox_id(&self, text: &str) -> Result<PodId> {
        let all = self.uses.store.sandboxes();
        let ids = all.iter().map(|sandbox| (sandbox.id.to_string(), sandbox.id.clone()));
        let id = find::by_prefix("sandbox", text, ids)?;
        if let Some(sandbox) = all.iter().find(|sandbox| sandbox.id == id) {
            span::about_sandbox(id.as_str(), &sandbox.config);
        }
        Ok(id)
    }

    fn container_id(&self, text: &str) -> Result<ContainerId> {
        let all = self.uses.store.containers();
        let ids = all.iter().map(|container| (container.id.to_string(), container.id));
        let id = find::by_prefix("container", text, ids)?;
        let container = all.iter().find(|container| container.id == id);
        if let Some(sandbox) = container.and_then(|container| self.uses.store.sandbox(&container.sandbox)) {
            span::about_sandbox(sandbox.id.as_str(), &sandbox.config);
        }
        span::about_container(id);
        Ok(id)
    }

    fn sandboxes_shown(&self, filter: Option<&PodSandboxFilter>) -> Vec<PodSandbox> {
        let all = self.uses.store.sandboxes();
        let shown = all.iter().filter(|sandbox| convert::matches_sandbox(filter, sandbox));
        shown.map(|sandbox| convert::sandbox_entry(sandbox)).collect()
    }

    fn containers_shown(&self, filter: Option<&ContainerFilter>) -> Vec<proto::cri::Container> {
        let all = self.uses.store.containers();
        let shown = all.iter().filter(|container| convert::matches_container(filter, container));
        let default_handler = &self.uses.config.images.default_handler;
        shown.map(|container| convert::container_entry(container, default_handler)).collect()
    }

    fn status_of(&self, container: &Container, sandbox: &SandboxConfig) -> ContainerStatus {
        let digest = self.uses.images.repo_digest(&container.image_id, &container.image_handler);
        let default_handler = &self.uses.config.images.default_handler;
        convert::container_status(container, sandbox, digest.as_deref(), default_handler)
    }

    fn statuses_of(&self, sandbox: &Sandbox) -> Vec<ContainerStatus> {
        let containers = self.uses.store.containers_of(&sandbox.id);
        containers.iter().map(|container| self.status_of(container, &sandbox.config)).collect()
    }
}

/// What is absent is as good as stopped or removed.
fn or_absent<T>(found: Result<T>) -> Result<Option<T>, Status> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(status::of(&error)),
    }
}

fn answer<T>(result: Result<T>) -> Result<T, Status> {
    result.map_err(|error| status::of(&error))
}

#[tonic::async_trait]
impl RuntimeService for Runtime {
    async fn version(&self, _request: Request<VersionRequest>) -> Result<Response<VersionResponse>, Status> {
        Ok(Response::new(starting::version(self.uses.version)))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let verbose = request.into_inner().verbose;
        let info = if verbose { self.facts().await } else { HashMap::new() };
        let (runtime_handlers, features) = self.handlers();
        Ok(Response::new(StatusResponse {
            status: Some(RuntimeStatus { conditions: self.conditions().await }),
            info,
            runtime_handlers,
            features: Some(features),
        }))
    }

    async fn runtime_config(
        &self,
        _request: Request<RuntimeConfigRequest>,
    ) -> Result<Response<RuntimeConfigResponse>, Status> {
        let driver = self.uses.config.cgroup_driver.unwrap_or_else(CgroupDriver::of_node);
        let driver = match driver {
            CgroupDriver::Systemd => proto::cri::CgroupDriver::Systemd,
            CgroupDriver::Cgroupfs => proto::cri::CgroupDriver::Cgroupfs,
        };
        let linux = Some(LinuxRuntimeConfiguration { cgroup_driver: driver.into() });
        Ok(Response::new(RuntimeConfigResponse { linux }))
    }

    async fn update_runtime_config(
        &self,
        _request: Request<UpdateRuntimeConfigRequest>,
    ) -> Result<Response<UpdateRuntimeConfigResponse>, Status> {
        // The pod CIDR is the CNI plugins' affair; an error here would stall kubelet.
        Ok(Response::new(UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(
        &self,
        request: Request<RunPodSandboxRequest>,
    ) -> Result<Response<RunPodSandboxResponse>, Status> {
        let config = answer(convert::sandbox_config(request.into_inner()))?;
        span::about_pod(&config);
        let sandboxes = self.sandboxes.clone();
        let id = finish(async move { sandboxes.run(config).await }).await?;
        Ok(Response::new(RunPodSandboxResponse { pod_sandbox_id: id.to_string() }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<StopPodSandboxRequest>,
    ) -> Result<Response<StopPodSandboxResponse>, Status> {
        if let Some(id) = or_absent(self.sandbox_id(&request.into_inner().pod_sandbox_id))? {
            let sandboxes = self.sandboxes.clone();
            finish(async move { sandboxes.stop(&id).await }).await?;
        }
        Ok(Response::new(StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<RemovePodSandboxRequest>,
    ) -> Result<Response<RemovePodSandboxResponse>, Status> {
        if let Some(id) = or_absent(self.sandbox_id(&request.into_inner().pod_sandbox_id))? {
            let sandboxes = self.sandboxes.clone();
            finish(async move { sandboxes.remove(&id).await }).await?;
        }
        Ok(Response::new(RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<PodSandboxStatusRequest>,
    ) -> Result<Response<PodSandboxStatusResponse>, Status> {
        let request = request.into_inner();
        let id = answer(self.sandbox_id(&request.pod_sandbox_id))?;
        let sandbox = self.uses.store.sandbox(&id).ok_or_else(|| Status::not_found(format!("no sandbox `{id}`")))?;
        let mut info = HashMap::new();
        if request.verbose {
            let facts = serde_json::json!({ "net": sandbox.net, "runtimeHandler": sandbox.config.runtime_handler });
            info.insert("info".into(), facts.to_string());
        }
        Ok(Response::new(PodSandboxStatusResponse {
            status: Some(convert::sandbox_status(&sandbox)),
            info,
            // No statuses of one moment, though there are fields for them: where kubelet finds a time here (1.37, gate EventedPLEG), it
            // asks for no container by itself and forgets which ones are of this sandbox. It then starts a pod's init containers
            // again and again.
            ..PodSandboxStatusResponse::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<ListPodSandboxRequest>,
    ) -> Result<Response<ListPodSandboxResponse>, Status> {
        let items = self.sandboxes_shown(request.into_inner().filter.as_ref());
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn pod_sandbox_stats(
        &self,
        request: Request<PodSandboxStatsRequest>,
    ) -> Result<Response<PodSandboxStatsResponse>, Status> {
        let id = answer(self.sandbox_id(&request.into_inner().pod_sandbox_id))?;
        let sandbox = self.uses.store.sandbox(&id).ok_or_else(|| Status::not_found(format!("no sandbox `{id}`")))?;
        let counters = self.counters(Some(&id)).await;
        let of_pod = ContainerStatsFilter { pod_sandbox_id: id.to_string(), ..ContainerStatsFilter::default() };
        let containers = self.container_stats_of(Some(&of_pod)).await.remove(&id).unwrap_or_default();
        let stats = convert::sandbox_stats(&sandbox, containers, counters.get(&id));
        Ok(Response::new(PodSandboxStatsResponse { stats: Some(stats) }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<ListPodSandboxStatsRequest>,
    ) -> Result<Response<ListPodSandboxStatsResponse>, Status> {
        let stats = self.sandbox_stats_of(request.into_inner().filter.as_ref()).await;
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    async fn create_container(
        &self,
        request: Request<CreateContainerRequest>,
    ) -> Result<Response<CreateContainerResponse>, Status> {
        let request = request.into_inner();
        let sandbox = answer(self.sandbox_id(&request.pod_sandbox_id))?;
        let config = request.config.ok_or_else(|| Status::invalid_argument("request has no container config"))?;
        // kubelet builds these from the pod as it is now; the sandbox may be older.
        let annotations = request.sandbox_config.map(|config| config.annotations.into_iter().collect());
        let annotations = annotations.unwrap_or_else(|| {
            self.uses.store.sandbox(&sandbox).map(|sandbox| sandbox.config.annotations.clone()).unwrap_or_default()
        });
        let create = Create { sandbox, config: answer(convert::container_config(config))?, annotations };
        let containers = self.containers.clone();
        let id = finish(async move { containers.create(create).await }).await?;
        span::about_container(id);
        Ok(Response::new(CreateContainerResponse { container_id: id.to_string() }))
    }

    async fn start_container(
        &self,
        request: Request<StartContainerRequest>,
    ) -> Result<Response<StartContainerResponse>, Status> {
        let id = answer(self.container_id(&request.into_inner().container_id))?;
        let (containers, sandboxes) = (self.containers.clone(), self.sandboxes.clone());
        let start = async move {
            let started = containers.start(id).await;
            if started.is_err()
                && let Ok(container) = containers.get(id)
            {
                // Beside the answer, which a tapmanager that hangs is not to hold up.
                let doubt = async move { sandboxes.doubt(&container.sandbox).await };
                tokio::spawn(doubt.in_current_span());
            }
            started
        };
        finish(start).await?;
        Ok(Response::new(StartContainerResponse {}))
    }

    async fn stop_container(
        &self,
        request: Request<StopContainerRequest>,
    ) -> Result<Response<StopContainerResponse>, Status> {
        let request = request.into_inner();
        if let Some(id) = or_absent(self.container_id(&request.container_id))? {
            let seconds = request.timeout.clamp(0, MAX_GRACE_S);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            let containers = self.containers.clone();
            finish(async move { containers.stop(id, grace).await }).await?;
        }
        Ok(Response::new(StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<RemoveContainerRequest>,
    ) -> Result<Response<RemoveContainerResponse>, Status> {
        if let Some(id) = or_absent(self.container_id(&request.into_inner().container_id))? {
            let containers = self.containers.clone();
            finish(async move { containers.remove(id).await }).await?;
        }
        Ok(Response::new(RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<ListContainersRequest>,
    ) -> Result<Response<ListContainersResponse>, Status> {
        let containers = self.containers_shown(request.into_inner().filter.as_ref());
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(
        &self,
        request: Request<ContainerStatusRequest>,
    ) -> Result<Response<ContainerStatusResponse>, Status> {
        let request = request.into_inner();
        let id = answer(self.container_id(&request.container_id))?;
        let container = answer(self.containers.get(id))?;
        let record = self.uses.store.sandbox(&container.sandbox);
        let sandbox = record.as_ref().map(|sandbox| sandbox.config.clone()).unwrap_or_default();
        let mut info = HashMap::new();
        if request.verbose {
            let handler = self.uses.config.handler(&sandbox.runtime_handler);
            let net = record.as_ref().and_then(|sandbox| sandbox.net.as_ref());
            let facts = serde_json::json!({
                "sandboxID": container.sandbox,
                "runtimeType": "virtlet",
                "machine": container.machine,
                "applied": container.applied(),
                "paused": container.pause.map(Pause::as_str),
                "checkpoint": container.checkpoint,
                "settings": explain::of_record(&container, &handler, net),
                "timeline": self.uses.store.moments().told(container.machine.id),
            });
            info.insert("info".into(), facts.to_string());
        }
        let status = self.status_of(&container, &sandbox);
        Ok(Response::new(ContainerStatusResponse { status: Some(status), info }))
    }

    async fn update_container_resources(
        &self,
        request: Request<UpdateContainerResourcesRequest>,
    ) -> Result<Response<UpdateContainerResourcesResponse>, Status> {
        let request = request.into_inner();
        let id = answer(self.container_id(&request.container_id))?;
        let resources = answer(convert::update(request))?;
        let containers = self.containers.clone();
        finish(async move { containers.update(id, resources).await }).await?;
        Ok(Response::new(UpdateContainerResourcesResponse {}))
    }

    async fn update_pod_sandbox_resources(
        &self,
        request: Request<UpdatePodSandboxResourcesRequest>,
    ) -> Result<Response<UpdatePodSandboxResourcesResponse>, Status> {
        // The pod's own cgroup is kubelet's, and its containers' are told of one by one.
        answer(self.sandbox_id(&request.into_inner().pod_sandbox_id))?;
        Ok(Response::new(UpdatePodSandboxResourcesResponse {}))
    }

    async fn container_stats(
        &self,
        request: Request<ContainerStatsRequest>,
    ) -> Result<Response<ContainerStatsResponse>, Status> {
        let id = answer(self.container_id(&request.into_inner().container_id))?;
        let container = answer(self.containers.get(id))?;
        let used = self.containers.usage(vec![container]).await;
        let stats = used.first().map(|(container, usage)| self.stats_of(container, usage));
        let stats =
            stats.ok_or_else(|| Status::internal(format!("usage of container `{id}` not read; see the log")))?;
        Ok(Response::new(ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<ListContainerStatsRequest>,
    ) -> Result<Response<ListContainerStatsResponse>, Status> {
        let stats = self.container_stats_of(request.into_inner().filter.as_ref()).await;
        Ok(Response::new(ListContainerStatsResponse { stats: stats.into_values().flatten().collect() }))
    }

    async fn reopen_container_log(
        &self,
        request: Request<ReopenContainerLogRequest>,
    ) -> Result<Response<ReopenContainerLogResponse>, Status> {
        let id = answer(self.container_id(&request.into_inner().container_id))?;
        let containers = self.containers.clone();
        finish(async move { containers.reopen_log(id).await }).await?;
        Ok(Response::new(ReopenContainerLogResponse {}))
    }

    async fn checkpoint_container(
        &self,
        _request: Request<CheckpointContainerRequest>,
    ) -> Result<Response<CheckpointContainerResponse>, Status> {
        Err(Status::unimplemented(
            "a virtual machine is not checkpointed: the archive that is asked for is of processes",
        ))
    }

    async fn checkpoint_pod(
        &self,
        request: Request<CheckpointPodRequest>,
    ) -> Result<Response<CheckpointPodResponse>, Status> {
        self.write_pod(request.into_inner()).await?;
        Ok(Response::new(CheckpointPodResponse {}))
    }

    async fn restore_pod(&self, request: Request<RestorePodRequest>) -> Result<Response<RestorePodResponse>, Status> {
        Ok(Response::new(self.make_pod(request.into_inner()).await?))
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Result<Response<ExecSyncResponse>, Status> {
        let ExecSyncRequest { container_id, cmd, timeout } = request.into_inner();
        let id = answer(self.container_id(&container_id))?;
        if verbs::is_verb(&cmd) {
            let Answer { stdout, stderr, code } = self.uses.sessions.verbs().answer(id, &cmd).await;
            return Ok(Response::new(ExecSyncResponse { stdout, stderr, exit_code: code.into() }));
        }
        let deadline = u64::try_from(timeout).ok().filter(|seconds| *seconds > 0).map(Duration::from_secs);
        let output = answer(self.containers.exec_sync(id, cmd, deadline).await)?;
        let Output { stdout, stderr, code, .. } = output;
        Ok(Response::new(ExecSyncResponse { stdout, stderr, exit_code: code.into() }))
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let url = answer(self.exec_url(request.into_inner()))?;
        Ok(Response::new(ExecResponse { url }))
    }

    async fn attach(&self, request: Request<AttachRequest>) -> Result<Response<AttachResponse>, Status> {
        let url = answer(self.attach_url(request.into_inner()))?;
        Ok(Response::new(AttachResponse { url }))
    }

    async fn port_forward(
        &self,
        request: Request<PortForwardRequest>,
    ) -> Result<Response<PortForwardResponse>, Status> {
        let url = answer(self.port_forward_url(request.into_inner()))?;
        Ok(Response::new(PortForwardResponse { url }))
    }

    async fn stream_pod_sandboxes(
        &self,
        request: Request<StreamPodSandboxesRequest>,
    ) -> Result<Response<BoxStream<StreamPodSandboxesResponse>>, Status> {
        let items = self.sandboxes_shown(request.into_inner().filter.as_ref());
        Ok(lists::stream(items, |pod_sandboxes| StreamPodSandboxesResponse { pod_sandboxes }))
    }

    async fn stream_containers(
        &self,
        request: Request<StreamContainersRequest>,
    ) -> Result<Response<BoxStream<StreamContainersResponse>>, Status> {
        let items = self.containers_shown(request.into_inner().filter.as_ref());
        Ok(lists::stream(items, |containers| StreamContainersResponse { containers }))
    }

    async fn stream_container_stats(
        &self,
        request: Request<StreamContainerStatsRequest>,
    ) -> Result<Response<BoxStream<StreamContainerStatsResponse>>, Status> {
        let stats = self.container_stats_of(request.into_inner().filter.as_ref()).await;
        let items = stats.into_values().flatten().collect();
        Ok(lists::stream(items, |container_stats| StreamContainerStatsResponse { container_stats }))
    }

    async fn stream_pod_sandbox_stats(
        &self,
        request: Request<StreamPodSandboxStatsRequest>,
    ) -> Result<Response<BoxStream<StreamPodSandboxStatsResponse>>, Status> {
        let items = self.sandbox_stats_of(request.into_inner().filter.as_ref()).await;
        Ok(lists::stream(items, |pod_sandbox_stats| StreamPodSandboxStatsResponse { pod_sandbox_stats }))
    }

    async fn list_metric_descriptors(
        &self,
        _request: Request<ListMetricDescriptorsRequest>,
    ) -> Result<Response<ListMetricDescriptorsResponse>, Status> {
        Ok(Response::new(ListMetricDescriptorsResponse { descriptors: pod_metrics::descriptors() }))
    }

    async fn list_pod_sandbox_metrics(
        &self,
        _request: Request<ListPodSandboxMetricsRequest>,
    ) -> Result<Response<ListPodSandboxMetricsResponse>, Status> {
        Ok(Response::new(ListPodSandboxMetricsResponse { pod_metrics: self.metrics().await }))
    }

    async fn stream_pod_sandbox_metrics(
        &self,
        _request: Request<StreamPodSandboxMetricsRequest>,
    ) -> Result<Response<BoxStream<StreamPodSandboxMetricsResponse>>, Status> {
        let items = self.metrics().await;
        Ok(lists::stream(items, |pod_sandbox_metrics| StreamPodSandboxMetricsResponse { pod_sandbox_metrics }))
    }

    async fn get_container_events(
        &self,
        _request: Request<GetEventsRequest>,
    ) -> Result<Response<BoxStream<ContainerEventResponse>>, Status> {
        Ok(Response::new(Box::pin(self.events())))
    }
}
