//! `GetContainerEvents` of both sides as one stream: each event as it came, in the order in which they come.
//!
//! One subscription at the default for each of kubelet's. When the default's ends, kubelet's stays open for [`PATIENCE`] while the
//! connection is made anew; then it is closed with Unavailable, since events may have been missed, and kubelet lists everything. A client
//! that does not read has a bounded queue, and then the same end.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Sender};
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::body::Body;
use tonic::codec::Streaming;
use tonic::codegen::http::Response;
use tonic::{Code, Status};

use super::ask::{self, Question};
use super::backend::Backend;
use super::frames;
use super::uses::Uses;

const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";
/// Events that wait for a client.
const QUEUE: usize = 10_000;
/// How long a client's stream outlives the default's.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a side's stream ended with.
type End = Status;

pub(super) async fn answer(uses: &Uses, message: Bytes) -> Result<Response<Body>, Status> {
    let question = Question::new(EVENTS, message);
    let own = ask::stream(uses.own.door(), question.clone()).await?;
    let (events, queue) = mpsc::channel(QUEUE);
    let backend = uses.backend.clone();
    let task = tokio::spawn(async move {
        let end = tokio::select! {
            end = pass_on(own, events.clone()) => end,
            end = of_default(backend, question, events.clone()) => end,
            () = events.closed() => return,
        };
        // Fails only if there is no room, and then the stream ends by itself.
        let _ = events.try_send(Err(end));
    });
    let task = AbortOnDropHandle::new(task);
    let messages = ReceiverStream::new(queue).map(move |event| {
        // Ends with the stream that the client reads.
        let _ = &task;
        event.map(|event| vec![event])
    });
    Ok(frames::stream(ended(messages)))
}

/// The default's events. Its answer may begin with the first of them, and no sooner: grpc-go sends headers with the first message.
async fn of_default(backend: Backend, question: Question, events: Sender<Result<Bytes, Status>>) -> End {
    if backend.away().is_some() {
        // Fails only if it is not there again, and then it says so.
        let _ = timeout(PATIENCE, backend.back()).await;
    }
    let connection = backend.connections();
    match ask::stream(backend.clone(), question).await {
        Ok(stream) => {
            let end = pass_on(stream, events).await;
            // Until it is there again or not, what is missed is the same.
            let _ = timeout(PATIENCE, backend.another_connection(connection)).await;
            end
        }
        // There are none to be missed.
        Err(status) if status.code() == Code::Unimplemented => std::future::pending().await,
        Err(status) => missed(status.message()),
    }
}

/// A queue that ends without an end was full.
fn ended(
    messages: impl tokio_stream::Stream<Item = Result<Vec<Bytes>, Status>> + Send,
) -> impl tokio_stream::Stream<Item = Result<Vec<Bytes>, Status>> + Send {
    messages.chain(tokio_stream::iter([Err(missed("the client does not read them"))]))
}

fn missed(why: &str) -> Status {
    Status::unavailable(format!("events may have been missed: {why}; list everything and subscribe again"))
}

/// Passes events on until there are no more, or no room.
async fn pass_on(mut stream: Streaming<Bytes>, events: Sender<Result<Bytes, Status>>) -> End {
    loop {
        match stream.message().await {
            Ok(Some(event)) => {
                if events.try_send(Ok(event)).is_err() {
                    return missed("the client does not read them");
                }
            }
            Ok(None) => return missed("a runtime ended its stream"),
            Err(status) => return missed(status.message()),
        }
    }
}
