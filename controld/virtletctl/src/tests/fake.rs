//! A controld that remembers what it was asked, and fails where it is told to.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use proto::cri::image_service_server::{ImageService, ImageServiceServer};
use proto::cri::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use proto::cri::*;
use proto::images as admin_api;
use proto::images::image_admin_server::ImageAdminServer;
use proto::machines::machines_server::MachinesServer;
use proto::orphans::Orphan;
use proto::orphans::orphans_server::OrphansServer;
use tempfile::TempDir;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

use crate::interrupt::Interrupt;

mod admin;
mod machines;
mod orphans;

pub(super) use self::admin::Canned;

/// How old all is: long enough that a slow test shows the same.
const AGE_NANOS: i64 = 90 * 60 * 1_000_000_000 + 30_000_000_000;

type Answer<T> = Result<Response<T>, Status>;

/// What is to happen; becomes a server by [`serve`].
#[derive(Default)]
pub(crate) struct Fake {
    failures: HashMap<&'static str, Status>,
    interrupts: HashMap<&'static str, (Interrupt, i32)>,
    images: Vec<admin_api::Image>,
    pulls: Vec<admin_api::PullWithProgressRequest>,
    /// What the service for images answers.
    pub(super) canned: Canned,
    orphans: Vec<Orphan>,
    pods: Vec<(PodSandbox, PodSandboxConfig)>,
    machines: Vec<(Container, ContainerConfig)>,
    /// Of a container runtime behind it: what all see but who means our side alone.
    pub(super) behind: Vec<(PodSandbox, Container)>,
    calls: Vec<String>,
    last_words: Option<(PathBuf, &'static str)>,
    reason: String,
    /// For who listens next; then the stream ends.
    events: Vec<ContainerEventResponse>,
    /// How often pods were listed.
    lists: usize,
    /// How often somebody began to listen to events.
    streams: usize,
    /// How often it was asked what pods use.
    looks: i64,
    /// At which of these all machines have ended.
    ended_at_look: Option<i64>,
    /// Containers so far.
    made: usize,
    /// What is said of the node, with all that is said beside it.
    node: Option<StatusResponse>,
    /// Whether pods have no address.
    unreachable: bool,
    /// What machines end with as soon as they are started, if they do.
    pub(super) exit_code: Option<i32>,
}

fn means_ours<T>(request: &Request<T>) -> bool {
    request.metadata().get(proto::side::SIDE).is_some()
}

/// A pod whose machine, if it runs, uses a quarter of a CPU, looked at every second.
fn usage(pod: &PodSandbox, runs: bool, looks: i64) -> PodSandboxStats {
    let value = |value| Some(UInt64Value { value });
    let cpu = CpuUsage {
        timestamp: looks * 1_000_000_000,
        usage_core_nano_seconds: value(u64::try_from(looks).unwrap_or_default() * 250_000_000),
        ..Default::default()
    };
    let memory =
        MemoryUsage { working_set_bytes: value(128 << 20), available_bytes: value(384 << 20), ..Default::default() };
    let container = ContainerStats {
        attributes: Some(ContainerAttributes { id: format!("c{}", pod.id), ..Default::default() }),
        cpu: Some(cpu),
        memory: Some(memory),
        writable_layer: Some(FilesystemUsage { used_bytes: value(1 << 30), ..Default::default() }),
        ..Default::default()
    };
    let nic = |rx, tx| NetworkInterfaceUsage { rx_bytes: value(rx), tx_bytes: value(tx), ..Default::default() };
    let network =
        NetworkUsage { default_interface: Some(nic(1024, 10)), interfaces: vec![nic(1024, 20)], ..Default::default() };
    PodSandboxStats {
        attributes: Some(PodSandboxAttributes {
            id: pod.id.clone(),
            metadata: pod.metadata.clone(),
            labels: pod.labels.clone(),
            ..Default::default()
        }),
        linux: Some(LinuxPodSandboxStats {
            network: Some(network),
            containers: runs.then_some(container).into_iter().collect(),
            ..Default::default()
        }),
        windows: None,
    }
}

/// The server's other end, for the test.
#[derive(Clone)]
pub(crate) struct Handle(Arc<Mutex<Fake>>);

/// Serves until the test's runtime ends.
pub(crate) fn serve(fake: Fake) -> (TempDir, Handle, PathBuf) {
    let dir = tempfile::tempdir().expect("directory");
    let socket = dir.path().join("cri.sock");
    let listener = tokio::net::UnixListener::bind(&socket).expect("socket");
    let handle = Handle(Arc::new(Mutex::new(fake)));
    let server = tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::new(handle.clone()))
        .add_service(ImageServiceServer::new(handle.clone()))
        .add_service(ImageAdminServer::new(handle.clone()))
        .add_service(MachinesServer::new(handle.clone()))
        .add_service(OrphansServer::new(handle.clone()));
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    (dir, handle, socket)
}

