//! controld as virtletctl sees it: CRI and our own services over a unix socket, a deadline on every call.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use proto::cri::image_service_client::ImageServiceClient;
use proto::cri::runtime_service_client::RuntimeServiceClient;
use proto::cri::*;
use proto::images::image_admin_client::ImageAdminClient;
use proto::machines::machines_client::MachinesClient;
use proto::orphans::orphans_client::OrphansClient;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};

use super::error::{CtlError, Refusal};
use super::text::short;

mod images;
mod machines;
mod orphans;
mod our_side;
mod runtime;

use self::our_side::OurSide;
pub(crate) use self::runtime::Runtime;

/// Largest message in either direction, as controld has it.
const MAX_MESSAGE: usize = 16 << 20;
/// Both streams of a command that was waited for, each of which controld cuts at 16 MiB, and what is around them.
const MAX_OUTPUT: usize = 33 << 20;
/// Connecting to a socket on this node.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// What controld answers from memory.
const LOOK_DEADLINE: Duration = Duration::from_secs(30);
/// What controld does with plugins and libvirt, which have deadlines of their own.
const WORK_DEADLINE: Duration = Duration::from_secs(300);

/// A connection. It is made anew when it breaks. Clones share it.
#[derive(Debug, Clone)]
pub struct Client {
    runtime: RuntimeServiceClient<OurSide>,
    images: ImageServiceClient<OurSide>,
    /// As kubelet asks.
    node: RuntimeServiceClient<OurSide>,
    admin: ImageAdminClient<Channel>,
    machines: MachinesClient<Channel>,
    orphans: OrphansClient<Channel>,
}

