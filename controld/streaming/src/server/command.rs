//! A session of attach or exec, from the first stream to the last frame.
//!
//! The client opens the streams that its request named, each answered at once, and the backend gets them. The session is
//! over when the backend says so, when the client is gone, or, with `stdin_once`, a while after the backend has read the end
//! of stdin. Then what the backend wrote is sent, the status goes onto the error stream, every stream is ended, and the
//! connection is closed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Terms;
use super::kinds::Command;
use super::protocol::{Protocol, StatusForm};
use crate::backend::{Backend, Input, Output, ResizeEvents, Session, SessionError, TermSize};
use crate::mux::{Arrivals, ReadHalf, Stream, WriteHalf};
use crate::remotecommand::{ResizeParser, STREAM_TYPE, Status, StreamType};
use crate::spdy::{self, Headers};
use crate::ws::Channels;

/// After the end of a `stdin_once` session's input, its output may go on this long.
const STDIN_ONCE_DEADLINE: Duration = Duration::from_secs(10);
/// How long the client may take to make room for the status.
const STATUS_DEADLINE: Duration = Duration::from_secs(30);

/// Runs the session to its end, however it ends.
pub(super) async fn serve<T>(transport: T, protocol: &Protocol, command: Command, backend: &dyn Backend, terms: &Terms)
where
    T: AsyncRead + AsyncWrite + Send + 'static,
{
    let container = command.container_id();
    let wanted = command.wanted(protocol);
    let channels = || channels(&wanted);
    let (connection, mut arrivals) = protocol.start(transport, terms.limits.clone(), channels);
    let streams = match timeout(terms.stream_creation, collect(&mut arrivals, wanted.clone())).await {
        Ok(Some(streams)) => streams,
        Ok(None) => return tracing::debug!(container, "client left before its session began"),
        Err(_) => {
            tracing::warn!(container, deadline = ?terms.stream_creation, "client did not open its streams in time");
            return connection.finish().await;
        }
    };
    // The session has all it wants: more streams are refused.
    drop(arrivals);
    let stdin_once = matches!(&command, Command::Attach(attach) if attach.stdin_once);
    tracing::debug!(container, protocol = protocol.name, "session begins");
    let (session, mut rest) = Rest::split(streams, stdin_once, connection.closed());
    let result = tokio::select! {
        result = command.run(backend, session) => result,
        () = rest.input_over(stdin_once) => Ok(0),
        () = rest.resizes() => Ok(0),
        () = connection.closed().cancelled_owned() => {
            let why = connection.why_closed().map(|why| why.to_string());
            return tracing::debug!(container, why, "client is gone");
        }
    };
    if let Err(error) = &result {
        tracing::warn!(container, error = chain(&**error), "streaming session failed");
    }
    rest.say(result, protocol.status).await;
    connection.finish().await;
    tracing::debug!(container, "session ended");
}

// === impl Command ===

impl Command {
    fn container_id(&self) -> &str {
        match self {
            Self::Attach(attach) => &attach.container_id,
            Self::Exec(exec) => &exec.container_id,
        }
    }

    /// The streams that the client is to open.
    fn wanted(&self, protocol: &Protocol) -> BTreeSet<StreamType> {
        let (stdin, stdout, stderr, tty) = match self {
            Self::Attach(attach) => (attach.stdin, attach.stdout, attach.stderr, attach.tty),
            Self::Exec(exec) => (exec.stdin, exec.stdout, exec.stderr, exec.tty),
        };
        [
            (true, StreamType::Error),
            (stdin, StreamType::Stdin),
            (stdout, StreamType::Stdout),
            (stderr, StreamType::Stderr),
            (tty && protocol.resize, StreamType::Resize),
        ]
        .into_iter()
        .filter_map(|(wanted, kind)| wanted.then_some(kind))
        .collect()
    }

    /// Answers with the exit code.
    async fn run(&self, backend: &dyn Backend, session: Session) -> Result<u8, SessionError> {
        match self {
            Self::Attach(attach) => backend.attach(&attach.container_id, session).await.map(|()| 0),
            Self::Exec(exec) => backend.exec(exec, session).await,
        }
    }
}

/// The streams of a session in channels. Kubernetes' server begins with an empty message on the first that it writes to.
fn channels(wanted: &BTreeSet<StreamType>) -> Channels {
    let number = |kind: &StreamType| match kind {
        StreamType::Stdin => 0,
        StreamType::Stdout => 1,
        StreamType::Stderr => 2,
        StreamType::Error => 3,
        StreamType::Resize => 4,
    };
    let mut streams: Vec<_> =
        wanted.iter().map(|kind| (number(kind), Headers::new().with(STREAM_TYPE, kind.as_str()))).collect();
    streams.sort_by_key(|(channel, _)| *channel);
    let first = streams.iter().map(|(channel, _)| *channel).find(|channel| (1..=3).contains(channel));
    Channels { streams, preface: first.map(|first| (first, Vec::new())).into_iter().collect() }
}

