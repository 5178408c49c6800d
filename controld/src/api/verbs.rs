//! Commands that are ours and not the guest's: an exec whose first word is `virtlet:VERB` is done here, so that whoever may exec into a
//! pod has the machine's screen, power and guest facts by any client of Kubernetes, and nothing but this needs a way to the node.
//!
//! [`words`] reads what was written, and [`refusal`] says no by an exit code and a line on stderr; docs/verbs.md has both for users.
//! A verb that changes something is not for probes (`ExecSync`), which come again and again.

mod looks;
mod refusal;
mod words;

use std::sync::Arc;
use std::time::Duration;

use common::Chain;
use serde::Serialize;
use serde_json::json;
use streaming::{ExecRequest, Input, Output, Session};
use tokio::io::{AsyncWriteExt as _, copy};
use tokio::time::timeout;
use tracing::Instrument as _;
use vmspec::ContainerId;
use vmspec::error::{Error, Kind};

use self::looks::{Looks, Picture};
use self::refusal::Refusal;
use self::words::{PREFIX, Verb, Wanted};
use crate::container::Containers;
use crate::guest::screen::viewers::Viewers;
use crate::model::{Container, ContainerState};

/// How long a verb may take, but for a look at the screen that goes on.
const DEADLINE: Duration = Duration::from_secs(90);
/// How long a client may take to read what a verb prints: it is kept until then.
const WRITE_DEADLINE: Duration = Duration::from_secs(60);
/// Most that an answer of `ExecSync` takes.
const MAX_ANSWER: usize = 15 << 20;

/// Who does verbs. Clones share it.
#[derive(Debug, Clone)]
pub struct Verbs {
    containers: Containers,
    viewers: Viewers,
    looks: Looks,
}

/// What came of a verb, as a command's end.
#[derive(Debug)]
pub struct Answer {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub code: u8,
}

/// What a verb prints.
#[derive(Debug)]
enum Printed {
    Nothing,
    Text(Vec<u8>),
    Picture(Picture),
}

type Done<T = Printed> = Result<T, Refusal>;

/// Whether a command is one of ours, known or not: none such goes to a guest.
#[must_use]
pub fn is_verb(argv: &[String]) -> bool {
    argv.first().is_some_and(|first| first.starts_with(PREFIX))
}

impl Verbs {
    /// Verbs for these containers.
    #[must_use]
    pub fn new(containers: Containers) -> Self {
        Self { containers, viewers: Viewers::default(), looks: Looks::new() }
    }

    /// Does a verb to its end that only reads. Calls by which kubelet probes come this way.
    pub async fn answer(&self, id: ContainerId, argv: &[String]) -> Answer {
        let done = async {
            let wanted = Wanted::parse(argv)?;
            if !wanted.verb.only_reads() {
                return Err(Refusal::of_probe(argv.first().map_or("", String::as_str)));
            }
            let container = self.containers.get(id)?;
            let printed = self.in_time(&container, wanted.verb).await?;
            let length = printed.bytes().len();
            if length > MAX_ANSWER {
                let what = format!("an answer takes {MAX_ANSWER} bytes, and this has {length}; a stream takes it");
                return Err(Error::new(Kind::Internal, what).into());
            }
            tracing::debug!(verb = ?wanted.verb, "verb done");
            Ok(printed.into_bytes())
        };
        match done.await {
            Ok(stdout) => Answer { stdout, stderr: Vec::new(), code: 0 },
            Err(refusal) => {
                tracing::debug!(code = refusal.code, why = refusal.text, "verb not done");
                Answer { stdout: Vec::new(), stderr: refusal.lines().into_bytes(), code: refusal.code }
            }
        }
    }

    /// Does a verb for a client of the streaming server; the exit code.
    pub(super) async fn serve(&self, request: &ExecRequest, session: Session) -> u8 {
        let Session { stdin, mut stdout, mut stderr, .. } = session;
        // Ids are whole here, and the container may have gone since the URL was given.
        let gone = || Error::new(Kind::NotFound, format!("no container `{}`", request.container_id));
        let found = request
            .container_id
            .parse::<ContainerId>()
            .map_err(|_another| gone())
            .and_then(|id| self.containers.get(id));
        let (container, span) = match found {
            Ok(container) => (Ok(container.clone()), self.containers.span(&container)),
            Err(error) => (Err(error), tracing::Span::current()),
        };
        let done = async {
            let wanted = Wanted::parse(&request.cmd)?;
            let done = self.serve_one(container, &wanted, request.tty, (stdin, &mut stdout)).await;
            let (verb, user) = (wanted.verb, wanted.user);
            match &done {
                Ok(()) => tracing::info!(?verb, user, "verb done"),
                Err(Refusal { code, text, .. }) => tracing::info!(?verb, user, code, why = text, "verb not done"),
            }
            done
        };
        let Err(refusal) = done.instrument(span).await else { return 0 };
        // A terminal has one stream alone, and a line there ends otherwise.
        if stderr.is_some() {
            let _late = write(&mut stderr, refusal.lines().as_bytes()).await;
        } else {
            let _late = write(&mut stdout, refusal.lines().replace('\n', "\r\n").as_bytes()).await;
        }
        refusal.code
    }

