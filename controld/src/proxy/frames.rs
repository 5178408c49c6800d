//! gRPC's frames: a message is a flag, its length in four bytes, and its bytes (gRPC over HTTP/2, "Length-Prefixed-Message").
//!
//! Requests that are decided on have one message, which is read here, at most [`MOST`] of it; answers that are composed are written here,
//! of pieces that are not copied.

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, StreamBody};
use hyper::body::Frame;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Response, header};
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

/// Largest message of a request that is read; the answers that kubelet takes are no larger.
pub(super) const MOST: usize = 16 << 20;
/// Before a message.
const HEAD: usize = 5;
/// What gRPC says of an answer's form.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A unary request that was read.
#[derive(Debug, Clone)]
pub(super) struct Read {
    /// As it came, to be sent on.
    framed: Bytes,
    /// The message alone.
    pub(super) message: Bytes,
}

impl Read {
    /// The request's body again.
    pub(super) fn body(&self) -> Body {
        Body::new(http_body_util::Full::new(self.framed.clone()))
    }
}

/// Reads the one message of a request.
pub(super) async fn read(body: Body) -> Result<Read, Status> {
    let collected = Limited::new(body, MOST + HEAD).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return Status::resource_exhausted(format!("a request has more than {} MiB", MOST >> 20));
        }
        Status::cancelled(format!("a request broke off: {error}"))
    })?;
    let framed = collected.to_bytes();
    let message = message(&framed)?;
    Ok(Read { framed, message })
}

fn message(framed: &Bytes) -> Result<Bytes, Status> {
    let Some((&[flag, a, b, c, d], rest)) = framed.split_first_chunk::<HEAD>() else {
        return Err(Status::invalid_argument("a request without a message"));
    };
    if flag != 0 {
        return Err(Status::unimplemented("requests are not compressed here; turn compression off"));
    }
    if usize::try_from(u32::from_be_bytes([a, b, c, d])) != Ok(rest.len()) {
        return Err(Status::invalid_argument("a request is not one message"));
    }
    Ok(framed.slice(HEAD..))
}

/// The body of a request that is one message.
pub(super) fn request(message: Bytes) -> Result<Body, Status> {
    let framed = [head(message.len())?, message].concat();
    Ok(Body::new(http_body_util::Full::new(framed.into())))
}

/// What stands before a message of this many bytes.
fn head(length: usize) -> Result<Bytes, Status> {
    let length = u32::try_from(length).map_err(|_| Status::resource_exhausted("an answer has more than 4 GiB"))?;
    let mut head = BytesMut::with_capacity(HEAD);
    head.put_u8(0);
    head.put_u32(length);
    Ok(head.freeze())
}

/// The answer that is one message, of these pieces.
pub(super) fn answer(pieces: Vec<Bytes>) -> Response<Body> {
    with_metadata(pieces, &MetadataMap::new())
}

/// [`answer`] with what the side that gave it said besides.
pub(super) fn with_metadata(pieces: Vec<Bytes>, metadata: &MetadataMap) -> Response<Body> {
    let mut response = stream(tokio_stream::iter([Ok(pieces)]));
    for (key, value) in metadata.clone().into_headers() {
        // A repeated key has no name after its first.
        if let Some(key) = key.filter(|key| !key.as_str().starts_with("grpc-") && key != header::CONTENT_TYPE) {
            response.headers_mut().insert(key, value);
        }
    }
    response
}

/// The answer that is a stream of messages, each of pieces. It ends with the first error, or well.
pub(super) fn stream(messages: impl Stream<Item = Result<Vec<Bytes>, Status>> + Send + 'static) -> Response<Body> {
    // `None` after what ends it.
    let ended = futures_util::stream::unfold(Some(Box::pin(messages)), |messages| async {
        let mut messages = messages?;
        let framed = match messages.next().await {
            Some(Ok(pieces)) => framed(pieces),
            Some(Err(status)) => Err(status),
            None => return Some((vec![trailers(&Status::new(Code::Ok, ""))], None)),
        };
        Some(match framed {
            Ok(frames) => (frames, Some(messages)),
            Err(status) => (vec![trailers(&status)], None),
        })
    });
    let frames = ended.flat_map(|frames| tokio_stream::iter(frames.into_iter().map(Ok::<_, Status>)));
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    response.headers_mut().insert(header::CONTENT_TYPE, GRPC);
    response
}

