//! The body of an answer that is waited for no longer than the default answers anything.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

/// What has come before the silence is passed on; then the silence is the error, and the end.
pub(super) struct UntilSilent {
    inner: Body,
    /// Until it was told.
    silence: Option<BoxFuture<'static, Status>>,
}

impl UntilSilent {
    pub(super) fn new(inner: Body, silence: BoxFuture<'static, Status>) -> Self {
        Self { inner, silence: Some(silence) }
    }
}

impl HttpBody for UntilSilent {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(mut silence) = self.silence.take() else { return Poll::Ready(None) };
        let frame = match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => match silence.as_mut().poll(context) {
                Poll::Ready(status) => return Poll::Ready(Some(Err(status))),
                Poll::Pending => Poll::Pending,
            },
            frame => frame,
        };
        self.silence = Some(silence);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.silence.is_none() || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