fn runtime(side: OurSide) -> RuntimeServiceClient<OurSide> {
    RuntimeServiceClient::new(side).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

impl Client {
    /// Connects to controld.
    ///
    /// # Errors
    /// When nobody listens at `socket`, or not for us.
    pub async fn connect(socket: &Path) -> Result<Self, CtlError> {
        let failed = |cause| CtlError::Connect { socket: socket.to_owned(), cause };
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The address goes into a header only; the connector knows the way.
        let endpoint = Endpoint::from_static("http://controld");
        let connecting = endpoint.connect_with_connector(connector);
        let channel = match tokio::time::timeout(CONNECT_DEADLINE, connecting).await {
            Ok(connected) => connected.map_err(|error| failed(io_beneath(&error)))?,
            Err(_elapsed) => return Err(failed(io::ErrorKind::TimedOut.into())),
        };
        Ok(Self {
            node: runtime(OurSide::of_all(channel.clone())),
            runtime: runtime(OurSide::over(channel.clone())),
            images: ImageServiceClient::new(OurSide::over(channel.clone()))
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
            admin: ImageAdminClient::new(channel.clone())
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
            machines: MachinesClient::new(channel.clone()),
            orphans: OrphansClient::new(channel).max_decoding_message_size(MAX_MESSAGE),
        })
    }

    /// The same, whose calls of pods and containers are also about those of a container runtime behind controld.
    pub(super) fn of_all(&self) -> Self {
        Self { runtime: self.node.clone(), ..self.clone() }
    }

    /// Who answers.
    pub(super) async fn version(&self) -> Result<VersionResponse, CtlError> {
        let mut runtime = self.runtime.clone();
        look("read controld's version", runtime.version(VersionRequest::default())).await
    }

    /// What controld says of the node.
    pub(super) async fn status(&self) -> Result<StatusResponse, CtlError> {
        let mut runtime = self.runtime.clone();
        look("read the node's status", runtime.status(StatusRequest { verbose: false })).await
    }

    /// The same with what controld says beside CRI's fields.
    pub(super) async fn status_in_full(&self) -> Result<StatusResponse, CtlError> {
        let mut runtime = self.runtime.clone();
        look("read the node's status", runtime.status(StatusRequest { verbose: true })).await
    }

    /// What kubelet is told of the node, on which there may be another runtime, and what controld says beside it.
    pub(super) async fn node_in_full(&self) -> Result<StatusResponse, CtlError> {
        let mut node = self.node.clone();
        look("read the node's status", node.status(StatusRequest { verbose: true })).await
    }

    /// Who kubelet is told that it speaks with.
    pub(super) async fn node_version(&self) -> Result<VersionResponse, CtlError> {
        let mut node = self.node.clone();
        look("read the node's version", node.version(VersionRequest::default())).await
    }

    pub(super) async fn sandboxes(&self) -> Result<Vec<PodSandbox>, CtlError> {
        let mut runtime = self.runtime.clone();
        Ok(look("list pods", runtime.list_pod_sandbox(ListPodSandboxRequest::default())).await?.items)
    }

    pub(super) async fn containers(&self) -> Result<Vec<Container>, CtlError> {
        let mut runtime = self.runtime.clone();
        Ok(look("list containers", runtime.list_containers(ListContainersRequest::default())).await?.containers)
    }

    /// A pod's first IP; empty if it has none.
    pub(super) async fn pod_ip(&self, sandbox: &str) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let answer = look("read the pod's status", runtime.pod_sandbox_status(request)).await?;
        let network = answer.status.and_then(|status| status.network);
        Ok(network.map(|network| network.ip).unwrap_or_default())
    }

    pub(super) async fn container(&self, id: &str) -> Result<ContainerStatus, CtlError> {
        let action = "read the container's status";
        let mut runtime = self.runtime.clone();
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let answer = look(action, runtime.container_status(request)).await?;
        answer.status.ok_or_else(|| CtlError::Answer { action: action.into(), lacks: "status" })
    }

    /// The same with what controld says beside CRI's fields.
    pub(super) async fn container_in_full(&self, id: &str) -> Result<ContainerStatusResponse, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        look("read the container's status", runtime.container_status(request)).await
    }

    /// A pod's status with what controld says beside CRI's fields.
    pub(super) async fn sandbox_in_full(&self, id: &str) -> Result<PodSandboxStatusResponse, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        look("read the pod's status", runtime.pod_sandbox_status(request)).await
    }

    /// What the pods that run use.
    pub(super) async fn stats(&self) -> Result<Vec<PodSandboxStats>, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = ListPodSandboxStatsRequest::default();
        Ok(look("read what pods use", runtime.list_pod_sandbox_stats(request)).await?.stats)
    }

    /// What becomes of pods and machines from now on.
    pub(super) async fn events(&self) -> Result<Messages<ContainerEventResponse>, CtlError> {
        let mut runtime = self.runtime.clone();
        let action = "listen to events".to_owned();
        let stream = look(&action, runtime.get_container_events(GetEventsRequest {})).await?;
        Ok(Messages { action, stream })
    }

    /// Makes a pod of a runtime handler; the daemon's own if that is empty.
    pub(super) async fn run_sandbox(&self, config: PodSandboxConfig, handler: &str) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = RunPodSandboxRequest { config: Some(config), runtime_handler: handler.to_owned() };
        Ok(work("make the pod", runtime.run_pod_sandbox(request)).await?.pod_sandbox_id)
    }

    pub(super) async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        pod: Option<PodSandboxConfig>,
    ) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        let request =
            CreateContainerRequest { pod_sandbox_id: sandbox.to_owned(), config: Some(config), sandbox_config: pod };
        Ok(work("make the machine", runtime.create_container(request)).await?.container_id)
    }

    pub(super) async fn start_container(&self, id: &str) -> Result<(), CtlError> {
        let mut runtime = self.runtime.clone();
        let request = StartContainerRequest { container_id: id.to_owned() };
        work("start the machine", runtime.start_container(request)).await.map(drop)
    }

    pub(super) async fn stop_container(&self, id: &str, grace: u32) -> Result<(), CtlError> {
        let mut runtime = self.runtime.clone();
        let request = StopContainerRequest { container_id: id.to_owned(), timeout: grace.into() };
        let deadline = WORK_DEADLINE + Duration::from_secs(grace.into());
        call(&format!("stop container `{}`", short(id)), deadline, runtime.stop_container(request)).await.map(drop)
    }

    pub(super) async fn remove_container(&self, id: &str) -> Result<(), CtlError> {
        let mut runtime = self.runtime.clone();
        let request = RemoveContainerRequest { container_id: id.to_owned() };
        work(&format!("remove container `{}`", short(id)), runtime.remove_container(request)).await.map(drop)
    }

    /// Stops and removes a pod with all that is in it.
    pub(super) async fn remove_sandbox(&self, id: &str) -> Result<(), CtlError> {
        let mut runtime = self.runtime.clone();
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        work(&format!("stop pod `{}`", short(id)), runtime.stop_pod_sandbox(request)).await?;
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        work(&format!("remove pod `{}`", short(id)), runtime.remove_pod_sandbox(request)).await.map(drop)
    }

    /// The URL of a container's console.
    pub(super) async fn attach(&self, id: &str) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        let request =
            AttachRequest { container_id: id.to_owned(), stdin: true, tty: true, stdout: true, stderr: false };
        Ok(look("attach to the console", runtime.attach(request)).await?.url)
    }

    /// The URL of a command's session.
    pub(super) async fn exec(&self, request: ExecRequest) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        Ok(look("start the command", runtime.exec(request)).await?.url)
    }

    /// Runs a command to its end, which controld waits for as long as the request says; 0 seconds are forever.
    pub(super) async fn exec_sync(&self, request: ExecSyncRequest) -> Result<ExecSyncResponse, CtlError> {
        let action = "run the command";
        let mut runtime = self.runtime.clone().max_decoding_message_size(MAX_OUTPUT);
        let seconds = u64::try_from(request.timeout).unwrap_or_default();
        let asked = runtime.exec_sync(request);
        if seconds == 0 {
            return asked.await.map(Response::into_inner).map_err(refused(action));
        }
        call(action, LOOK_DEADLINE + Duration::from_secs(seconds), asked).await
    }

    /// The URL of a pod's ports.
    pub(super) async fn port_forward(&self, id: &str) -> Result<String, CtlError> {
        let mut runtime = self.runtime.clone();
        let request = PortForwardRequest { pod_sandbox_id: id.to_owned(), port: Vec::new() };
        Ok(look("forward ports", runtime.port_forward(request)).await?.url)
    }

    /// An image of a runtime handler; of the daemon's own if that is empty.
    pub(super) async fn image(&self, name: &str, handler: &str) -> Result<ImageStatusResponse, CtlError> {
        let mut images = self.images.clone();
        let image = ImageSpec { runtime_handler: handler.to_owned(), ..spec(name) };
        let request = ImageStatusRequest { image: Some(image), verbose: false };
        look(&format!("look for image `{name}`"), images.image_status(request)).await
    }
}

