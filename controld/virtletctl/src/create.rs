//! `run`: an image to a running pod, and `restore`: a checkpoint of one. A step that fails undoes those before it.

use std::io::Write;
use std::path::{self, Path};

use proto::cri::*;
use uuid::Uuid;

use self::after::After;
use self::plan::{Plan, plan};
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::interrupt::Interrupt;
use super::logdir::LogDir;
use super::text::shown;
use super::{cli, wait};

mod after;
mod plan;

/// A machine that has started.
#[derive(Debug)]
struct Started {
    container: String,
    /// Of its pod; empty if it has none.
    ip: String,
}

/// What was made so far.
#[derive(Debug, Default)]
struct Made {
    /// Of the pod that controld was asked for, which it may finish although nobody hears of it.
    uid: Option<String>,
    sandbox: Option<String>,
    logs: Option<LogDir>,
}

/// Makes a pod of an image, or of a checkpoint of one, and prints its name and IP. With `--rm` the pod is gone when this ends.
pub(super) async fn run(
    client: &Client,
    (wanted, checkpoint): (cli::Run, Option<&Path>),
    out: &mut (dyn Write + Send),
    interrupt: &Interrupt,
) -> Result<(), CtlError> {
    let after = After::of(&wanted)?;
    let plan = plan(wanted, Uuid::new_v4())?;
    let PodSandboxMetadata { name, namespace, .. } = plan.pod.metadata.clone().unwrap_or_default();
    let node = Node::read(client).await?;
    let is_same = |pod: &PodSandboxMetadata| pod.name == name && pod.namespace == namespace;
    if node.sandboxes.iter().filter_map(|sandbox| sandbox.metadata.as_ref()).any(is_same) {
        return Err(CtlError::PodExists { name, namespace });
    }
    let mut made = Made::default();
    let checkpoint = checkpoint.map(absolute).transpose()?;
    let done = match make(client, (plan, checkpoint), &mut made, interrupt).await {
        Ok(started) => {
            let ip = if started.ip.is_empty() { "-".into() } else { shown(&started.ip) };
            let done = match writeln!(out, "{name} {ip}").and_then(|()| out.flush()) {
                Ok(()) => Box::pin(after.stay(client, &name, &started, interrupt)).await,
                Err(cause) => Err(cause.into()),
            };
            if !after.removes {
                return done;
            }
            done
        }
        Err(first) => Err(first),
    };
    let undone = wait::told("removing what was made", made.undo(client)).await;
    match (done, undone) {
        (done, Ok(())) => done,
        (Ok(()), Err(undo)) => Err(undo),
        (Err(first), Err(undo)) => {
            Err(CtlError::LeftBehind { pod: name, first: Box::new(first), undo: Box::new(undo) })
        }
    }
}

/// A directory as controld, which runs elsewhere, takes it.
fn absolute(dir: &Path) -> Result<String, CtlError> {
    let failed = |cause| CtlError::File { action: "find", path: dir.to_owned(), cause };
    let absolute = path::absolute(dir).map_err(failed)?;
    absolute.into_os_string().into_string().map_err(|_bytes| CtlError::NotUtf8(dir.to_owned()))
}

async fn make(
    client: &Client,
    (plan, checkpoint): (Plan, Option<String>),
    made: &mut Made,
    interrupt: &Interrupt,
) -> Result<Started, CtlError> {
    let Plan { image, pod, container, logs, handler } = plan;
    image.bring(client, &handler, interrupt).await.map_err(CtlError::of_images)?;
    let name = container.metadata.clone().unwrap_or_default().name;
    made.logs = Some(logs.clone());
    logs.create(&name)?;
    // controld ends what it has begun, so we hear it out before we undo it.
    interrupt.check()?;
    made.uid = pod.metadata.as_ref().map(|metadata| metadata.uid.clone());
    let (sandbox, id) = match checkpoint {
        Some(dir) => {
            let restored = client.restore(&dir, (pod, &handler), container);
            wait::told("waiting for the checkpoint's files to be copied", restored).await?
        }
        None => {
            let networked = client.run_sandbox(pod.clone(), &handler);
            let sandbox = wait::told("waiting for the pod's network: the CNI plugins are at work", networked).await?;
            made.sandbox = Some(sandbox.clone());
            interrupt.check()?;
            let id = client.create_container(&sandbox, container, Some(pod)).await?;
            (sandbox, id)
        }
    };
    made.sandbox = Some(sandbox.clone());
    interrupt.check()?;
    wait::told("waiting for the machine to start", client.start_container(&id)).await?;
    interrupt.check()?;
    Ok(Started { ip: client.pod_ip(&sandbox).await?, container: id })
}

// === impl Made ===

impl Made {
    async fn undo(self, client: &Client) -> Result<(), CtlError> {
        let sandbox = match (self.sandbox, self.uid) {
            (None, Some(uid)) => {
                let is_it = |sandbox: &PodSandbox| sandbox.metadata.as_ref().is_some_and(|pod| pod.uid == uid);
                client.sandboxes().await?.into_iter().find(is_it).map(|sandbox| sandbox.id)
            }
            (sandbox, _) => sandbox,
        };
        if let Some(sandbox) = &sandbox {
            client.remove_sandbox(sandbox).await?;
        }
        self.logs.map_or(Ok(()), |logs| logs.remove())
    }
}
