//! A collector that tells what it is sent.

use std::net::SocketAddr;

use proto::otlp::any_value::Value;
use proto::otlp::trace_service_server::{TraceService, TraceServiceServer};
use proto::otlp::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse, KeyValue, ResourceSpans, Span,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::TcpListenerStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};

/// What it does with spans.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    Takes,
    /// All but so many.
    Rejects(i64),
    Refuses,
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    heard: UnboundedReceiver<ResourceSpans>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Service {
    manner: Manner,
    told: UnboundedSender<ResourceSpans>,
}

impl Fake {
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (told, heard) = unbounded_channel();
        let service = TraceServiceServer::new(Service { manner, told });
        let serving = async move {
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("serves");
        };
        Self { address, heard, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    /// What it is sent next.
    pub(crate) async fn next(&mut self) -> ResourceSpans {
        self.heard.recv().await.expect("it serves")
    }

    /// The spans that it was sent, by request.
    pub(crate) fn heard(&mut self) -> Vec<Vec<Span>> {
        std::iter::from_fn(|| self.heard.try_recv().ok()).map(spans).collect()
    }
}

/// The spans of a request.
pub(crate) fn spans(of: ResourceSpans) -> Vec<Span> {
    of.scope_spans.into_iter().flat_map(|scope| scope.spans).collect()
}

/// What attributes say, as `key=value`.
pub(crate) fn said(attributes: &[KeyValue]) -> Vec<String> {
    let value = |of: &KeyValue| match of.value.as_ref().and_then(|value| value.value.clone()) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        None => String::new(),
    };
    attributes.iter().map(|attribute| format!("{}={}", attribute.key, value(attribute))).collect()
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for of_one in request.into_inner().resource_spans {
            // Nobody may listen.
            let _ = self.told.send(of_one);
        }
        let partial_success = match self.manner {
            Manner::Takes => None,
            Manner::Rejects(rejected_spans) => {
                Some(ExportTracePartialSuccess { rejected_spans, error_message: "too old".into() })
            }
            Manner::Refuses => return Err(Status::resource_exhausted("too many")),
            Manner::Hangs => std::future::pending().await,
        };
        Ok(Response::new(ExportTraceServiceResponse { partial_success }))
    }
}
