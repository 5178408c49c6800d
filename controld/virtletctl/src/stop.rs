//! `stop` and `kill`: machines go off, pods stay.

use std::future::Future;
use std::io::Write;

use proto::cri::ContainerState;

use super::cli::Pods;
use super::client::Client;
use super::each::each;
use super::error::CtlError;
use super::find::Pod;
use super::wait;

/// Stops machines, all at once, each within `seconds`, and prints what was stopped.
pub(super) async fn run(
    client: &Client,
    pods: Pods,
    seconds: u32,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    told(seconds, "`kill`", each(client, pods, out, async |_, pod| stop(client, &pod, seconds).await)).await
}

/// Ends machines at once, as by pulling the plug, and prints those that it has ended.
pub(super) async fn kill(client: &Client, pods: Pods, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let killing = each(client, pods, out, async |_, pod| {
        pod.running()?;
        stop(client, &pod, 0).await
    });
    told(0, "", killing).await
}

/// Stops a pod's machine; fine if none runs.
pub(super) async fn stop(client: &Client, pod: &Pod, seconds: u32) -> Result<(), CtlError> {
    pod.container()?;
    for container in &pod.containers {
        if container.state() != ContainerState::ContainerExited {
            client.stop_container(&container.id, seconds).await?;
        }
    }
    Ok(())
}

/// Says what is waited for, and that `instead` does not wait.
pub(super) async fn told<T>(seconds: u32, instead: &str, work: impl Future<Output = T>) -> T {
    let what = format!("waiting up to {seconds} s for guests to shut down; {instead} does not wait");
    wait::told(if seconds == 0 { "waiting for controld" } else { &what }, work).await
}
