//! `console`: our terminal and a machine's serial console, byte by byte, until the machine ends or the user leaves.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use bytes::Bytes;
use streaming::client::{Options, Session, attach};
use streaming::{Input, Output};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::tell::tell;
use super::terminal::{self, Raw, Signals};
use super::text::shown;

/// Leaves: Ctrl-].
const LEAVE: u8 = 0x1d;
/// How long a session's end may take: its reason, or the sending of what was typed last.
pub(super) const END_DEADLINE: Duration = Duration::from_secs(5);
/// Output that is read at once.
const CHUNK: usize = 8192;

/// How a session came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Machine,
    User,
}

pub(super) async fn run(client: &Client, wanted: &cli::Console) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let (pod, container) = node.find_container(&wanted.pod, wanted.container.as_deref())?;
    attach_to(client, &container.id, &pod.name()).await
}

/// Attaches to the console of a machine, whose pod is `pod`.
pub(super) async fn attach_to(client: &Client, container: &str, pod: &str) -> Result<(), CtlError> {
    let session = join(client, container).await?;
    at_terminal(pod, async move |keys, leaves| talk(session, keys, leaves, tokio::io::stdout()).await).await
}

/// Has our terminal, raw, for as long as a session of the console of `name` lasts, which is given what is typed, and whether Ctrl-] is to leave it.
pub(super) async fn at_terminal(
    name: &str,
    session: impl AsyncFnOnce(mpsc::Receiver<Bytes>, bool) -> Result<Ended, CtlError>,
) -> Result<(), CtlError> {
    let name = shown(name);
    // Before the terminal changes, so that none of them finds it changed.
    let mut signals = Signals::listen()?;
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    if is_terminal {
        tell(&format!("console of {name}; Ctrl-] leaves\n"));
    }
    let raw = if is_terminal { Some(Raw::enter(stdin).map_err(terminal::no_raw)?) } else { None };
    let keys = terminal::keys().map_err(terminal::no_keys)?;
    let ended = tokio::select! {
        ended = session(keys, is_terminal) => ended,
        signal = signals.next() => Err(CtlError::Interrupted(signal)),
    };
    drop(raw);
    if is_terminal {
        let why = match &ended {
            Ok(Ended::Machine) => "it has ended",
            Ok(Ended::User) => "you have left",
            Err(_) => "the session is over",
        };
        tell(&format!("\nconsole of {name}: {why}\n"));
    }
    ended.map(drop)
}

/// A session with the console of a machine.
pub(super) async fn join(client: &Client, container: &str) -> Result<Session, CtlError> {
    let url = client.attach(container).await?;
    Ok(attach(&url, Options { stdin: true, stdout: true, stderr: false, tty: true }).await?)
}

/// Carries a session until one of its ends is reached. Without `leaves`, input is only bytes, and may end before the
/// session does.
async fn talk(
    session: Session,
    keys: mpsc::Receiver<Bytes>,
    leaves: bool,
    out: impl AsyncWrite + Unpin,
) -> Result<Ended, CtlError> {
    let Session { stdin, stdout, mut end, .. } = session;
    tokio::select! {
        shown = show(stdout, out) => {
            shown?;
            match timeout(END_DEADLINE, end.wait()).await {
                Ok(ended) => ended?,
                // It has said all it had to show.
                Err(_elapsed) => {}
            }
            Ok(Ended::Machine)
        }
        () = type_in(keys, stdin, leaves, true) => {
            // Past the deadline, what was typed last is lost.
            let _ = timeout(END_DEADLINE, end.leave()).await;
            Ok(Ended::User)
        }
    }
}

/// Copies the console's output until it ends.
pub(super) async fn show(console: Option<Input>, mut out: impl AsyncWrite + Unpin) -> Result<(), CtlError> {
    let Some(mut console) = console else { return Ok(()) };
    let mut buffer = vec![0; CHUNK];
    // How the session failed, if it did, is told by its end.
    while let Ok(read @ 1..) = console.read(&mut buffer).await {
        out.write_all(buffer.get(..read).unwrap_or_default()).await?;
        out.flush().await?;
    }
    Ok(())
}

/// Copies input to the console. Returns when the user leaves, or hangs up; never if `leaves` is not set. The console is told of the end of input
/// if it `ends` one way alone; else it stays open.
pub(super) async fn type_in(mut keys: mpsc::Receiver<Bytes>, console: Option<Output>, leaves: bool, ends: bool) {
    let mut console = console;
    while let Some(typed) = keys.recv().await {
        let leave = typed.iter().position(|key| *key == LEAVE).filter(|_| leaves);
        let typed = typed.get(..leave.unwrap_or(typed.len())).unwrap_or_default();
        if let Some(open) = &mut console
            && (open.write_all(typed).await.is_err() || open.flush().await.is_err())
        {
            // The session ends; its output says so too.
            console = None;
        }
        if leave.is_some() {
            return;
        }
    }
    if !leaves {
        if ends && let Some(mut console) = console.take() {
            // Fails only if the session is over.
            let _ = console.shutdown().await;
        }
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
