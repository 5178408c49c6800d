//! A machine in a browser: a page with its screen and its serial console, served on loopback until the user leaves. Called by `vnc` and
//! `vm vnc`.
//!
//! Where the two streams come from is the caller's matter ([`Streams`]). The page is in the program ([`files`]); the browser fetches nothing
//! from elsewhere. Who may see it: [`door`]. What a request gets is decided without I/O ([`site`]). Each connection is one task, from its
//! first byte to the end of the stream that it may become ([`session`]), and there are only so many of them. Which page has the screen by a
//! node's account, the caller asks ([`seats`]).
//!
//! Whoever runs on this machine can connect, and so can each page of others in the user's browser. So nothing is served without the
//! cookie, and none but our own address and origin are taken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::{TokioIo, TokioTimer};
use streaming::{Input, Output};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

pub(super) use self::seats::Pages;
use self::session::{Kind, Sessions};
use self::site::Site;
use super::error::CtlError;
use super::tell::tell_line;
use super::text::shown;

mod answer;
mod door;
mod files;
mod opener;
mod seats;
mod session;
mod site;

/// Connections at a time, sessions among them. A browser has six of its own.
const MAX_CONNECTIONS: usize = 64;
/// Of them, those on which nobody was let in yet: the oldest makes room for the next, so that none who says nothing, or knows nothing, keeps
/// the user out.
const MAX_STRANGERS: usize = 16;
/// Bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;
/// How long a client may take to send a request's head, or to ask for something else.
const HEAD_DEADLINE: Duration = Duration::from_secs(10);
/// How long a connection may last that becomes no session: who does not read an answer ends by this.
const HTTP_DEADLINE: Duration = Duration::from_secs(120);
/// How long the change from HTTP to WebSocket may take once the answer is given.
const UPGRADE_DEADLINE: Duration = Duration::from_secs(10);
/// After a failure to accept, such as too many open files, this long passes before the next try.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Where the streams of a page come from. Each call opens one anew, and has deadlines of its own.
pub(super) trait Streams: Send + Sync {
    /// The screen, as VNC (RFB).
    fn screen(&self) -> BoxFuture<'_, Result<Opened, CtlError>>;
    /// The serial console, as bytes.
    fn console(&self) -> BoxFuture<'_, Result<Opened, CtlError>>;
}

/// A stream.
pub(super) struct Opened {
    /// From the machine.
    pub(super) read: Input,
    /// To it.
    pub(super) write: Output,
    /// How it ended, once `read` has. Dropping this cuts the stream.
    pub(super) ended: BoxFuture<'static, Result<(), CtlError>>,
}

/// Fails if this program has no page.
pub(super) fn built_in() -> Result<(), CtlError> {
    if files::FILES.is_empty() { Err(CtlError::NoPage) } else { Ok(()) }
}

/// Serves the page of a machine, which is named so, at a port of loopback. Has no end but an error.
pub(super) async fn serve(
    listener: TcpListener,
    name: &str,
    streams: Arc<dyn Streams>,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let port = listener.local_addr()?.port();
    let site = Arc::new(Site::new(name, port, files::FILES));
    let url = site.url();
    writeln!(out, "Screen and console of {} for one browser, until Ctrl-C:\n{url}", shown(name))?;
    out.flush()?;
    opener::open(&url);
    accept(listener, site, Arc::new(Sessions::new(streams)), MAX_CONNECTIONS).await
}

async fn accept(listener: TcpListener, site: Arc<Site>, sessions: Arc<Sessions>, most: usize) -> Result<(), CtlError> {
    let mut connections = JoinSet::new();
    let mut strangers = VecDeque::<(AbortHandle, Arc<AtomicBool>)>::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if connections.len() < most => match accepted {
                Ok((stream, _)) => {
                    strangers.retain(|(task, is_let_in)| !task.is_finished() && !is_let_in.load(Ordering::Relaxed));
                    if strangers.len() >= MAX_STRANGERS && let Some((oldest, _)) = strangers.pop_front() {
                        oldest.abort();
                    }
                    let is_let_in = Arc::<AtomicBool>::default();
                    let task = connections.spawn(connection(stream, site.clone(), sessions.clone(), is_let_in.clone()));
                    strangers.push_back((task, is_let_in));
                }
                Err(error) => {
                    tell_line(&format!("connection not accepted: {error}"));
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves a connection to its end, and says when somebody was let in on it.
async fn connection(stream: TcpStream, site: Arc<Site>, sessions: Arc<Sessions>, is_let_in: Arc<AtomicBool>) {
    // Typed characters are to travel at once. A socket that refuses this is about to fail anyway.
    let _ = stream.set_nodelay(true);
    // What it is to become, by the last of its requests.
    let becomes: Mutex<Option<(Kind, OnUpgrade)>> = Mutex::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        let (response, kind) = site.answer(&request);
        // Without token or cookie there is nothing but refusals.
        if !response.status().is_client_error() {
            is_let_in.store(true, Ordering::Relaxed);
        }
        if let Some(kind) = kind {
            let upgrade = hyper::upgrade::on(&mut request);
            *becomes.lock().unwrap_or_else(PoisonError::into_inner) = Some((kind, upgrade));
        }
        async move { Ok::<_, Infallible>(response) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    // A client that fails, or that takes too long, is a client's matter.
    let Ok(Ok(())) = timeout(HTTP_DEADLINE, served).await else { return };
    let Some((kind, upgrade)) = becomes.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    if let Ok(Ok(upgraded)) = timeout(UPGRADE_DEADLINE, upgrade).await {
        sessions.carry(kind, TokioIo::new(upgraded)).await;
    }
}

#[cfg(test)]
mod tests;
