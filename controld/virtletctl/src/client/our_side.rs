//! A connection whose calls are about virtual machines alone where controld is in front of a container runtime, unless all pods are meant.

use std::task::{Context, Poll};

use proto::side::{OURS, SIDE};
use tonic::body::Body;
use tonic::codegen::http::{HeaderValue, Request};
use tonic::transport::Channel;
use tower::Service;

/// The connection. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct OurSide {
    channel: Channel,
    /// Calls are about all pods of the node, as kubelet's are.
    of_all: bool,
}

impl OurSide {
    pub(super) fn over(channel: Channel) -> Self {
        Self { channel, of_all: false }
    }

    pub(super) fn of_all(channel: Channel) -> Self {
        Self { channel, of_all: true }
    }
}

impl Service<Request<Body>> for OurSide {
    type Response = <Channel as Service<Request<Body>>>::Response;
    type Error = <Channel as Service<Request<Body>>>::Error;
    type Future = <Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.channel.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !self.of_all {
            request.headers_mut().insert(SIDE, HeaderValue::from_static(OURS));
        }
        self.channel.call(request)
    }
}