    async fn serve_one(
        &self,
        container: Result<Arc<Container>, Error>,
        wanted: &Wanted,
        tty: bool,
        (stdin, stdout): (Option<Input>, &mut Option<Output>),
    ) -> Done<()> {
        if tty && wanted.verb.is_binary() {
            return Err(Refusal::usage("what it prints is not for a terminal; leave -t out".into(), String::new()));
        }
        let container = container?;
        if let Verb::Vnc { take } = wanted.verb {
            return self.view(&container, take, (stdin, stdout)).await;
        }
        let printed = self.in_time(&container, wanted.verb).await?;
        Ok(write(stdout, printed.bytes()).await?)
    }

    /// Joins a viewer to the screen, until either leaves.
    async fn view(
        &self,
        container: &Container,
        take: bool,
        (stdin, stdout): (Option<Input>, &mut Option<Output>),
    ) -> Done<()> {
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(Refusal::usage("a viewer speaks, too: it takes stdin and stdout".into(), String::new()));
        };
        let screen = self.containers.screen(container).await?;
        let seat = self.viewers.seat(container.machine.id, take);
        let seat =
            seat.ok_or_else(|| Refusal::conflict("somebody views the screen; with --take you do, and they do not"))?;
        let (mut from_screen, mut to_screen) = screen.connect().await?.into_split();
        tokio::select! {
            () = seat.lost() => Err(Refusal::conflict("another viewer has taken the screen")),
            // Whoever ends it, and how, it has ended.
            _ = copy(&mut from_screen, stdout) => Ok(()),
            _ = copy(&mut stdin, &mut to_screen) => Ok(()),
        }
    }

    async fn in_time(&self, container: &Container, verb: Verb) -> Done {
        let late = |_elapsed| Error::new(Kind::Deadline, format!("it was not done within {} s", DEADLINE.as_secs()));
        timeout(DEADLINE, self.perform(container, verb)).await.map_err(late)?
    }

    /// What it prints.
    async fn perform(&self, container: &Container, verb: Verb) -> Done {
        let (containers, id) = (&self.containers, container.id);
        match verb {
            Verb::Pause => {
                if let Some(pause) = container.pause {
                    return Err(Refusal::conflict(format!("the VM is paused already: {}", pause.message())));
                }
                containers.pause(id).await?;
            }
            Verb::Unpause => {
                if container.state == ContainerState::Running && container.pause.is_none() {
                    return Err(Refusal::conflict("the VM is not paused"));
                }
                containers.resume(id).await?;
            }
            Verb::Reset => containers.reset(id).await?,
            Verb::SoftReboot => containers.reboot(id).await?,
            Verb::Freeze { limit } => containers.freeze(id, limit).await?,
            Verb::Unfreeze => containers.thaw(id).await?,
            Verb::GuestOsInfo => return as_json(&containers.facts(id).await?),
            Verb::UserList => {
                let items = containers.users(id).await?;
                return as_json(&json!({"metadata": {}, "items": items}));
            }
            Verb::FileSystemList => {
                let items = containers.file_systems(id).await?;
                return as_json(&json!({"metadata": {}, "items": items}));
            }
            Verb::Screenshot { move_cursor } => {
                let screen = containers.screen(container).await?;
                let look = async move { screen.picture(move_cursor).await };
                return Ok(Printed::Picture(self.looks.picture(container.machine.id, look).await?));
            }
            // Has streams of its own.
            Verb::Vnc { .. } => {}
        }
        Ok(Printed::Nothing)
    }
}

impl Printed {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::Text(bytes) | Self::Picture(Picture { bytes, .. }) => bytes,
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Text(bytes) | Self::Picture(Picture { bytes, .. }) => bytes,
        }
    }
}

fn as_json(fact: &impl Serialize) -> Done {
    let failed = |cause| Error::because(Kind::Internal, "what the guest tells is no JSON", cause);
    let mut text = serde_json::to_vec(fact).map_err(failed)?;
    text.push(b'\n');
    Ok(Printed::Text(text))
}

/// Writes to a client, which is leaving if it takes nothing any more.
///
/// # Errors
/// When it does neither in time.
async fn write(output: &mut Option<Output>, data: &[u8]) -> Result<(), Error> {
    let Some(open) = output else { return Ok(()) };
    let written = timeout(WRITE_DEADLINE, async { open.write_all(data).await.and(open.flush().await) }).await;
    let late = |_elapsed| {
        let what = format!("what it prints was not read within {} s", WRITE_DEADLINE.as_secs());
        Error::new(Kind::Deadline, what)
    };
    if let Err(error) = written.map_err(late)? {
        tracing::debug!(error = %Chain(&error), "a client does not take what a verb prints");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
