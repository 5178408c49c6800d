//! A stream of bytes of a VM, by the server of subresources: WebSocket, whose messages are the bytes cut anywhere.
//!
//! A task carries it ([`carry`]), so that the server's questions are answered while nobody reads or writes here; one chunk for each way is in memory.
//! WebSocket has no end of one way alone: whoever ends writing leaves. A server of which nothing comes, though it was asked, is gone.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use hyper::header::{
    CONNECTION, HeaderMap, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use streaming::websocket::{BINARY, CLOSE, Decoder, PING, PONG, Piece, VERSION, accept, write_masked};
use streaming::{Input, Output};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, duplex, split};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use super::super::error::{ClusterError, Lost};
use super::refused;

/// What KubeVirt's clients and servers agree on.
const PROTOCOL: &str = "plain.kubevirt.io";
/// For the beginning: the server takes up to 20 s to find a VM and 20 s for its node, twice.
const OPEN: Duration = Duration::from_secs(60);
/// What is read at once, and sent in one message: it fits into one record of TLS.
const CHUNK: usize = (16 << 10) - 16;
/// Between two questions whether the server is there.
const ASK: Duration = Duration::from_secs(30);
/// One of which nothing comes for so long is gone.
const SILENT: Duration = Duration::from_secs(100);
/// One that takes nothing for so long, too.
const STALLED: Duration = Duration::from_secs(300);
/// Codes of an end.
const NORMAL: u16 = 1000;

/// Who has ended a stream that ended in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Us,
    Server,
}

/// A stream.
pub(crate) struct Stream {
    /// From the VM.
    pub(crate) read: Input,
    /// To it. Dropping it ends the stream.
    pub(crate) write: Output,
    /// How it ended, once `read` has, or once `write` is dropped. Dropping this cuts the stream.
    pub(crate) ended: BoxFuture<'static, Result<By, ClusterError>>,
}

/// Begins a stream.
pub(super) async fn open(client: &Client, action: &str, path: &str) -> Result<Stream, ClusterError> {
    let late = |_| Err(ClusterError::Deadline { action: action.into(), deadline: OPEN });
    let connection = timeout(OPEN, connect(client, action, path)).await.unwrap_or_else(late)?;
    Ok(joined(connection))
}

async fn connect(client: &Client, action: &str, path: &str) -> Result<TokioIo<Upgraded>, ClusterError> {
    let key = BASE64.encode(Uuid::new_v4().as_bytes());
    let answer = |lacks| ClusterError::Answer { action: action.into(), lacks };
    let request = Request::get(path)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_VERSION, VERSION)
        .header(SEC_WEBSOCKET_KEY, &key)
        .header(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
        .body(Body::empty())
        .map_err(|_| answer("path"))?;
    let response = client.send(request).await.map_err(|error| ClusterError::unreachable(action, &error))?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(refused(action, response).await);
    }
    if !agrees(response.headers(), &key) {
        return Err(answer("WebSocket in it as it is to be"));
    }
    let upgraded = hyper::upgrade::on(response).await;
    upgraded.map(TokioIo::new).map_err(|error| ClusterError::Broken { action: action.into(), why: error.to_string() })
}

/// Whether the other side has understood.
fn agrees(headers: &HeaderMap, key: &str) -> bool {
    let is = |name, value: &str| {
        headers.get(name).is_some_and(|said| said.as_bytes().eq_ignore_ascii_case(value.as_bytes()))
    };
    let accepts =
        accept(key).is_some_and(|wanted| headers.get(SEC_WEBSOCKET_ACCEPT).is_some_and(|said| *said == *wanted));
    accepts && is(UPGRADE, "websocket") && is(SEC_WEBSOCKET_PROTOCOL, PROTOCOL)
}

fn joined(connection: impl AsyncRead + AsyncWrite + Send + 'static) -> Stream {
    let (read, to_us) = duplex(CHUNK);
    let (write, from_us) = duplex(CHUNK);
    let carried = AbortOnDropHandle::new(tokio::spawn(carry(connection, from_us, to_us)));
    // There is no other failure than a panic's.
    let ended = async move { carried.await.unwrap_or(Ok(By::Server)).map_err(ClusterError::Stream) };
    Stream { read: Box::new(read), write: Box::new(write), ended: Box::pin(ended) }
}

async fn carry(
    connection: impl AsyncRead + AsyncWrite,
    from_us: DuplexStream,
    to_us: DuplexStream,
) -> Result<By, Lost> {
    let (from_server, to_server) = split(connection);
    let asked = watch::Sender::new(Bytes::new());
    let heard = asked.subscribe();
    tokio::select! {
        ended = down(from_server, to_us, &asked) => ended,
        ended = up(from_us, to_server, heard) => ended,
    }
}

/// What we say. Returns when we leave.
async fn up(
    mut from_us: DuplexStream,
    mut server: impl AsyncWrite + Unpin,
    mut heard: watch::Receiver<Bytes>,
) -> Result<By, Lost> {
    let (mut chunk, mut out) = (BytesMut::new(), BytesMut::new());
    let mut ticks = interval_at(Instant::now() + ASK, ASK);
    loop {
        chunk.clear();
        chunk.reserve(CHUNK);
        out.clear();
        let leaves = tokio::select! {
            read = from_us.read_buf(&mut chunk) => match read {
                Ok(1..) => {
                    write_masked(BINARY, &[&chunk], mask(), &mut out);
                    false
                }
                Ok(0) | Err(_) => {
                    write_masked(CLOSE, &[&NORMAL.to_be_bytes()], mask(), &mut out);
                    true
                }
            },
            // Its other end outlives us.
            Ok(()) = heard.changed() => {
                let payload = heard.borrow_and_update().clone();
                write_masked(PONG, &[&payload], mask(), &mut out);
                false
            }
            _ = ticks.tick() => {
                write_masked(PING, &[], mask(), &mut out);
                false
            }
        };
        let sent = async {
            server.write_all(&out).await?;
            server.flush().await
        };
        timeout(STALLED, sent).await.map_err(|_| Lost::Stalled(STALLED))?.map_err(Lost::Io)?;
        if leaves {
            return Ok(By::Us);
        }
    }
}

