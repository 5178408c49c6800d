//! `GetContainerEvents` of both sides as one stream: each event as it came, in the order in which they come.
//!
//! One subscription at the default for each of kubelet's, which is closed with Unavailable as seldom as can be: kubelet then lists
//! everything and subscribes again, but after five such ends in its life it gives up events for good, those of machines too.
//!
//! - The default's stream ends: kubelet's stays open until the default can be asked again, and is then closed once, since events may have
//!   been missed. To close it while the default is away would be for nothing: the list that kubelet then gets is the last good one. A
//!   default that ends its stream alone has [`PATIENCE`] to end the connection as well.
//! - The default is away when kubelet subscribes: the same. What kubelet has listed was the last good list, and what the default's
//!   containers did meanwhile is told by no event, so that a stream which just began would leave it untold until kubelet lists by
//!   itself, after five minutes.
//! - The default has no events (Unimplemented): kubelet's stays open, with ours. Another connection may be to another version, which is
//!   asked anew, and has its events from then on. What its containers did before kubelet never had by events.
//! - A client that does not read has a bounded queue, and then the same end.

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
/// How long the connection may outlive a stream over it: a runtime that ends ends its streams first.
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
    loop {
        if let Some(away) = backend.away() {
            backend.back().await;
            return missed(&away.why);
        }
        let connection = backend.connections();
        let end = match ask::stream(backend.clone(), question.clone()).await {
            Ok(stream) => pass_on(stream, events.clone()).await,
            // There are none to be missed.
            Err(status) if status.code() == Code::Unimplemented => {
                backend.another_connection(connection).await;
                continue;
            }
            // Perhaps of one that was lost before its first event.
            Err(status) => missed(status.message()),
        };
        // Until it is there again, what is missed is the same.
        let _ = timeout(PATIENCE, backend.another_connection(connection)).await;
        backend.back().await;
        return end;
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
