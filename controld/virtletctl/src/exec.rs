//! `exec`: a command in a guest, with our input, output and terminal.

mod session;

use std::io::{self, IsTerminal as _, Write};

use proto::cri::ExecSyncRequest;
use proto::machines::ExecRequest;
use streaming::client::{Options, attach};
use tokio::sync::mpsc;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::terminal::{self, Raw, Signals};

pub(super) use self::session::{Streams, carry};

pub(super) async fn run(client: &Client, wanted: cli::Exec, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let node = Node::read(client).await?.within(&wanted.within);
    let (_, container) = node.find_container(&wanted.pod, wanted.container.as_deref())?;
    if wanted.sync {
        return to_its_end(client, container.id, wanted, out).await;
    }
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    let tty = wanted.tty && (is_terminal || !wanted.stdin);
    if tty != wanted.tty {
        tell("no terminal for the command: the input is none");
    }
    let options = Options { stdin: wanted.stdin, stdout: true, stderr: !tty, tty };
    let request = ExecRequest {
        container_id: container.id,
        cmd: wanted.command,
        tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
        env: wanted.env.iter().filter_map(|variable| valued(variable)).collect(),
        working_dir: wanted.workdir.unwrap_or_default(),
        user: wanted.user.unwrap_or_default(),
    };
    let url = client.exec_otherwise(request).await?;
    // Before the terminal changes, so that none of them finds it changed.
    let mut signals = Signals::listen()?;
    let session = attach(&url, options).await.map_err(CtlError::Exec)?;
    let raw = if tty && wanted.stdin { Some(Raw::enter(stdin).map_err(terminal::no_raw)?) } else { None };
    let keys = if wanted.stdin { terminal::keys().map_err(terminal::no_keys)? } else { mpsc::channel(1).1 };
    let mut sizes = terminal::resized()?;
    let size = async || {
        sizes.recv().await;
        terminal::size(io::stdin())
    };
    let streams = Streams { input: keys, out: tokio::io::stdout(), err: tokio::io::stderr() };
    let ended = tokio::select! {
        ended = carry(session, streams, terminal::size(io::stdin()), size) => ended,
        signal = signals.next() => Err(CtlError::Interrupted(signal)),
    };
    drop(raw);
    done(ended?)
}

/// A variable with its value, which may be our own.
fn valued(variable: &str) -> Option<String> {
    if variable.contains('=') {
        return Some(variable.to_owned());
    }
    #[expect(clippy::disallowed_methods, reason = "of the user's environment, the variables that the user names")]
    let value = std::env::var(variable).ok()?;
    Some(format!("{variable}={value}"))
}

/// Waits for the command, then shows all of its output.
async fn to_its_end(
    client: &Client,
    container_id: String,
    wanted: cli::Exec,
    out: &mut (dyn Write + Send),
) -> Result<(), CtlError> {
    let request = ExecSyncRequest { container_id, cmd: wanted.command, timeout: wanted.timeout.into() };
    let answer = client.exec_sync(request).await?;
    out.write_all(&answer.stdout)?;
    out.flush()?;
    io::stderr().write_all(&answer.stderr)?;
    // What is no exit code of a process is a failure all the same.
    done(u8::try_from(answer.exit_code).unwrap_or(u8::MAX))
}

fn done(code: u8) -> Result<(), CtlError> {
    if code == 0 { Ok(()) } else { Err(CtlError::Exited(code)) }
}

/// What goes wrong with it is no reason to stop.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests;
