//! `exec`: a command in a guest, with our input, output and terminal.

mod first;
mod session;

use std::io::{self, IsTerminal as _, Write};

use proto::cri::ExecSyncRequest;
use proto::machines::ExecRequest;
use streaming::client::{Options, attach};
use tokio::sync::mpsc;

use self::first::First;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::tell::tell_line;
use super::terminal::{self, Raw, Signals};
use super::{cli, variable, wait};

pub(super) use self::session::{Streams, carry};

/// The better shell, if the guest has it.
const LOGIN_SHELL: &str = "if command -v bash >/dev/null; then exec bash -l; fi; exec sh -l";
/// What may take as long as a guest boots.
pub(super) const WAITED_FOR: &str =
    "waiting for `virtlet-agent` in the guest, up to 100 s while it boots; Ctrl-C leaves";

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
        tell_line("no terminal for the command: the input is none");
    }
    let options = Options { stdin: wanted.stdin, stdout: true, stderr: !tty, tty };
    let request = ExecRequest {
        container_id: container.id,
        cmd: wanted.command,
        tty,
        stdin: options.stdin,
        stdout: options.stdout,
        stderr: options.stderr,
        env: wanted
            .env
            .iter()
            .filter_map(|text| variable::valued(text))
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        working_dir: wanted.workdir.unwrap_or_default(),
        user: wanted.user.unwrap_or_default(),
    };
    let url = wait::told(WAITED_FOR, client.exec_otherwise(request)).await?;
    // Before the terminal changes, so that none of them finds it changed.
    let mut signals = Signals::listen()?;
    let session = attach(&url, options).await.map_err(CtlError::Exec)?;
    let keys = if wanted.stdin { terminal::keys().map_err(terminal::no_keys)? } else { mpsc::channel(1).1 };
    let mut sizes = terminal::resized()?;
    let size = async || {
        sizes.recv().await;
        terminal::size(io::stdin())
    };
    let is_raw = tty && wanted.stdin;
    // Only once the command has said something: until then nobody in the guest hears a Ctrl-C, so it has to be ours.
    let out = First::new(tokio::io::stdout(), || is_raw.then(|| Raw::enter(io::stdin())).transpose());
    let streams = Streams { input: keys, out, err: tokio::io::stderr() };
    let ended = tokio::select! {
        ended = carry(session, streams, terminal::size(io::stdin()), size) => ended,
        signal = signals.next() => Err(CtlError::Interrupted(signal)),
    };
    done(ended?)
}

/// A shell in the guest, on our terminal if we have one.
pub(super) async fn shell(client: &Client, wanted: cli::Shell, out: &mut (dyn Write + Send)) -> Result<(), CtlError> {
    let cli::Shell { pod, user, workdir, container, within } = wanted;
    let exec = cli::Exec {
        pod,
        command: ["sh", "-c", LOGIN_SHELL].map(str::to_owned).to_vec(),
        stdin: true,
        tty: io::stdin().is_terminal(),
        env: Vec::new(),
        workdir,
        user,
        container,
        sync: false,
        timeout: 0,
        within,
    };
    Box::pin(run(client, exec, out)).await
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

#[cfg(test)]
mod tests;
