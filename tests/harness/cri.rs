//! A CRI client like kubelet: one connection to `controld`'s socket, made again when the daemon was restarted.

use std::collections::HashMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::{
    ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, ContainerStatusRequest,
    CreateContainerRequest, DnsConfig, ImageSpec, LinuxContainerConfig, LinuxContainerResources, LinuxPodSandboxConfig,
    PodSandboxConfig, PodSandboxMetadata, PodSandboxStatus, PodSandboxStatusRequest, PullImageRequest,
    RemoveContainerRequest, RemoveImageRequest, RemovePodSandboxRequest, RunPodSandboxRequest, StartContainerRequest,
    StopContainerRequest, StopPodSandboxRequest,
};
use proto::images::image_admin_client::ImageAdminClient;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use crate::pace;

/// `overhead.podFixed` of the bed's pods, in bytes: it pays for a QEMU that emulates, so a guest has all of its small limit.
pub const POD_FIXED: i64 = 320 << 20;
/// Like kubelet's `runtimeRequestTimeout`.
const CALL_DEADLINE: Duration = Duration::from_secs(240);

/// The client. Its calls block.
#[derive(Debug)]
pub struct Cri {
    runtime: Runtime,
    channel: Channel,
}

impl Cri {
    /// A client of the socket at `path`. Connects when it is first used.
    ///
    /// # Errors
    /// When there are no threads to be had.
    pub fn new(path: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let _inside = runtime.enter();
        let path = PathBuf::from(path);
        let connect = move |_uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        };
        let channel = Endpoint::from_static("http://cri").connect_with_connector_lazy(tower::service_fn(connect));
        drop(_inside);
        Ok(Self { runtime, channel })
    }

    /// Makes one call of RuntimeService.
    ///
    /// # Errors
    /// The daemon's.
    pub fn call<T, F>(&self, call: impl FnOnce(RuntimeServiceClient<Channel>) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.done(call(RuntimeServiceClient::new(self.channel.clone()))).map(Response::into_inner)
    }

    /// Makes one call of ImageService.
    ///
    /// # Errors
    /// The daemon's.
    pub fn image_call<T, F>(&self, call: impl FnOnce(ImageServiceClient<Channel>) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.done(call(ImageServiceClient::new(self.channel.clone()))).map(Response::into_inner)
    }

    /// Makes one call of the service for looking after images.
    ///
    /// # Errors
    /// The daemon's.
    pub fn admin_call<T, F>(&self, call: impl FnOnce(ImageAdminClient<Channel>) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.done(call(ImageAdminClient::new(self.channel.clone())))
    }

    fn done<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let done = self.runtime.block_on(pace::within(CALL_DEADLINE, call));
        done.unwrap_or_else(|late| Err(Status::cancelled(format!("the bed has waited for long enough: {late}"))))
    }

    /// Pulls an image; its id.
    ///
    /// # Errors
    /// The daemon's.
    pub fn pull(&self, image: &str) -> Result<String, Status> {
        let request = PullImageRequest { image: Some(spec(image)), ..Default::default() };
        self.image_call(|mut client| async move { client.pull_image(request).await }).map(|answer| answer.image_ref)
    }

    /// Removes an image's name, and the image with its last one.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove_image(&self, image: &str) -> Result<(), Status> {
        let request = RemoveImageRequest { image: Some(spec(image)) };
        self.image_call(|mut client| async move { client.remove_image(request).await }).map(drop)
    }

    /// Runs a sandbox; its id.
    ///
    /// # Errors
    /// The daemon's.
    pub fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<String, Status> {
        self.run_sandbox_for(config, "")
    }

    /// The same for a pod that names a runtime handler.
    ///
    /// # Errors
    /// The daemon's.
    pub fn run_sandbox_for(&self, config: &PodSandboxConfig, handler: &str) -> Result<String, Status> {
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.into() };
        self.call(|mut client| async move { client.run_pod_sandbox(request).await }).map(|answer| answer.pod_sandbox_id)
    }

    /// Creates a container; its id.
    ///
    /// # Errors
    /// The daemon's.
    pub fn create(&self, sandbox: &str, config: &ContainerConfig, pod: &PodSandboxConfig) -> Result<String, Status> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.into(),
            config: Some(config.clone()),
            sandbox_config: Some(pod.clone()),
        };
        self.call(|mut client| async move { client.create_container(request).await }).map(|answer| answer.container_id)
    }

    /// Starts a container.
    ///
    /// # Errors
    /// The daemon's.
    pub fn start(&self, container: &str) -> Result<(), Status> {
        let request = StartContainerRequest { container_id: container.into() };
        self.call(|mut client| async move { client.start_container(request).await }).map(drop)
    }

    /// Stops a container.
    ///
    /// # Errors
    /// The daemon's.
    pub fn stop(&self, container: &str, grace: Duration) -> Result<(), Status> {
        let timeout = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
        let request = StopContainerRequest { container_id: container.into(), timeout };
        self.call(|mut client| async move { client.stop_container(request).await }).map(drop)
    }

    /// Removes a container.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove(&self, container: &str) -> Result<(), Status> {
        let request = RemoveContainerRequest { container_id: container.into() };
        self.call(|mut client| async move { client.remove_container(request).await }).map(drop)
    }

    /// Stops a sandbox and removes it.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove_sandbox(&self, sandbox: &str) -> Result<(), Status> {
        let stop = StopPodSandboxRequest { pod_sandbox_id: sandbox.into() };
        self.call(|mut client| async move { client.stop_pod_sandbox(stop).await })?;
        let remove = RemovePodSandboxRequest { pod_sandbox_id: sandbox.into() };
        self.call(|mut client| async move { client.remove_pod_sandbox(remove).await }).map(drop)
    }

    /// What there is to say of a container.
    ///
    /// # Errors
    /// The daemon's.
    pub fn container(&self, container: &str) -> Result<ContainerStatus> {
        let request = ContainerStatusRequest { container_id: container.into(), verbose: false };
        let answer = self.call(|mut client| async move { client.container_status(request).await })?;
        answer.status.context("a container without a status")
    }

    /// The id of a container's machine, libvirt's UUID without its hyphens.
    ///
    /// # Errors
    /// The daemon's, or when it does not say.
    pub fn machine(&self, container: &str) -> Result<String> {
        let request = ContainerStatusRequest { container_id: container.into(), verbose: true };
        let answer = self.call(|mut client| async move { client.container_status(request).await })?;
        let info: serde_json::Value = serde_json::from_str(answer.info.get("info").context("no info")?)?;
        let id = info.pointer("/machine/id").and_then(|id| id.as_str());
        id.map(str::to_owned).with_context(|| format!("no machine in {info}"))
    }

    /// The state of a container.
    ///
    /// # Errors
    /// The daemon's.
    pub fn state(&self, container: &str) -> Result<ContainerState> {
        Ok(self.container(container)?.state())
    }

    /// What there is to say of a sandbox.
    ///
    /// # Errors
    /// The daemon's.
    pub fn sandbox(&self, sandbox: &str) -> Result<PodSandboxStatus> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.into(), verbose: false };
        let answer = self.call(|mut client| async move { client.pod_sandbox_status(request).await })?;
        answer.status.context("a sandbox without a status")
    }
}

