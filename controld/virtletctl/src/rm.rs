//! `rm` and `delete`: remove pods with their disks and logs. By `rm` what runs is not lost by a slip: it needs `--force`.

use std::io::Write;

use proto::cri::{ContainerState, PodSandbox};

use super::cli;
use super::client::Client;
use super::each::each;
use super::error::CtlError;
use super::find::{Node, Pod};
use super::logdir::LogDir;
use super::stop;

/// What a guest has if nobody says how long; by `rm`, one that was started since it was found not to run.
const GRACE: u32 = 30;

/// Removes pods, all at once, and prints the names of those that are gone, as the user wrote them.
pub(super) async fn run(client: &Client, wanted: cli::Rm, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let cli::Rm { pods, force, timeout } = wanted;
    let seconds = timeout.unwrap_or(if force { 0 } else { GRACE });
    let removing = each(client, pods, out, async |node, pod| {
        if !force {
            check_ended(node, &pod)?;
        }
        remove(client, node, &pod.sandbox, seconds).await
    });
    stop::told(if force { seconds } else { 0 }, "`rm --force` alone", removing).await
}

/// Removes pods, as kubectl does it: what runs is given its time to shut down.
pub(super) async fn delete(
    client: &Client,
    wanted: cli::Delete,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    let seconds = match (wanted.force, wanted.grace_period) {
        (false, seconds) => seconds.unwrap_or(GRACE),
        // People write `--force --grace-period=0` for kubectl.
        (true, None | Some(0)) => 0,
        (true, Some(seconds)) => {
            let what = format!("-f ends machines at once, and a guest is to have {seconds} s; leave one of both out");
            return Err(vec![CtlError::Usage(what)]);
        }
    };
    let removing = each(client, wanted.pods, out, async |node, pod| remove(client, node, &pod.sandbox, seconds).await);
    stop::told(seconds, "`delete --now`", removing).await
}

/// Of all machines of the pod, whichever was named.
fn check_ended(node: &Node, pod: &Pod) -> Result<(), CtlError> {
    for container in node.containers_of(&pod.sandbox) {
        match container.state() {
            ContainerState::ContainerCreated | ContainerState::ContainerExited => {}
            ContainerState::ContainerRunning => return Err(CtlError::Running(pod.name())),
            ContainerState::ContainerUnknown => return Err(CtlError::Uncertain(pod.name())),
        }
    }
    Ok(())
}

async fn remove(client: &Client, node: &Node, sandbox: &PodSandbox, seconds: u32) -> Result<(), CtlError> {
    for container in node.containers_of(sandbox) {
        client.stop_container(&container.id, seconds).await?;
        client.remove_container(&container.id).await?;
    }
    client.remove_sandbox(&sandbox.id).await?;
    LogDir::of(sandbox).map_or(Ok(()), |logs| logs.remove())
}
