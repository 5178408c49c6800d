//! The body of an answer that is a stream: how the call ended is known when the body has.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::Frame;
use tonic::body::Body;
use tonic::codegen::Body as HttpBody;
use tonic::{Code, Status};

use super::calls::Running;

/// The body.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Body,
    /// Until its end.
    call: Option<Running>,
}

impl Watched {
    pub(super) fn new(inner: Body, call: Running) -> Self {
        Self { inner, call: Some(call) }
    }

    fn end(&mut self, code: Code, message: &str) {
        if let Some(call) = self.call.take() {
            call.end(code, message);
        }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    self.end(status.code(), status.message());
                }
            }
            Some(Err(error)) => self.end(error.code(), error.message()),
            None => self.end(Code::Ok, ""),
        }
        Poll::Ready(frame)
    }
}