fn framed(pieces: Vec<Bytes>) -> Result<Vec<Frame<Bytes>>, Status> {
    let head = head(pieces.iter().map(Bytes::len).sum())?;
    Ok(std::iter::once(head).chain(pieces).filter(|piece| !piece.is_empty()).map(Frame::data).collect())
}

/// What ends an answer.
pub(super) fn trailers(status: &Status) -> Frame<Bytes> {
    let mut headers = HeaderMap::new();
    if status.add_header(&mut headers).is_err() {
        // Details that fit no header; the code is what matters.
        headers = HeaderMap::from_iter([(
            header::HeaderName::from_static("grpc-status"),
            HeaderValue::from(i32::from(status.code())),
        )]);
    }
    Frame::trailers(headers)
}

/// Whether an answer is gRPC's at all.
pub(super) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(GRPC.as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full(bytes: impl Into<Bytes>) -> Body {
        Body::new(http_body_util::Full::new(bytes.into()))
    }

    async fn refused(bytes: &'static [u8]) -> Code {
        read(full(bytes)).await.expect_err("refused").code()
    }

    #[tokio::test]
    async fn one_message_is_read_and_goes_on_as_it_came() {
        let framed = Bytes::from_static(&[0, 0, 0, 0, 2, 8, 1]);
        let read = read(full(framed.clone())).await.expect("read");
        assert_eq!(&*read.message, [8, 1]);
        assert_eq!(read.body().collect().await.expect("a body").to_bytes(), framed);
        assert!(super::read(full(&[0, 0, 0, 0, 0][..])).await.expect("read").message.is_empty());
    }

    #[tokio::test]
    async fn what_is_no_single_message_is_refused() {
        assert_eq!(refused(&[]).await, Code::InvalidArgument);
        assert_eq!(refused(&[0, 0, 0, 0]).await, Code::InvalidArgument);
        assert_eq!(refused(&[0, 0, 0, 0, 2, 1]).await, Code::InvalidArgument, "cut off");
        assert_eq!(refused(&[0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]).await, Code::InvalidArgument, "two");
        assert_eq!(refused(&[1, 0, 0, 0, 1, 1]).await, Code::Unimplemented);
        assert_eq!(refused(&[0, 255, 255, 255, 255]).await, Code::InvalidArgument);
        let long = read(full(vec![0; MOST + HEAD + 1])).await.expect_err("too long");
        assert_eq!((long.code(), long.message()), (Code::ResourceExhausted, "a request has more than 16 MiB"));
    }

    #[tokio::test]
    async fn an_answer_ends_with_its_status() {
        let messages = [Ok(vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from_static(b"bc")]), Ok(vec![])];
        let failing =
            messages.into_iter().chain([Err(Status::unavailable("gone")), Ok(vec![Bytes::from_static(b"x")])]);
        let body = stream(tokio_stream::iter(failing)).into_body().collect().await.expect("a body");
        let status = Status::from_header_map(body.trailers().expect("trailers")).expect("a status");
        assert_eq!((status.code(), status.message()), (Code::Unavailable, "gone"));
        assert_eq!(&*body.to_bytes(), [0, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 0, 0, 0], "an empty message is one");
        let body = answer(vec![]).into_body().collect().await.expect("a body");
        assert_eq!(body.trailers().and_then(|trailers| trailers.get("grpc-status")).expect("a status"), "0");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..5)) {
            let message = pieces.concat();
            let pieces = pieces.into_iter().map(Bytes::from).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            let read = runtime.block_on(async {
                let body = answer(pieces).into_body().collect().await.expect("a body").to_bytes();
                super::read(full(body)).await
            });
            prop_assert_eq!(read.expect("read").message, message);
        }
    }
}
