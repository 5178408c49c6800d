//! `start`, `restart` and `reset`: a machine that went off comes up again, with the disk that it had.
//!
//! A container of CRI is started once. What is started again is its next attempt: a container of the same make in the same
//! pod, to which controld gives the pod's disk.

use std::io::Write;

use proto::cri::*;

use super::cli::Pods;
use super::client::Client;
use super::each::each;
use super::error::CtlError;
use super::find::Pod;
use super::logdir::LogDir;
use super::{made, stop, wait};

/// Starts machines, all at once, and prints what was started.
pub(super) async fn run(client: &Client, pods: Pods, out: &mut (dyn Write + Send)) -> Result<(), Vec<CtlError>> {
    let starting = each(client, pods, out, async |_, pod| start(client, &pod).await);
    wait::told("waiting for machines to start", starting).await
}

/// Stops machines, each within `seconds`, and starts them again.
pub(super) async fn again(
    client: &Client,
    pods: Pods,
    seconds: u32,
    out: &mut (dyn Write + Send),
) -> Result<(), Vec<CtlError>> {
    let again = each(client, pods, out, async |_, pod| {
        // Before anything is stopped that could not be started.
        log_dir(&pod)?;
        stop::stop(client, &pod, seconds).await?;
        start(client, &pod).await
    });
    stop::told(seconds, "`reset`", again).await
}

async fn start(client: &Client, pod: &Pod) -> Result<(), CtlError> {
    let container = pod.container()?;
    // As it is now: it may have been stopped since it was listed.
    let status = client.container(&container.id).await?;
    match status.state() {
        ContainerState::ContainerRunning => Ok(()),
        ContainerState::ContainerCreated => client.start_container(&container.id).await,
        ContainerState::ContainerExited => {
            let next = next(pod, status)?;
            // Without a config of the pod, its annotations are those that it was made with.
            let id = client.create_container(&pod.sandbox.id, next, None).await?;
            client.start_container(&id).await?;
            client.remove_container(&container.id).await
        }
        ContainerState::ContainerUnknown => Err(CtlError::Uncertain(pod.name())),
    }
}

/// The next attempt of a container that has ended.
fn next(pod: &Pod, status: ContainerStatus) -> Result<ContainerConfig, CtlError> {
    let logs = log_dir(pod)?;
    let ContainerMetadata { name, attempt } = status.metadata.unwrap_or_default();
    let attempt = attempt.saturating_add(1);
    logs.create(&name)?;
    let shown = status.image.unwrap_or_default();
    let mut next = ContainerConfig {
        log_path: format!("{name}/{attempt}.log"),
        metadata: Some(ContainerMetadata { name, attempt }),
        // The image that it had, whatever the name means by now.
        image: Some(ImageSpec { image: status.image_id, user_specified_image: shown.image, ..Default::default() }),
        labels: status.labels,
        annotations: status.annotations,
        mounts: status.mounts,
        stdin: true,
        tty: true,
        linux: Some(LinuxContainerConfig {
            resources: status.resources.and_then(|resources| resources.linux),
            ..Default::default()
        }),
        ..Default::default()
    };
    made::give_back(&mut next);
    Ok(next)
}

/// Only of our own pods it is known how their containers were made.
fn log_dir(pod: &Pod) -> Result<LogDir, CtlError> {
    LogDir::of(&pod.sandbox).ok_or_else(|| CtlError::NotOurs(pod.name()))
}
