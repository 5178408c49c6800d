//! A command in a guest and the client that wants it.

use proto::agent::Stream;
use streaming::{ExecRequest, Input, Otherwise, Output, ResizeEvents, Session, SessionError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use vmspec::agent::FIRST_SIZE;
use vmspec::error::{Error, Kind};

use crate::guest::agents::{self, Agents, Command, Event, Process};
use crate::model::Container;
use crate::store::Store;

/// Bytes of input that are taken at once.
const INPUT_CHUNK: usize = 16 * 1024;

/// Said of a command whose end QEMU's agent tells with all that it has printed.
const CUT: &str = "there was more output than is kept where QEMU's guest agent runs a command: 16 MiB of one, 128 MiB of all \
                   on the node at a time; with `virtlet-agent` in the guest, see docs/guest-agent.md, all of it comes";

/// Runs the command until it or the client ends; its exit code.
pub(super) async fn serve(
    store: &Store,
    agents: &Agents,
    request: &ExecRequest,
    session: Session,
) -> Result<u8, SessionError> {
    let ExecRequest { container_id, cmd, stdin, tty, otherwise, .. } = request;
    let container = container_id.parse().ok().and_then(|id| store.container(id));
    // It may have ended since the URL was given.
    let gone = || Error::new(Kind::NotFound, format!("no container `{container_id}`"));
    let container = container.ok_or_else(gone)?;
    let command = Command::of(&container, cmd.clone())?.otherwise(otherwise)?;
    let wanted = command.clone().with(*stdin, tty.then_some(FIRST_SIZE));
    // What QEMU's agent can do need not wait for ours.
    let takes_ours = *tty || *stdin || *otherwise != Otherwise::default();
    let wanted = if takes_ours { wanted } else { wanted.at_once() };
    match agents.start(wanted).await {
        Ok(process) => carry(process, session, true).await,
        // What QEMU's agent can do, too.
        Err(error) if error.kind() == Kind::State && !takes_ours => {
            let output = agents.run(command, None).await?;
            write(&mut { session.stdout }, &output.stdout).await;
            write(&mut { session.stderr }, &output.stderr).await;
            if output.cut {
                return Err(Error::new(Kind::Exhausted, CUT).into());
            }
            Ok(output.code)
        }
        Err(error) => Err(error.into()),
    }
}

/// Joins a client to the command that a machine is for, until that or the client ends.
pub(super) async fn join(agents: &Agents, container: &Container, session: Session) -> Result<(), SessionError> {
    let process = agents.attach(container).await?;
    // How the command ends is told by the container.
    // Others may attach later, unless input is to be given once.
    let ends_input = session.stdin_once;
    carry(process, session, ends_input).await.map(drop)
}

async fn carry(mut process: Process, session: Session, ends_input: bool) -> Result<u8, SessionError> {
    let Session { stdin, mut stdout, mut stderr, resize, .. } = session;
    let (typing, sizing) = (process.input(), process.input());
    let shown = async {
        loop {
            match process.next().await {
                Some(Event::Stdout(data)) => {
                    write(&mut stdout, &data).await;
                    process.taken(Stream::Stdout, data.len()).await;
                }
                Some(Event::Stderr(data)) => {
                    write(&mut stderr, &data).await;
                    process.taken(Stream::Stderr, data.len()).await;
                }
                Some(Event::Exited(code)) => return Ok(code),
                Some(Event::Started | Event::Refused(_)) => {}
                None => {
                    let what = "the command's end was not seen: the guest or its agent was restarted";
                    return Err(Error::new(Kind::Unavailable, what).into());
                }
            }
        }
    };
    // The end of either of these is not the command's.
    let typed = async {
        if let Some(stdin) = stdin {
            type_in(stdin, &typing, ends_input).await;
        }
        std::future::pending().await
    };
    let sized = async {
        if let Some(resize) = resize {
            follow_size(resize, &sizing).await;
        }
        std::future::pending().await
    };
    tokio::select! {
        code = shown => code,
        never = typed => never,
        never = sized => never,
    }
}

/// A client that does not take output any more is leaving; until then the command goes on.
async fn write(output: &mut Option<Output>, data: &[u8]) {
    let Some(open) = output else { return };
    if open.write_all(data).await.is_err() || open.flush().await.is_err() {
        *output = None;
    }
}

async fn type_in(mut stdin: Input, process: &agents::Input, ends_input: bool) {
    let mut buffer = vec![0; INPUT_CHUNK];
    while let Ok(read @ 1..) = stdin.read(&mut buffer).await {
        if process.send(buffer.get(..read).unwrap_or_default()).await.is_err() {
            return;
        }
    }
    if ends_input {
        // A guest that is gone ends the session by itself.
        let _ = process.end().await;
    }
}

async fn follow_size(mut resize: ResizeEvents, process: &agents::Input) {
    while let Some(size) = resize.next().await {
        if process.resize(size.width, size.height).await.is_err() {
            return;
        }
    }
}
