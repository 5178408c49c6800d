//! Asks a side for an answer that is composed with others, in encoded messages: tonic's client with a codec that is none.

use bytes::{Buf as _, BufMut as _, Bytes};
use prost::Message;
use tonic::body::Body;
use tonic::client::{Grpc, GrpcService};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::codegen::StdError;
use tonic::codegen::http::Uri;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::calls;

/// Largest message that is taken from a side. kubelet takes 16 MiB at once; a list that is streamed may be longer.
pub(super) const MOST: usize = 64 << 20;

/// Messages as they are.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) path: PathAndQuery,
    pub(super) message: Bytes,
    /// Of the call that it is asked for.
    pub(super) metadata: MetadataMap,
}

impl Question {
    /// A question of our own.
    pub(super) fn new(path: &'static str, message: Bytes) -> Self {
        Self { path: PathAndQuery::from_static(path), message, metadata: MetadataMap::new() }
    }

    /// That of a call, asked in its place; with its deadline, if that is not one of ours.
    pub(super) fn of(parts: &Parts, message: Bytes, with_timeout: bool) -> Self {
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Self { path, message, metadata: metadata(parts, with_timeout) }
    }

    /// The name of what is asked for, in metrics and errors.
    pub(super) fn call(&self) -> &'static str {
        calls::name(self.path.path())
    }

    fn request(self) -> (Request<Bytes>, PathAndQuery) {
        (Request::from_parts(self.metadata, Default::default(), self.message), self.path)
    }
}

/// What a call says besides its message, for another call in its place. Its deadline only if that has none of its own.
pub(super) fn metadata(parts: &Parts, with_timeout: bool) -> MetadataMap {
    let mut headers = parts.headers.clone();
    // The client of that call has its own.
    for own in ["content-type", "content-length", "te", "user-agent", "grpc-encoding", "grpc-accept-encoding"] {
        headers.remove(own);
    }
    if !with_timeout {
        headers.remove("grpc-timeout");
    }
    MetadataMap::from_headers(headers)
}

fn client<T>(side: T) -> Grpc<T> {
    Grpc::with_origin(side, Uri::from_static("http://localhost")).max_decoding_message_size(MOST)
}

/// The answer that is one message, with its metadata.
pub(super) async fn one<T>(side: T, question: Question) -> Result<Response<Bytes>, Status>
where
    T: GrpcService<Body>,
    T::ResponseBody: tonic::codegen::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<StdError>,
{
    let (request, path) = question.request();
    let mut client = client(side);
    ready(&mut client).await?;
    client.unary(request, path, Raw).await
}

/// An answer that can be understood, and what it says. What is no message is as no answer: with ours behind it nobody could read either.
pub(super) fn understood<M: Message + Default>(answer: Bytes) -> Result<(Bytes, M), Status> {
    match M::decode(answer.clone()) {
        Ok(message) => Ok((answer, message)),
        Err(error) => Err(Status::internal(format!("the container runtime's answer is none: {error}"))),
    }
}

/// The answer that is a stream of messages.
pub(super) async fn stream<T>(side: T, question: Question) -> Result<Streaming<Bytes>, Status>
where
    T: GrpcService<Body>,
    T::ResponseBody: tonic::codegen::Body<Data = Bytes> + Send + 'static,
    <T::ResponseBody as tonic::codegen::Body>::Error: Into<StdError>,
{
    let (request, path) = question.request();
    let mut client = client(side);
    ready(&mut client).await?;
    Ok(client.server_streaming(request, path, Raw).await?.into_inner())
}

/// The messages of a stream one after the other, as one: at most [`MOST`] of them, and all or an error.
pub(super) async fn collected(mut stream: Streaming<Bytes>) -> Result<Bytes, Status> {
    let mut all = bytes::BytesMut::new();
    while let Some(message) = stream.message().await? {
        if all.len() + message.len() > MOST {
            return Err(Status::resource_exhausted(format!("a list has more than {} MiB", MOST >> 20)));
        }
        all.extend_from_slice(&message);
    }
    Ok(all.freeze())
}

async fn ready<T: GrpcService<Body>>(client: &mut Grpc<T>) -> Result<(), Status> {
    client.ready().await.map_err(|error| Status::from_error(error.into()))
}
