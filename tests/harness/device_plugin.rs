//! A device plugin of kubelet's, with one device: what operators install for GPUs and the like, and what they may get wrong.
//!
//! It speaks kubelet's API `deviceplugin` v1beta1, of which here is what a plugin cannot do without. It listens on a socket of its own
//! in kubelet's directory, and tells kubelet of it once; kubelet then calls back. kubelet empties the directory when it starts, so
//! a plugin comes after it.

use std::convert::Infallible;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context as Task, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::pace;
use crate::wait::wait_for;

/// Where kubelet and its plugins have their sockets.
const DIR: &str = "/var/lib/kubelet/device-plugins";
const LISTENS_DEADLINE: Duration = Duration::from_secs(60);
const CALL_DEADLINE: Duration = Duration::from_secs(60);
const VERSION: &str = "v1beta1";

/// A device's node that a container is given.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceNode {
    /// Its path in the container.
    #[prost(string, tag = "1")]
    pub in_container: String,
    /// Its path on the node.
    #[prost(string, tag = "2")]
    pub on_node: String,
    /// Of `r`, `w` and `m`, as cgroups have them.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// What a container is given for a device.
#[derive(Debug, Clone)]
pub enum Given {
    /// These nodes.
    Nodes(Vec<DeviceNode>),
    /// What CDI's files say of this name, such as `example.com/gpu=0`.
    ByCdi(String),
}

/// A plugin that runs, until it is dropped.
#[derive(Debug)]
pub struct DevicePlugin {
    _runtime: Runtime,
}

impl DevicePlugin {
    /// Has kubelet, which runs, offer one device by the resource's name, such as `example.com/gpu`.
    ///
    /// # Errors
    /// When kubelet does not take it.
    pub fn start(resource: &str, given: Given) -> Result<Self> {
        let endpoint = format!("{}.sock", resource.replace('/', "-"));
        let kubelet = Path::new(DIR).join("kubelet.sock");
        wait_for("kubelet's socket for device plugins", LISTENS_DEADLINE, || {
            Ok(std::os::unix::net::UnixStream::connect(&kubelet).ok().map(drop))
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(async { UnixListener::bind(Path::new(DIR).join(&endpoint)) })?;
        let server = Server::builder().add_service(Calls { given });
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        let request = RegisterRequest { version: VERSION.to_owned(), endpoint, resource: resource.to_owned() };
        runtime.block_on(pace::within(CALL_DEADLINE, register(&kubelet, request)))??;
        Ok(Self { _runtime: runtime })
    }
}

impl Given {
    fn to_container(&self) -> GivenToContainer {
        match self.clone() {
            Self::Nodes(nodes) => GivenToContainer { nodes, by_cdi: Vec::new() },
            Self::ByCdi(name) => GivenToContainer { nodes: Vec::new(), by_cdi: vec![CdiName { name }] },
        }
    }
}

async fn register(kubelet: &Path, request: RegisterRequest) -> Result<()> {
    let path = kubelet.to_owned();
    let connect = move |_uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    };
    let channel = Endpoint::from_static("http://kubelet").connect_with_connector(tower::service_fn(connect)).await?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let call = PathAndQuery::from_static("/v1beta1.Registration/Register");
    let codec: ProstCodec<RegisterRequest, Empty> = ProstCodec::default();
    client.unary(tonic::Request::new(request), call, codec).await.context("kubelet refuses the plugin")?;
    Ok(())
}

/// What kubelet calls.
#[derive(Debug, Clone)]
struct Calls {
    given: Given,
}

impl NamedService for Calls {
    const NAME: &'static str = "v1beta1.DevicePlugin";
}

impl Service<Request<Body>> for Calls {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _task: &mut Task<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let given = self.given.clone();
        Box::pin(async move { Ok(answer(given, request).await) })
    }
}

async fn answer(given: Given, request: Request<Body>) -> Response<Body> {
    match request.uri().path() {
        // None of the optional calls.
        "/v1beta1.DevicePlugin/GetDevicePluginOptions" => {
            let options = async |_: tonic::Request<Empty>| Ok::<_, Status>(tonic::Response::new(Empty {}));
            let codec: ProstCodec<Empty, Empty> = ProstCodec::default();
            tonic::server::Grpc::new(codec).unary(tower::service_fn(options), request).await
        }
        // The device does not change. kubelet takes it for gone when this ends.
        "/v1beta1.DevicePlugin/ListAndWatch" => {
            let list = async |_: tonic::Request<Empty>| {
                let device = Device { id: "the-one".to_owned(), health: "Healthy".to_owned() };
                let told = tokio_stream::once(Ok(ListAndWatchResponse { devices: vec![device] }));
                Ok::<_, Status>(tonic::Response::new(told.chain(tokio_stream::pending())))
            };
            let codec: ProstCodec<ListAndWatchResponse, Empty> = ProstCodec::default();
            tonic::server::Grpc::new(codec).server_streaming(tower::service_fn(list), request).await
        }
        "/v1beta1.DevicePlugin/Allocate" => {
            let allocate = move |asked: tonic::Request<AllocateRequest>| {
                let containers = asked.get_ref().containers.iter().map(|_| given.to_container()).collect();
                async move { Ok::<_, Status>(tonic::Response::new(AllocateResponse { containers })) }
            };
            let codec: ProstCodec<AllocateResponse, AllocateRequest> = ProstCodec::default();
            tonic::server::Grpc::new(codec).unary(tower::service_fn(allocate), request).await
        }
        other => Status::new(Code::Unimplemented, other.to_owned()).into_http(),
    }
}

/// Stands for each message with nothing in it that is of use here.
#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

#[derive(Clone, PartialEq, prost::Message)]
struct RegisterRequest {
    #[prost(string, tag = "1")]
    version: String,
    /// The name of the plugin's socket, in kubelet's directory.
    #[prost(string, tag = "2")]
    endpoint: String,
    #[prost(string, tag = "3")]
    resource: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListAndWatchResponse {
    #[prost(message, repeated, tag = "1")]
    devices: Vec<Device>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Device {
    #[prost(string, tag = "1")]
    id: String,
    /// `Healthy`, or kubelet gives it to nobody.
    #[prost(string, tag = "2")]
    health: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AllocateRequest {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<AskedOfContainer>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AskedOfContainer {
    #[prost(string, repeated, tag = "1")]
    ids: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AllocateResponse {
    /// In the request's order.
    #[prost(message, repeated, tag = "1")]
    containers: Vec<GivenToContainer>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GivenToContainer {
    #[prost(message, repeated, tag = "3")]
    nodes: Vec<DeviceNode>,
    #[prost(message, repeated, tag = "5")]
    by_cdi: Vec<CdiName>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct CdiName {
    #[prost(string, tag = "1")]
    name: String,
}
