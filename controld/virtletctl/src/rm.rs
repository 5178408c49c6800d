//! `rm` and `delete`: remove pods with their disks and logs. By `rm` what runs is not lost by a slip: it needs `--force`.

use std::io::Write;

use proto::cri::{ContainerState, PodSandbox};

use super::cli::{self, Within};
use super::client::Client;
use super::each::{each, each_found};
use super::error::CtlError;
use super::find::{Node, Pod};
use super::logdir::LogDir;
use super::stop;
use super::text::short;

/// What a guest has if nobody says how long; by `rm`, one that was started since it was found not to run.
const GRACE: u32 = 30;

/// Removes pods, all at once, and prints the names of those that are gone, as the user wrote them.
pub(super) async fn run(client: &Client, wanted: cli::Rm, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let cli::Rm { pods, force, timeout, volumes: _ } = wanted;
    let seconds = timeout.unwrap_or(if force { 0 } else { GRACE });
    let removing = each(client, pods, out, async |node, pod| {
        check_named(&pod, "rm")?;
        if !force {
            check_ended(node, &pod)?;
        }
        remove(client, node, &pod.sandbox, seconds).await
    });
    stop::told(if force { seconds } else { 0 }, "`rm --force` alone", removing).await
}

/// Removes pods, as kubectl does it: what runs is given its time to shut down, and a name alone is one of namespace `default`.
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
            let what =
                format!("--force ends machines at once, and a guest is to have {seconds} s; leave one of both out");
            return Err(vec![CtlError::Usage(what)]);
        }
    };
    let within = Within { namespace: wanted.namespace };
    let node = Node::read(client).await.map_err(|error| vec![error])?.within(&within);
    check_first(&node, &wanted.names).map_err(|error| vec![error])?;
    let names = node.some_names(wanted.names).map_err(|error| vec![error])?;
    let removing = each_found(&node, names, Node::find_at_home, out, async |node, pod| {
        check_named(&pod, "delete")?;
        remove(client, node, &pod.sandbox, seconds).await
    });
    stop::told(seconds, "`delete --now`", removing).await
}

/// A word in front of names that is no pod may be a kind that only the cluster knows: then the names behind it are no pods. Kinds are
/// letters, with a group behind a dot, where names of pods and their ids mostly have a hyphen or a digit; no kind is of the letters of
/// ids alone.
fn check_first(node: &Node, names: &[String]) -> Result<(), CtlError> {
    let [first, _, ..] = names else { return Ok(()) };
    let is_word = first.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'.');
    if !is_word || first.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(());
    }
    // The beginning of an id is no more sure than for what is removed.
    if node.names(names.to_vec())?.len() == names.len() && node.find_sure(first).is_err() && !node.has(first) {
        let what = format!("there is neither a pod `{first}` nor such a kind of pods; nothing was removed");
        return Err(CtlError::Usage(what));
    }
    Ok(())
}

/// Who names a container, as for crictl, does not mean the whole pod.
fn check_named(pod: &Pod, command: &str) -> Result<(), CtlError> {
    if !pod.by_container {
        return Ok(());
    }
    let id = pod.containers.first().map(|container| short(&container.id)).unwrap_or_default();
    let (name, named) = (pod.name(), pod.full_name());
    let what =
        format!("`{id}` is a container of pod `{name}`; `virtletctl {command} {named}` removes the pod with its disk");
    Err(CtlError::Usage(what))
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