impl Fake {
    pub(super) fn having(orphans: Vec<Orphan>) -> Self {
        Self { orphans, ..Self::default() }
    }

    pub(super) fn telling(events: Vec<ContainerEventResponse>) -> Self {
        Self { events, ..Self::default() }
    }

    pub(super) fn failing(call: &'static str, status: Status) -> Self {
        let mut fake = Self::default();
        fake.fail(call, status);
        fake
    }

    /// One that says this of its node.
    pub(crate) fn on(node: StatusResponse) -> Self {
        Self { node: Some(node), ..Self::default() }
    }

    pub(super) fn fail(&mut self, call: &'static str, status: Status) {
        self.failures.insert(call, status);
    }

    pub(super) fn interrupt_at(&mut self, call: &'static str, interrupt: Interrupt, signal: i32) {
        self.interrupts.insert(call, (interrupt, signal));
    }
}

impl Handle {
    fn state(&self) -> MutexGuard<'_, Fake> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the first pod was to be.
    pub(super) fn made(&self) -> (PodSandboxConfig, ContainerConfig) {
        let state = self.state();
        (state.pods[0].1.clone(), state.machines[0].1.clone())
    }

    /// Why all machines are in the state that they are in.
    pub(super) fn give_reason(&self, reason: &str) {
        self.state().reason = reason.to_owned();
    }

    /// What the container that was made last was to be.
    pub(super) fn newest_container(&self) -> ContainerConfig {
        self.state().machines.last().expect("made").1.clone()
    }

    /// Pods have no address: what is at one of theirs depends on where a test runs.
    pub(super) fn take_addresses(&self) {
        self.state().unreachable = true;
    }

    /// All pods are as others make them.
    pub(super) fn forget_labels(&self) {
        self.state().pods.iter_mut().for_each(|(pod, _)| pod.labels.clear());
    }

    pub(super) fn now_fails(&self, call: &'static str, status: Status) {
        self.state().fail(call, status);
    }

    pub(super) fn lists(&self) -> usize {
        self.state().lists
    }

    pub(super) fn streams(&self) -> usize {
        self.state().streams
    }

    pub(super) fn looks(&self) -> i64 {
        self.state().looks
    }

    pub(super) fn end_machines_at_look(&self, look: i64) {
        self.state().ended_at_look = Some(look);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state().pods.is_empty() && self.state().machines.is_empty()
    }

    /// Calls that change something, and `PodSandboxStatus`.
    pub(super) fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub(super) fn forget_calls(&self) {
        self.state().calls.clear();
    }

    /// At the second question for a machine's status from now, it writes this and has ended.
    pub(super) fn end_machines_after_writing(&self, log: &Path, words: &'static str) {
        self.state().last_words = Some((log.to_owned(), words));
    }

    fn called<T>(&self, call: &'static str, detail: &str, then: impl FnOnce(&mut Fake) -> T) -> Answer<T> {
        let mut state = self.state();
        state.calls.push(format!("{call} {detail}").trim_end().to_owned());
        if let Some((interrupt, signal)) = state.interrupts.get(call) {
            interrupt.fire(*signal);
        }
        match state.failures.get(call) {
            Some(status) => Err(status.clone()),
            None => Ok(Response::new(then(&mut state))),
        }
    }
}

#[tonic::async_trait]
impl RuntimeService for Handle {
    async fn run_pod_sandbox(&self, request: Request<RunPodSandboxRequest>) -> Answer<RunPodSandboxResponse> {
        let RunPodSandboxRequest { config, runtime_handler } = request.into_inner();
        let config = config.expect("config");
        self.called("RunPodSandbox", &runtime_handler.clone(), |state| {
            let id = format!("5a{:030}", state.pods.len() + 1);
            let pod = PodSandbox {
                id: id.clone(),
                metadata: config.metadata.clone(),
                labels: config.labels.clone(),
                created_at: common::now_nanos() - AGE_NANOS,
                runtime_handler,
                ..Default::default()
            };
            state.pods.push((pod, config));
            RunPodSandboxResponse { pod_sandbox_id: id }
        })
    }

    async fn stop_pod_sandbox(&self, _: Request<StopPodSandboxRequest>) -> Answer<StopPodSandboxResponse> {
        self.called("StopPodSandbox", "", |_| StopPodSandboxResponse {})
    }