/// What the server says. Returns when it leaves, or nobody reads any more.
async fn down(
    mut server: impl AsyncRead + Unpin,
    mut to_us: DuplexStream,
    asked: &watch::Sender<Bytes>,
) -> Result<By, Lost> {
    let (mut decoder, mut buffer) = (Decoder::of_server(), BytesMut::new());
    loop {
        buffer.reserve(CHUNK);
        // It answers questions of ours, at least.
        match timeout(SILENT, server.read_buf(&mut buffer)).await {
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) => return Err(Lost::Cut),
            Ok(Err(cause)) => return Err(Lost::Io(cause)),
            Err(_) => return Err(Lost::Silent(SILENT)),
        }
        while let Some(piece) = decoder.decode(&mut buffer)? {
            match piece {
                Piece::Message { bytes, .. } => {
                    if to_us.write_all(&bytes).await.is_err() {
                        return Ok(By::Us);
                    }
                }
                Piece::Ping(payload) => drop(asked.send_replace(payload)),
                Piece::Close(said) => return end(&said),
            }
        }
    }
}

/// How it ended, as the server says it.
fn end(said: &[u8]) -> Result<By, Lost> {
    let Some((code, text)) = said.split_first_chunk::<2>() else { return Ok(By::Server) };
    match (u16::from_be_bytes(*code), String::from_utf8_lossy(text)) {
        (NORMAL, _) => Ok(By::Server),
        (code, text) if text.is_empty() => Err(Lost::Told(format!("the server ended it with code {code}"))),
        (_, text) => Err(Lost::Told(text.into_owned())),
    }
}

/// A mask that nobody foresees.
fn mask() -> [u8; 4] {
    let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use streaming::websocket::write;

    use super::*;

    fn message(opcode: u8, payload: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        write(opcode, &[payload], &mut out);
        out
    }

    /// What is read of a server that says this and cuts the connection, and how the stream ended.
    async fn told(said: &[u8]) -> (Vec<u8>, Result<By, ClusterError>) {
        let (ours, mut server) = duplex(1 << 20);
        let mut stream = joined(ours);
        server.write_all(said).await.expect("said");
        drop(server);
        let mut read = Vec::new();
        stream.read.read_to_end(&mut read).await.expect("read");
        (read, stream.ended.await)
    }

    #[tokio::test]
    async fn an_end_is_told_with_what_the_server_says() {
        let hello = message(BINARY, b"hello");
        let (read, ended) = told(&[&hello[..], &message(CLOSE, &NORMAL.to_be_bytes())].concat()).await;
        assert_eq!(read, b"hello");
        assert_eq!(ended.expect("in order"), By::Server);
        assert_eq!(told(&message(CLOSE, b"")).await.1.expect("in order"), By::Server);
        for (said, wanted) in [
            (&hello[..], "the API server cut the connection"),
            (&message(CLOSE, b"\x03\xf3the VM is gone"), "the VM is gone"),
            (&message(CLOSE, b"\x03\xe9"), "the server ended it with code 1001"),
            (b"\x81\x85", "WebSocket frame of a server is masked"),
        ] {
            let error = told(said).await.1.expect_err("it was not to end");
            let text = common::Chain(&error).to_string();
            assert!(text.ends_with(wanted), "{text}");
        }
    }

    #[tokio::test]
    async fn bytes_cross_and_questions_are_answered_until_we_leave() {
        let (ours, mut server) = duplex(1 << 20);
        let Stream { read, mut write, ended } = joined(ours);
        server.write_all(&message(PING, b"there?")).await.expect("asked");
        write.write_all(b"ls\n").await.expect("written");
        write.flush().await.expect("flushed");
        let (mut decoder, mut buffer, mut heard) = (Decoder::default(), BytesMut::new(), Vec::new());
        // An answer has no piece of its own: it is in what is left of what came.
        let mut all = BytesMut::new();
        while heard != b"ls\n" || all.len() < 8 + 12 + 1 {
            let before = buffer.len();
            assert!(server.read_buf(&mut buffer).await.expect("read") > 0);
            all.extend_from_slice(&buffer[before..]);
            while let Some(piece) = decoder.decode(&mut buffer).expect("messages of a client") {
                if let Piece::Message { bytes, .. } = piece {
                    heard.extend_from_slice(&bytes);
                }
            }
        }
        drop((read, write));
        assert_eq!(ended.await.expect("in order"), By::Us);
        while server.read_buf(&mut buffer).await.expect("read") > 0 {}
        assert_eq!(decoder.decode(&mut buffer), Ok(Some(Piece::Close(Bytes::copy_from_slice(&NORMAL.to_be_bytes())))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_is_gone() {
        let (ours, _server) = duplex(1 << 10);
        let error = joined(ours).ended;
        // Its writing half is dropped here, which is to leave.
        error.await.expect("we left");
        let (ours, _server) = duplex(1 << 10);
        let Stream { read: _read, write: _write, ended } = joined(ours);
        let error = ended.await.expect_err("it says nothing");
        assert_eq!(
            common::Chain(&error).to_string(),
            "stream of the VM ended: nothing came of the API server for 100 s"
        );
    }
}
