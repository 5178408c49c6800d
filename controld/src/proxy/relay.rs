//! Passes calls on to the default as they come, and its answers as they come: headers, frames of any kind and number, trailers.
//!
//! Dropping the answer, as hyper does when the client resets its stream, resets the default's. An answer that breaks off becomes one that
//! ends with Unavailable, since a client should not have to tell a broken runtime from a broken controld.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::body::Body;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{Method, Request, Response, Uri, Version};
use tonic::{Code, Status};

use super::backend::Backend;
use super::backend::measured::code;
use super::frames;
use super::metrics::{Metrics, Running};
use crate::api::edge::PassedOn;

/// Forwards a call whose body has not been read, or is a body again.
pub(super) async fn forward(
    backend: &Backend,
    metrics: &Metrics,
    call: &'static str,
    parts: Parts,
    body: Body,
) -> Response<Body> {
    PassedOn::note(&parts.extensions);
    let running = metrics.begin(call);
    let request = match request(parts, body) {
        Ok(request) => request,
        Err(status) => return ended(running, status),
    };
    match backend.pass(request).await {
        Err(status) => ended(running, status),
        Ok(response) => match code(response.headers()) {
            // All that there is stands in the headers.
            Some(code) => {
                running.end(code);
                response
            }
            None => response.map(|body| Body::new(Relayed { inner: body, running: Some(running) })),
        },
    }
}

fn ended(running: Running, status: Status) -> Response<Body> {
    running.end(status.code());
    status.into_http()
}

/// A call's request anew, without what its connection has put there.
fn request(parts: Parts, body: Body) -> Result<Request<Body>, Status> {
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let uri = Uri::builder().scheme("http").authority("localhost").path_and_query(path).build();
    let uri = uri.map_err(|_| Status::unimplemented("no such call"))?;
    let mut request = Request::new(body);
    (*request.method_mut(), *request.version_mut()) = (Method::POST, Version::HTTP_2);
    (*request.uri_mut(), *request.headers_mut()) = (uri, parts.headers);
    Ok(request)
}

/// The body of an answer.
struct Relayed {
    inner: Body,
    /// Until its end.
    running: Option<Running>,
}

impl Relayed {
    fn end(&mut self, code: Code) {
        if let Some(running) = self.running.take() {
            running.end(code);
        }
    }

    fn broken(&mut self, why: &str) -> Frame<Bytes> {
        self.end(Code::Unavailable);
        frames::trailers(&Status::unavailable(format!("the container runtime's answer broke off: {why}")))
    }
}

impl HttpBody for Relayed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.running.is_none() {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    match code(trailers) {
                        Some(code) => self.end(code),
                        None => return Poll::Ready(Some(Ok(self.broken("it ended without a status")))),
                    }
                }
                frame
            }
            Some(Err(error)) => self.broken(error.message()),
            None => self.broken("it ended without a status"),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.running.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
