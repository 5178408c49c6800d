//! One thing done to several pods at once.

use std::collections::BTreeMap;
use std::io::Write;

use futures_util::future::join_all;

use super::cli::Pods;
use super::client::Client;
use super::error::{CtlError, none_of};
use super::find::{Node, Pod};
use super::text::shown;

/// Does something to each pod of these names and ids, and prints those for which it was done, as the user wrote them.
pub(super) async fn each(
    client: &Client,
    pods: Pods,
    out: &mut (dyn Write + Send),
    act: impl AsyncFn(&Node, Pod) -> Result<(), CtlError>,
) -> Result<(), Vec<CtlError>> {
    let node = Node::read(client).await.map_err(|error| vec![error])?.within(&pods.within);
    let names = node.some_names(pods.names).map_err(|error| vec![error])?;
    each_found(&node, names, Node::find_sure, out, act).await
}

/// The same on a node that was read, of what `find` finds there.
pub(super) async fn each_found(
    node: &Node,
    names: Vec<String>,
    find: impl Fn(&Node, &str) -> Result<Pod, CtlError>,
    out: &mut (dyn Write + Send),
    act: impl AsyncFn(&Node, Pod) -> Result<(), CtlError>,
) -> Result<(), Vec<CtlError>> {
    let mut failed = Vec::new();
    let mut found = BTreeMap::new();
    for text in names {
        match find(node, &text) {
            Ok(pod) => {
                // For a pod that is named twice it is done once.
                found.entry(pod.sandbox.id.clone()).or_insert((text, pod));
            }
            Err(error) => failed.push(error),
        }
    }
    let act = &act;
    let done = found.into_values().map(|(text, pod)| async move { (text, act(node, pod).await) });
    for (text, done) in join_all(done).await {
        match done.and_then(|()| Ok(writeln!(out, "{}", shown(&text))?)) {
            Ok(()) => {}
            Err(error) => failed.push(error),
        }
    }
    none_of(failed)
}
