//! An answer whose call is measured to its end, which is its status, or that nobody reads on.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use crate::proxy::client_deadline::ClientDeadline;
use crate::proxy::metrics::Running;

/// The status that stands in headers, or in trailers.
pub(in crate::proxy) fn code(headers: &tonic::codegen::http::HeaderMap) -> Option<Code> {
    headers.get("grpc-status").map(|status| Code::from_bytes(status.as_bytes()))
}

/// An answer of which `running` is told the end.
pub(super) fn measured(answer: Response<Body>, running: Running, deadline: ClientDeadline) -> Response<Body> {
    match code(answer.headers()) {
        // All that there is stands in the headers.
        Some(code) => {
            running.end(code);
            answer
        }
        None => answer.map(|inner| Body::new(Measured { inner, running: Some(running), deadline })),
    }
}

struct Measured {
    inner: Body,
    running: Option<Running>,
    deadline: ClientDeadline,
}

impl HttpBody for Measured {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let end = match &frame {
            Some(Ok(frame)) => {
                frame.trailers_ref().map(|trailers| code(trailers).unwrap_or_else(|| self.deadline.code()))
            }
            Some(Err(_)) | None => Some(self.deadline.code()),
        };
        if let Some(end) = end
            && let Some(running) = self.running.take()
        {
            running.end(end);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
