//! What all calls have in common, seen before they are decoded: a deadline, a place in the metrics, and one in a trace.
//!
//! [`super::serve`] puts [`Edge`] around all services. A call is given up at the client's own deadline (`grpc-timeout`) or at
//! ours ([`calls`]), whichever comes first. What changes state goes on all the same: it runs in a task of its own
//! ([`super::status::finish`]).

mod body;
mod calls;
mod passed_on;
mod timeout;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::{Code, Status};
use tower::{Layer, Service};

use self::body::Watched;
pub use self::calls::Calls;
pub(crate) use self::calls::name as name_of;
pub(crate) use self::passed_on::PassedOn;
pub(crate) use self::timeout::of as timeout_of;
use crate::trace;

/// Puts an [`Edge`] around services.
#[derive(Debug, Clone)]
pub(super) struct EdgeLayer(pub(super) Calls);

/// Services with an edge.
#[derive(Debug, Clone)]
pub(super) struct Edge<S> {
    inner: S,
    calls: Calls,
}

impl<S> Layer<S> for EdgeLayer {
    type Service = Edge<S>;

    fn layer(&self, inner: S) -> Edge<S> {
        Edge { inner, calls: self.0.clone() }
    }
}

impl<S> Service<Request<Body>> for Edge<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let call = self.calls.call(request.uri().path());
        let running = self.calls.begin(call, &mut request);
        let deadline = [call.longest, timeout::of(request.headers())].into_iter().flatten().min();
        let answer = trace::within(running.place(), self.inner.call(request));
        Box::pin(async move {
            let answered = match deadline {
                None => answer.await,
                Some(deadline) => match tokio::time::timeout(deadline, answer).await {
                    Ok(answered) => answered,
                    Err(_elapsed) => {
                        tracing::warn!(deadline_s = deadline.as_secs_f32(), "call not answered in time");
                        let text = format!("`{}` was not answered within {} s", call.name, deadline.as_secs_f32());
                        running.end(Code::DeadlineExceeded, &text);
                        return Ok(Status::deadline_exceeded(text).into_http());
                    }
                },
            };
            let response = answered?;
            match Status::from_header_map(response.headers()) {
                Some(status) => running.end(status.code(), status.message()),
                // How a stream ends is told after its last message.
                None if call.streams => return Ok(response.map(|body| Body::new(Watched::new(body, running)))),
                None => running.end(Code::Ok, ""),
            }
            Ok(response)
        })
    }
}

#[cfg(test)]
mod tests;
