//! Passes calls on to the default as they come, and its answers as they come: headers, frames of any kind and number, trailers.
//!
//! Dropping the answer, as hyper does when the client resets its stream, resets the default's. An answer that breaks off becomes one that
//! ends with Unavailable, since a client should not have to tell a broken runtime from a broken controld; or with DeadlineExceeded, after
//! the client's own deadline.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{Method, Request, Response, Uri, Version};
use tower::Service as _;

use super::backend::Backend;
use super::backend::measured::code;
use super::client_deadline::ClientDeadline;
use super::frames;
use crate::api::edge::PassedOn;

/// Forwards a call whose body has not been read, or is a body again.
pub(super) async fn forward(backend: &Backend, parts: Parts, body: Body) -> Response<Body> {
    PassedOn::note(&parts.extensions);
    let deadline = ClientDeadline::of(&parts.headers);
    let answered = async { backend.clone().call(request(parts, body)?).await };
    match answered.await {
        Err(status) => status.into_http(),
        // All that there is stands in the headers.
        Ok(response) if code(response.headers()).is_some() => response,
        Ok(response) => response.map(|inner| Body::new(Relayed { inner, deadline, has_ended: false })),
    }
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
    deadline: ClientDeadline,
    /// Its status has been passed on.
    has_ended: bool,
}

impl Relayed {
    fn broken(&mut self, why: &str) -> Frame<Bytes> {
        self.has_ended = true;
        let broken = Status::unavailable(format!("the container runtime's answer broke off: {why}"));
        frames::trailers(&self.deadline.told(broken))
    }
}

impl HttpBody for Relayed {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => match frame.trailers_ref().map(code) {
                None => frame,
                Some(None) => self.broken("it ended without a status"),
                Some(Some(_)) => {
                    self.has_ended = true;
                    frame
                }
            },
            Some(Err(error)) => self.broken(error.message()),
            None => self.broken("it ended without a status"),
        };
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
