//! `pause` and `resume`: guests stand still for a while.

use std::io::Write;

use super::cli::Pods;
use super::client::Client;
use super::each::each;
use super::error::CtlError;
use super::wait;

/// Pauses machines, all at once, and prints what was paused.
pub(super) async fn run(client: &Client, pods: Pods, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let pausing = each(client, pods, out, async |_, pod| client.pause(&pod.container()?.id).await);
    wait::told("waiting for controld", pausing).await
}

/// Lets machines go on, all at once, and prints which.
pub(super) async fn end(client: &Client, pods: Pods, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let resuming = each(client, pods, out, async |_, pod| client.resume(&pod.container()?.id).await);
    wait::told("waiting for controld", resuming).await
}