    async fn remove_pod_sandbox(&self, request: Request<RemovePodSandboxRequest>) -> Answer<RemovePodSandboxResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.called("RemovePodSandbox", "", |state| {
            state.pods.retain(|(pod, _)| pod.id != id);
            state.machines.retain(|(machine, _)| machine.pod_sandbox_id != id);
            RemovePodSandboxResponse {}
        })
    }

    async fn pod_sandbox_status(&self, request: Request<PodSandboxStatusRequest>) -> Answer<PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.called("PodSandboxStatus", "", |state| {
            let pod = state.pods.iter().find(|(pod, _)| pod.id == id);
            let metadata = pod.and_then(|(pod, _)| pod.metadata.clone());
            let ip = if state.unreachable { String::new() } else { "10.1.0.1".into() };
            let network = PodSandboxNetworkStatus { ip, additional_ips: Vec::new() };
            let status = PodSandboxStatus { id, metadata, network: Some(network), ..Default::default() };
            let info = [("info".to_owned(), r#"{"net":{"nics":[]}}"#.to_owned())].into();
            PodSandboxStatusResponse { status: Some(status), info, ..Default::default() }
        })
    }

    async fn list_pod_sandbox(&self, request: Request<ListPodSandboxRequest>) -> Answer<ListPodSandboxResponse> {
        let mut state = self.state();
        state.lists += 1;
        let behind = state.behind.iter().filter(|_| !means_ours(&request)).map(|(pod, _)| pod);
        let items = state.pods.iter().map(|(pod, _)| pod).chain(behind).cloned().collect();
        Ok(Response::new(ListPodSandboxResponse { items }))
    }

    async fn create_container(&self, request: Request<CreateContainerRequest>) -> Answer<CreateContainerResponse> {
        let request = request.into_inner();
        let config = request.config.expect("config");
        self.called("CreateContainer", "", |state| {
            state.made += 1;
            let id = format!("c0{:030}", state.made);
            let machine = Container {
                id: id.clone(),
                pod_sandbox_id: request.pod_sandbox_id,
                metadata: config.metadata.clone(),
                image: config.image.clone(),
                // Those that are started again are younger than their pods.
                created_at: common::now_nanos() - AGE_NANOS + i64::try_from(state.made).unwrap_or(0) * 1_000_000_000,
                ..Default::default()
            };
            state.machines.push((machine, config));
            CreateContainerResponse { container_id: id }
        })
    }

    async fn start_container(&self, request: Request<StartContainerRequest>) -> Answer<StartContainerResponse> {
        let id = request.into_inner().container_id;
        self.called("StartContainer", "", |state| {
            let machine = state.machines.iter_mut().find(|(machine, _)| machine.id == id).expect("made");
            let ended = state.exit_code.is_some();
            let runs = if ended { ContainerState::ContainerExited } else { ContainerState::ContainerRunning };
            machine.0.set_state(runs);
            StartContainerResponse {}
        })
    }

    async fn stop_container(&self, request: Request<StopContainerRequest>) -> Answer<StopContainerResponse> {
        let StopContainerRequest { container_id, timeout } = request.into_inner();
        self.called("StopContainer", &timeout.to_string(), |state| {
            for (machine, _) in state.machines.iter_mut().filter(|(machine, _)| machine.id == container_id) {
                machine.set_state(ContainerState::ContainerExited);
            }
            StopContainerResponse {}
        })
    }

    async fn remove_container(&self, request: Request<RemoveContainerRequest>) -> Answer<RemoveContainerResponse> {
        let id = request.into_inner().container_id;
        self.called("RemoveContainer", "", |state| {
            state.machines.retain(|(machine, _)| machine.id != id);
            RemoveContainerResponse {}
        })
    }

    async fn list_pod_sandbox_stats(
        &self,
        _: Request<ListPodSandboxStatsRequest>,
    ) -> Answer<ListPodSandboxStatsResponse> {
        let mut state = self.state();
        state.looks += 1;
        let looks = state.looks;
        let is_ended = state.ended_at_look.is_some_and(|at| looks >= at);
        let runs = |pod: &PodSandbox| {
            let mut machines = state.machines.iter().filter(|(machine, _)| machine.pod_sandbox_id == pod.id);
            !is_ended && machines.any(|(machine, _)| machine.state() == ContainerState::ContainerRunning)
        };
        let stats = state.pods.iter().map(|(pod, _)| usage(pod, runs(pod), looks)).collect();
        Ok(Response::new(ListPodSandboxStatsResponse { stats }))
    }

    async fn get_container_events(
        &self,
        _: Request<GetEventsRequest>,
    ) -> Answer<tonic::codegen::BoxStream<ContainerEventResponse>> {
        let mut state = self.state();
        state.streams += 1;
        let events: Vec<_> = state.events.drain(..).map(Ok).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(events))))
    }

    async fn version(&self, _: Request<VersionRequest>) -> Answer<VersionResponse> {
        Ok(Response::new(VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "controld".into(),
            runtime_version: "9\x1b".into(),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, request: Request<StatusRequest>) -> Answer<StatusResponse> {
        let node = self.state().node.clone().filter(|_| !means_ours(&request));
        node.map(Response::new).ok_or_else(|| Status::unimplemented("status"))
    }

    async fn checkpoint_pod(&self, request: Request<CheckpointPodRequest>) -> Answer<CheckpointPodResponse> {
        let CheckpointPodRequest { pod_sandbox_id, output_path, .. } = request.into_inner();
        self.called("CheckpointPod", &format!("{pod_sandbox_id} {output_path}"), |_| CheckpointPodResponse {})
    }

    async fn restore_pod(&self, request: Request<RestorePodRequest>) -> Answer<RestorePodResponse> {
        let RestorePodRequest { checkpoint_path, config, runtime_handler, container_configs, .. } =
            request.into_inner();
        let request = RunPodSandboxRequest { config, runtime_handler };
        let pod_sandbox_id = self.run_pod_sandbox(Request::new(request)).await?.into_inner().pod_sandbox_id;
        let mut restored_containers = Vec::new();
        for config in container_configs {
            let name = config.metadata.clone().unwrap_or_default().name;
            let request = CreateContainerRequest {
                pod_sandbox_id: pod_sandbox_id.clone(),
                config: Some(config),
                sandbox_config: None,
            };
            let container_id = self.create_container(Request::new(request)).await?.into_inner().container_id;
            restored_containers.push(RestoredContainer { name, container_id });
        }
        let made = RestorePodResponse { pod_sandbox_id, restored_containers };
        self.called("RestorePod", &checkpoint_path, |_| made)
    }

    /// Nobody waits for its answer to the end.
    async fn port_forward(&self, _: Request<PortForwardRequest>) -> Answer<PortForwardResponse> {
        self.called("PortForward", "", |_| ())?;
        std::future::pending().await
    }

    async fn exec_sync(&self, request: Request<ExecSyncRequest>) -> Answer<ExecSyncResponse> {
        let ExecSyncRequest { container_id, cmd, timeout } = request.into_inner();
        let detail = format!("{} {timeout} {}", &container_id[..2], cmd.join("|"));
        self.called("ExecSync", &detail, |_| ExecSyncResponse {
            stdout: b"raw\x1b[m\xff".into(),
            stderr: Vec::new(),
            exit_code: cmd.len().try_into().expect("few"),
        })
    }

    async fn list_containers(&self, request: Request<ListContainersRequest>) -> Answer<ListContainersResponse> {
        let state = self.state();
        let behind = state.behind.iter().filter(|_| !means_ours(&request)).map(|(_, container)| container);
        let containers = state.machines.iter().map(|(machine, _)| machine).chain(behind).cloned().collect();
        Ok(Response::new(ListContainersResponse { containers }))
    }

    async fn container_status(&self, request: Request<ContainerStatusRequest>) -> Answer<ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        let mut state = self.state();
        let Some((machine, config)) = state.machines.iter().find(|(machine, _)| machine.id == id) else {
            return Err(Status::not_found(id));
        };
        let dir = &state.pods.iter().find(|(pod, _)| pod.id == machine.pod_sandbox_id).expect("made").1.log_directory;
        let log_path = format!("{dir}/{}", config.log_path);
        let mut status = ContainerStatus {
            id,
            state: machine.state,
            reason: state.reason.clone(),
            log_path,
            metadata: machine.metadata.clone(),
            image: machine.image.clone(),
            image_id: "sha256:1".into(),
            exit_code: state.exit_code.unwrap_or_default(),
            annotations: config.annotations.clone(),
            resources: config.linux.clone().map(|linux| ContainerResources { linux: linux.resources, windows: None }),
            ..Default::default()
        };
        // The first question is for the path.
        match state.last_words.take() {
            Some((log, words)) if words.is_empty() => {
                status.set_state(ContainerState::ContainerExited);
                state.last_words = Some((log, words));
            }
            Some((log, words)) => {
                let mut file = std::fs::OpenOptions::new().append(true).open(&log).expect("log");
                file.write_all(words.as_bytes()).expect("written");
                state.last_words = Some((log, ""));
            }
            None => {}
        }
        Ok(Response::new(ContainerStatusResponse { status: Some(status), ..Default::default() }))
    }
}

#[tonic::async_trait]
impl ImageService for Handle {
    async fn image_status(&self, request: Request<ImageStatusRequest>) -> Answer<ImageStatusResponse> {
        let name = request.into_inner().image.unwrap_or_default().image;
        let state = self.state();
        let found = state.images.iter().find(|image| admin::is_meant(image, &name));
        let image = found.map(|image| Image { id: image.id.clone(), ..Default::default() });
        Ok(Response::new(ImageStatusResponse { image, ..Default::default() }))
    }
}
