//! `rm`: stops pods and removes them with their logs.

use std::io::Write;

use proto::cri::PodSandbox;

use super::cli;
use super::client::Client;
use super::each::each;
use super::error::CtlError;
use super::find::Node;
use super::logdir::LogDir;
use super::stop;

/// Removes pods, all at once, and prints the names of those that are gone, as the user wrote them.
pub(super) async fn run(client: &Client, wanted: cli::Rm, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let seconds = if wanted.force { 0 } else { wanted.timeout };
    let removing = each(client, wanted.pods, out, async |node, pod| remove(client, node, &pod.sandbox, seconds).await);
    stop::told(seconds, "`rm --force`", removing).await
}

async fn remove(client: &Client, node: &Node, sandbox: &PodSandbox, seconds: u32) -> Result<(), CtlError> {
    for container in node.containers_of(sandbox) {
        client.stop_container(&container.id, seconds).await?;
        client.remove_container(&container.id).await?;
    }
    client.remove_sandbox(&sandbox.id).await?;
    LogDir::of(sandbox).map_or(Ok(()), |logs| logs.remove())
}
