//! A client's stream joined to one of a pod: bytes cross both ways until one side leaves. One message is in memory in each direction: who
//! reads slowly is waited for, and so is the other side.
//!
//! Both sides are asked each half minute whether they are still there. The pod's has to answer, as a node that is gone without a word is
//! otherwise never noticed. The client's need not: some do not read before a viewer comes (`virtctl vnc --proxy-only`), and others may be
//! slow; the API server, which is our peer on that side, is watched by TCP.

use std::time::Duration;

use hyper::body::Bytes;
use streaming::websocket::{CLOSE, MAX_CONTROL_LEN, Piece};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};

use super::channels::{Channels, FromPod, Part, ToPod};
use super::socket::{Line, Lost, Reader, Role, Writer, split};

/// Between two questions whether a peer is there.
const ASK: Duration = Duration::from_secs(30);
/// A pod's side of which nothing comes for so long after it was asked, not even an answer, is gone.
const SILENT: Duration = Duration::from_secs(100);
/// A client that is told of the end has so long to take it.
const FAREWELL: Duration = Duration::from_secs(5);

/// Codes of an end, as WebSocket has them.
const NORMAL: u16 = 1000;
const GOING_AWAY: u16 = 1001;
const PROTOCOL: u16 = 1002;
const FAILED: u16 = 1011;

/// How a session ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client left.
    Client,
    /// The pod's side did, in order.
    Pod,
    /// It did, and says why.
    Failed(String),
    /// This server is going away.
    Stopped,
    /// Something was lost on the client's side.
    ClientLost(Lost),
    /// It was on the pod's.
    PodLost(Lost),
    /// The pod's side is gone without a word.
    Silent,
}

/// Joins both until one leaves, and tells the client how it ended. `first` is what the pod's side has said already; once nobody holds the
/// other end of `stopped`, this server is going away.
pub(super) async fn join<C, P>(client: C, mut pod: Channels<P>, first: Bytes, stopped: watch::Receiver<()>) -> End
where
    C: AsyncRead + AsyncWrite,
    P: AsyncRead + AsyncWrite,
{
    let line = Line::new();
    let (mut from_client, mut to_client) = split(client, Role::Server);
    let (from_pod, to_pod, pod_line) = pod.halves();
    let end = tokio::select! {
        end = to_guest(&mut from_client, &line, to_pod, pod_line) => end,
        end = from_guest(from_pod, pod_line, &mut to_client, &line, first) => end,
        () = watch_over(&line, pod_line) => End::Silent,
        () = gone(stopped) => End::Stopped,
    };
    // A client that does not listen is not waited for; the pod's side is cut when it is dropped.
    let farewell = async {
        let (code, text) = end.farewell();
        let text = cut(text, MAX_CONTROL_LEN - 2);
        let _ = to_client.put(&line, CLOSE, &[&code.to_be_bytes(), text.as_bytes()]).await;
        let _ = to_client.shut().await;
    };
    let _ = timeout(FAREWELL, farewell).await;
    let _ = timeout(FAREWELL, pod.leave()).await;
    end
}

/// What the client says.
async fn to_guest<R, W>(from: &mut Reader<R>, line: &Line, to: &mut ToPod<W>, pod: &Line) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let piece = tokio::select! {
            piece = from.next(line) => piece,
            () = pod.wanted() => match to.keep(pod).await {
                Ok(()) => continue,
                Err(lost) => return End::PodLost(lost),
            },
        };
        match piece {
            Ok(Some(Piece::Message { bytes, .. })) if bytes.is_empty() => {}
            Ok(Some(Piece::Message { bytes, .. })) => {
                if let Err(lost) = to.send(pod, &bytes).await {
                    return End::PodLost(lost);
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => return End::Client,
            Err(lost) => return End::ClientLost(lost),
        }
    }
}

/// What the pod's side says.
async fn from_guest<R, W>(from: &mut FromPod<R>, pod: &Line, to: &mut Writer<W>, line: &Line, first: Bytes) -> End
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if !first.is_empty()
        && let Err(lost) = to.send(line, &[&first]).await
    {
        return End::ClientLost(lost);
    }
    drop(first);
    loop {
        let part = tokio::select! {
            part = from.next(pod) => part,
            () = line.wanted() => match to.keep(line).await {
                Ok(()) => continue,
                Err(lost) => return End::ClientLost(lost),
            },
        };
        match part {
            Ok(Part::Data(bytes)) => {
                if let Err(lost) = to.send(line, &[&bytes]).await {
                    return End::ClientLost(lost);
                }
            }
            Ok(Part::End(Ok(()))) => return End::Pod,
            Ok(Part::End(Err(failure))) => return End::Failed(failure.text),
            Err(lost) => return End::PodLost(lost),
        }
    }
}

/// Returns when the pod's side is gone without a word.
async fn watch_over(client: &Line, pod: &Line) {
    let mut ticks = interval_at(Instant::now() + ASK, ASK);
    loop {
        ticks.tick().await;
        if pod.silent_since().is_some_and(|since| since.elapsed() > SILENT) {
            return;
        }
        pod.ask();
        // So that nothing between us and the client takes the stream for forgotten.
        client.ask();
    }
}

/// Returns once the server ends.
pub(super) async fn gone(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}

impl End {
    /// What the client is told, as a code and a text.
    fn farewell(&self) -> (u16, &str) {
        match self {
            Self::Client | Self::Pod => (NORMAL, ""),
            Self::Failed(why) => (FAILED, why),
            Self::Stopped => (GOING_AWAY, "this replica of the server ends; connect again"),
            Self::ClientLost(Lost::Message(_)) => (PROTOCOL, "not WebSocket"),
            Self::ClientLost(_) => (GOING_AWAY, ""),
            Self::PodLost(_) | Self::Silent => (FAILED, "the connection to the VM is lost"),
        }
    }
}

/// As much of a text as fits.
fn cut(text: &str, most: usize) -> &str {
    let end = text.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= most).last();
    text.get(..end.unwrap_or_default()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
