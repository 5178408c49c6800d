//! A collector of OpenTelemetry's (OTLP over gRPC), to which the programs of a case send the spans of their traces.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use proto::otlp::any_value::Value;
use proto::otlp::trace_service_server::{TraceService, TraceServiceServer};
use proto::otlp::{ExportTraceServiceRequest, ExportTraceServiceResponse, KeyValue, Span};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Where it listens.
pub const ADDRESS: &str = "127.0.0.1:4317";

/// A span, and whose it is.
#[derive(Debug, Clone)]
pub struct Heard {
    /// The program, by its `service.name`.
    pub service: String,
    pub span: Span,
}

/// The collector, until it is dropped.
#[derive(Debug)]
pub struct Collector {
    heard: Arc<Mutex<Vec<Heard>>>,
    _runtime: Runtime,
}

impl Collector {
    /// # Errors
    /// When the port is taken.
    pub fn start() -> Result<Self> {
        let heard = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind(ADDRESS)).context("failed to listen for spans")?;
        let server = Server::builder().add_service(TraceServiceServer::new(Service(Arc::clone(&heard))));
        runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
        Ok(Self { heard, _runtime: runtime })
    }

    /// All spans so far.
    #[must_use]
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What an attribute says, if it is there and a text.
#[must_use]
pub fn said<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let attribute = attributes.iter().find(|attribute| attribute.key == key)?;
    match attribute.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(_) => None,
    }
}

#[derive(Debug)]
struct Service(Arc<Mutex<Vec<Heard>>>);

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for of_one in request.into_inner().resource_spans {
            let resource = of_one.resource.unwrap_or_default();
            let service = said(&resource.attributes, "service.name").unwrap_or_default();
            let spans = of_one.scope_spans.into_iter().flat_map(|scope| scope.spans);
            heard.extend(spans.map(|span| Heard { service: service.to_owned(), span }));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