/// Messages that come one after the other.
///
/// There is no deadline on them: controld has one on each part of its work, and the user sees how far it is.
#[derive(Debug)]
pub(crate) struct Messages<T> {
    action: String,
    stream: Streaming<T>,
}

impl<T> Messages<T> {
    /// The next one, if there is one.
    pub(crate) async fn next(&mut self) -> Result<Option<T>, CtlError> {
        self.stream.message().await.map_err(refused(&self.action))
    }
}

/// An image as CRI names it.
pub(super) fn spec(name: &str) -> ImageSpec {
    ImageSpec { image: name.to_owned(), ..Default::default() }
}

async fn look<T>(action: &str, asked: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CtlError> {
    call(action, LOOK_DEADLINE, asked).await
}

async fn work<T>(action: &str, asked: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, CtlError> {
    call(action, WORK_DEADLINE, asked).await
}

async fn call<T>(
    action: &str,
    deadline: Duration,
    asked: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CtlError> {
    // On the heap: a call of tonic is large, and all that wait for it would have it on their stack.
    match tokio::time::timeout(deadline, Box::pin(asked)).await {
        Ok(answer) => answer.map(Response::into_inner).map_err(refused(action)),
        Err(_elapsed) => Err(CtlError::Deadline { action: action.to_owned(), deadline }),
    }
}

fn refused(action: &str) -> impl FnOnce(Status) -> CtlError {
    move |status| CtlError::Call { action: action.to_owned(), cause: Refusal(status) }
}

/// The system's word at the bottom of a transport's error.
fn io_beneath(error: &tonic::transport::Error) -> io::Error {
    let mut next = error.source();
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>() {
            // Errors of the system are only a number.
            return io.raw_os_error().map_or_else(|| io.kind().into(), io::Error::from_raw_os_error);
        }
        next = cause.source();
    }
    io::Error::other(error.to_string())
}
