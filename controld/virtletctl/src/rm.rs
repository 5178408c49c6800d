//! `rm`: stops pods and removes them with their logs.

use std::collections::BTreeMap;
use std::io::Write;

use futures_util::future::join_all;
use proto::cri::PodSandbox;

use super::cli;
use super::client::Client;
use super::error::CtlError;
use super::find::Node;
use super::logdir::LogDir;
use super::text::shown;

/// Removes pods, all at once, and prints the names of those that are gone, as the user wrote them.
pub(super) async fn run(client: &Client, wanted: cli::Rm, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let node = Node::read(client).await.map_err(|error| vec![error])?;
    let grace = if wanted.force { 0 } else { wanted.timeout };
    let mut failed = Vec::new();
    let mut pods = BTreeMap::new();
    for text in wanted.pods {
        match node.find(&text) {
            Ok(pod) => {
                // A pod that is named twice is removed once.
                pods.entry(pod.sandbox.id.clone()).or_insert((text, pod.sandbox));
            }
            Err(error) => failed.push(error),
        }
    }
    let removed = pods.into_values().map(|(text, sandbox)| {
        let node = &node;
        async move { (text, remove(client, node, &sandbox, grace).await) }
    });
    for (text, removed) in join_all(removed).await {
        match removed.and_then(|()| Ok(writeln!(out, "{}", shown(&text))?)) {
            Ok(()) => {}
            Err(error) => failed.push(error),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed) }
}

async fn remove(client: &Client, node: &Node, sandbox: &PodSandbox, grace: u32) -> Result<(), CtlError> {
    for container in node.containers_of(sandbox) {
        client.stop_container(&container.id, grace).await?;
        client.remove_container(&container.id).await?;
    }
    client.remove_sandbox(&sandbox.id).await?;
    LogDir::of(sandbox).map_or(Ok(()), |logs| logs.remove())
}
