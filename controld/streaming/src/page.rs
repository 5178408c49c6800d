//! A stream of bytes for a page in a browser, over WebSocket: the server's end.
//!
//! Used by `virtletctl`. Binary messages are the bytes, cut anywhere. A browser takes in what comes, whether or not its page keeps up;
//! so a page of a stream that does not wait for it says in text messages, as a decimal number, how many bytes it has done with ([`Terms::window`]).
//! Nothing is held here but one chunk for each way: who is slow is waited for.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::header::HeaderMap;
use hyper::{Method, Response};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, split};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::backend::{Input, Output};
use crate::websocket::{self, BINARY, CLOSE, Decoder, MessageError, PONG, Piece, opening};

/// Bytes that are read, and sent in one message.
const CHUNK: usize = 16 << 10;
/// Digits of the longest number of bytes.
const MAX_DIGITS: usize = 20;
/// Longest reason that a message of an end has room for.
const MAX_REASON: usize = 123;
/// How long a page may take to answer that it is over.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);

/// How a stream is carried.
#[derive(Debug)]
pub struct Terms {
    /// So many bytes may be with the page that it has not yet said to have done with. `None` if it never says so.
    pub window: Option<u64>,
    /// Ends it.
    pub stop: CancellationToken,
}

/// Whose end it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The page has left.
    Page,
    /// The stream has no more.
    Stream,
    /// [`Terms::stop`] was fired.
    Stopped,
}

/// Why a page is not understood.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// Its messages are none.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// A text message is no number of bytes, or nobody asked for one.
    #[error("text message of a page is no number of bytes, or nobody asked for one")]
    Text,
    /// The connection broke.
    #[error("connection to the page was lost")]
    Lost(#[source] io::Error),
}

/// The answer to a request for WebSocket; `None` if it is none.
#[must_use]
pub fn accept(method: &Method, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
    let accept = opening::accept(method, headers).filter(|_| opening::upgrades(headers, opening::UPGRADE))?;
    Some(opening::switch(accept))
}

/// Carries a stream to and from a page until one of them ends. [`close`] is to follow.
///
/// # Errors
/// When the page breaks off, or says what is not understood.
pub async fn carry(
    page: &mut (impl AsyncRead + AsyncWrite + Unpin),
    read: &mut Input,
    write: &mut Output,
    terms: &Terms,
) -> Result<Ended, PageError> {
    let (from_page, to_page) = split(page);
    let said = watch::Sender::new(Said::default());
    let heard = said.subscribe();
    tokio::select! {
        ended = up(from_page, write, &said, terms.window.is_some()) => ended,
        ended = down(read, to_page, heard, terms) => ended,
    }
}

/// What a page has said beside the stream's bytes.
#[derive(Debug, Clone, Default)]
struct Said {
    /// Bytes that it has done with.
    done: u64,
    /// How often it has asked whether we are there; only the last time is answered.
    pings: u64,
    ping: Bytes,
}

async fn up(
    mut page: impl AsyncRead + Unpin,
    stream: &mut Output,
    said: &watch::Sender<Said>,
    takes_text: bool,
) -> Result<Ended, PageError> {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let mut digits = Vec::new();
    loop {
        // What is left of a message's head is shorter than the least that a buffer grows by.
        buffer.reserve(CHUNK);
        if (&mut page).take(CHUNK as u64).read_buf(&mut buffer).await.map_err(PageError::Lost)? == 0 {
            return Ok(Ended::Page);
        }
        while let Some(piece) = decoder.decode(&mut buffer)? {
            match piece {
                Piece::Message { text: false, bytes, .. } => {
                    // How the stream ended is told by its other half.
                    if stream.write_all(&bytes).await.is_err() {
                        return Ok(Ended::Stream);
                    }
                }
                Piece::Message { text: true, last, bytes, .. } => {
                    digits.extend_from_slice(&bytes);
                    if !takes_text || digits.len() > MAX_DIGITS {
                        return Err(PageError::Text);
                    }
                    if last {
                        let done = str::from_utf8(&digits).ok().and_then(|digits| digits.parse().ok());
                        let done: u64 = done.ok_or(PageError::Text)?;
                        digits.clear();
                        said.send_modify(|said| said.done = said.done.max(done));
                    }
                }
                Piece::Ping(ping) => said.send_modify(|said| (said.pings, said.ping) = (said.pings + 1, ping)),
                Piece::Close(_) => return Ok(Ended::Page),
            }
        }
        if stream.flush().await.is_err() {
            return Ok(Ended::Stream);
        }
    }
}

async fn down(
    stream: &mut Input,
    mut page: impl AsyncWrite + Unpin,
    mut heard: watch::Receiver<Said>,
    terms: &Terms,
) -> Result<Ended, PageError> {
    let mut chunk = vec![0; CHUNK];
    let mut message = BytesMut::with_capacity(CHUNK);
    let (mut sent, mut done, mut pings) = (0_u64, 0, 0);
    loop {
        let room = terms.window.is_none_or(|window| sent.saturating_sub(done) < window);
        message.clear();
        tokio::select! {
            read = stream.read(&mut chunk), if room => match read {
                Ok(len @ 1..) => {
                    sent += len as u64;
                    websocket::write(BINARY, &[chunk.get(..len).unwrap_or_default()], &mut message);
                }
                // Why it failed, if it did, whoever opened it knows.
                Ok(0) | Err(_) => return Ok(Ended::Stream),
            },
            // Its other end outlives us.
            Ok(()) = heard.changed() => {
                let said = heard.borrow_and_update();
                done = said.done;
                if said.pings != pings {
                    pings = said.pings;
                    websocket::write(PONG, &[&said.ping], &mut message);
                }
            }
            () = terms.stop.cancelled() => return Ok(Ended::Stopped),
        }
        let written = async {
            page.write_all(&message).await?;
            page.flush().await
        };
        tokio::select! {
            written = written => written.map_err(PageError::Lost)?,
            // Half a message may have gone: nothing can follow it.
            () = late(&terms.stop) => return Err(PageError::Lost(io::ErrorKind::TimedOut.into())),
        }
    }
}

/// A page that does not read any more gets a little time once it is to end.
async fn late(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(CLOSE_DEADLINE).await;
}

/// Tells a page that, and why, its stream is over, and lets go of it. `code` is one of RFC 6455's, section 7.4; of `why` the page gets
/// 123 bytes.
pub async fn close(mut page: impl AsyncRead + AsyncWrite + Unpin, code: u16, why: &str) {
    let mut message = BytesMut::new();
    websocket::write(CLOSE, &[&code.to_be_bytes(), cut(why).as_bytes()], &mut message);
    // The kernel would drop our last word if we left something unread.
    let closed = async {
        page.write_all(&message).await?;
        page.shutdown().await?;
        let mut rest = vec![0; CHUNK];
        while page.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Whoever does not answer has lost it.
    let _ = timeout(CLOSE_DEADLINE, closed).await;
}

/// As much of a reason as there is room for.
fn cut(why: &str) -> String {
    if why.len() <= MAX_REASON {
        return why.to_owned();
    }
    let mut short = why.to_owned();
    short.truncate(why.floor_char_boundary(MAX_REASON - "…".len()));
    short + "…"
}

#[cfg(test)]
mod tests;
