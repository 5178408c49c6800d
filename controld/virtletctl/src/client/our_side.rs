//! A connection whose calls are about virtual machines alone, also where controld is in front of another container runtime.

use std::task::{Context, Poll};

use proto::side::{OURS, SIDE};
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request};
use tonic::transport::Channel;
use tower::Service;

/// The connection. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct OurSide(pub(super) Channel);

impl Service<Request<Body>> for OurSide {
    type Response = <Channel as Service<Request<Body>>>::Response;
    type Error = <Channel as Service<Request<Body>>>::Error;
    type Future = <Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request.headers_mut().insert(SIDE, HeaderValue::from_static(OURS));
        self.0.call(request)
    }
}
