//! A client's stream joined to one of a pod: bytes cross both ways until one side leaves. One message is in memory in each direction: who
//! reads slowly is waited for, and so is the other side.
//!
//! Both sides are asked each half minute whether they are still there, as a peer that is gone without a word is otherwise never noticed.

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
/// A peer of which nothing comes for so long, not even an answer, is gone.
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
    /// A side is gone without a word.
    Silent(&'static str),
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
        silent = watch_over([("client", &line), ("pod", pod_line)]) => End::Silent(silent),
        () = gone(stopped) => End::Stopped,
    };
    // A client that does not listen is not waited for; the pod's side is cut when it is dropped.
    let farewell = async {
        let (code, text) = end.farewell();
        let text = cut(text, MAX_CONTROL_LEN - 2);
        let _ = to_client.put(CLOSE, &[&code.to_be_bytes(), text.as_bytes()]).await;
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
                if let Err(lost) = to.send(&bytes).await {
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
        && let Err(lost) = to.send(&[&first]).await
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
                if let Err(lost) = to.send(&[&bytes]).await {
                    return End::ClientLost(lost);
                }
            }
            Ok(Part::End(Ok(()))) => return End::Pod,
            Ok(Part::End(Err(failure))) => return End::Failed(failure.text),
            Err(lost) => return End::PodLost(lost),
        }
    }
}

/// Which side is gone without a word.
async fn watch_over(lines: [(&'static str, &Line); 2]) -> &'static str {
    let mut ticks = interval_at(Instant::now() + ASK, ASK);
    loop {
        ticks.tick().await;
        for (side, line) in lines {
            if line.silent_since().is_some_and(|since| since.elapsed() > SILENT) {
                return side;
            }
            line.ask();
        }
    }
}

async fn gone(mut stopped: watch::Receiver<()>) {
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
            Self::ClientLost(_) | Self::Silent("client") => (GOING_AWAY, ""),
            Self::PodLost(_) | Self::Silent(_) => (FAILED, "the connection to the VM is lost"),
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