/// Takes the streams of a session as they come. `None` when the client is gone.
async fn collect(arrivals: &mut Arrivals, mut missing: BTreeSet<StreamType>) -> Option<BTreeMap<StreamType, Stream>> {
    let mut streams = BTreeMap::new();
    while !missing.is_empty() {
        let arrival = arrivals.next().await?;
        match arrival.headers().get(STREAM_TYPE).and_then(StreamType::parse) {
            Some(kind) if missing.remove(&kind) => {
                streams.insert(kind, arrival.accept());
            }
            _ => arrival.refuse(spdy::Status::REFUSED_STREAM),
        }
    }
    Some(streams)
}

/// What the session keeps to itself.
struct Rest {
    error: Option<WriteHalf>,
    resize: Option<(ReadHalf, watch::Sender<Option<TermSize>>)>,
    /// Fires when the backend has read the end of stdin, or wants no more of it.
    input_over: CancellationToken,
    /// Ends of streams that only the client speaks on. A client takes their end for the session's.
    _silent: Vec<WriteHalf>,
}

impl Rest {
    fn split(
        mut streams: BTreeMap<StreamType, Stream>,
        stdin_once: bool,
        closed: CancellationToken,
    ) -> (Session, Self) {
        let mut halves = |kind| streams.remove(&kind).map(Stream::split);
        let mut silent = Vec::new();
        let input_over = CancellationToken::new();
        let stdin = halves(StreamType::Stdin).map(|(read, write)| {
            silent.push(write);
            Box::new(Watched { read, over: input_over.clone() }) as Input
        });
        let (resize, events) = halves(StreamType::Resize)
            .map(|(read, write)| {
                silent.push(write);
                let (sender, events) = ResizeEvents::channel();
                ((read, sender), events)
            })
            .unzip();
        let session = Session {
            stdin,
            stdout: halves(StreamType::Stdout).map(|(_, write)| Box::new(write) as Output),
            stderr: halves(StreamType::Stderr).map(|(_, write)| Box::new(write) as Output),
            resize: events,
            stdin_once,
            closed,
        };
        let error = halves(StreamType::Error).map(|(_, write)| write);
        (session, Self { error, resize, input_over, _silent: silent })
    }

    /// Comes to its end only if the session is to end with its input.
    fn input_over(&self, stdin_once: bool) -> impl Future<Output = ()> + use<> {
        let over = self.input_over.clone();
        async move {
            if !stdin_once {
                std::future::pending::<()>().await;
            }
            over.cancelled().await;
            tokio::time::sleep(STDIN_ONCE_DEADLINE).await;
        }
    }

    /// Passes the terminal's sizes on. Never ends: the session goes on without them.
    fn resizes(&mut self) -> impl Future<Output = ()> + use<> {
        let resize = self.resize.take();
        async move {
            if let Some((mut read, sizes)) = resize {
                let mut parser = ResizeParser::default();
                let mut buffer = [0; 512];
                while let Ok(len @ 1..) = read.read(&mut buffer).await {
                    if let Some(size) = parser.feed(buffer.get(..len).unwrap_or_default()) {
                        // Nobody may care.
                        let _ = sizes.send(Some(size));
                    }
                }
            }
            std::future::pending().await
        }
    }

    async fn say(&mut self, result: Result<u8, SessionError>, form: StatusForm) {
        let status = match result {
            Ok(code) => Status::exited(code),
            Err(error) => Status::internal_error(&chain(&*error)),
        };
        let text = match form {
            StatusForm::Json => status.to_json(),
            StatusForm::Text => status.to_text().unwrap_or_default().to_owned(),
        };
        if let Some(error) = &mut self.error {
            // A client that is gone by now, or does not read, misses it.
            let _ = timeout(STATUS_DEADLINE, error.write_all(text.as_bytes())).await;
        }
    }
}

/// An error with all its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A reader that tells when it is over.
struct Watched {
    read: ReadHalf,
    over: CancellationToken,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (room, before) = (buffer.remaining(), buffer.filled().len());
        let result = ready!(Pin::new(&mut self.read).poll_read(context, buffer));
        if result.is_err() || (room > 0 && buffer.filled().len() == before) {
            self.over.cancel();
        }
        Poll::Ready(result)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.over.cancel();
    }
}