/// An image by its name.
#[must_use]
pub fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.into(), ..Default::default() }
}

/// The UID of the pod of this name.
#[must_use]
pub fn uid(name: &str) -> String {
    let number = name.bytes().fold(0_u32, |sum, byte| sum * 31 % 999_983 + u32::from(byte));
    format!("00000000-0000-4000-8000-{number:0>12}")
}

/// A pod as kubelet would describe it.
#[must_use]
pub fn pod(name: &str, log_directory: &Path) -> PodSandboxConfig {
    let overhead = LinuxContainerResources { memory_limit_in_bytes: POD_FIXED, ..Default::default() };
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.into(),
            uid: uid(name),
            namespace: "default".into(),
            attempt: 0,
        }),
        hostname: name.into(),
        log_directory: log_directory.display().to_string(),
        dns_config: Some(DnsConfig {
            servers: vec!["10.96.0.10".into()],
            searches: vec!["default.svc.cluster.test".into()],
            options: vec!["ndots:5".into()],
        }),
        linux: Some(LinuxPodSandboxConfig { overhead: Some(overhead), ..Default::default() }),
        ..Default::default()
    }
}

/// A container as kubelet would describe it, with memory for the tiny guest.
#[must_use]
pub fn container(image: &str, annotations: HashMap<String, String>) -> ContainerConfig {
    let memory = LinuxContainerResources { memory_limit_in_bytes: 160 << 20, ..Default::default() };
    ContainerConfig {
        metadata: Some(ContainerMetadata { name: "vm".into(), attempt: 0 }),
        image: Some(spec(image)),
        log_path: "vm_0.log".into(),
        annotations,
        linux: Some(LinuxContainerConfig { resources: Some(memory), ..Default::default() }),
        ..Default::default()
    }
}
