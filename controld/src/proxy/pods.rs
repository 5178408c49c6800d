//! Pods by their uid, whichever side has them: which side an image is for that has no other key, and that no pod gets a sandbox beside one
//! that is ready.
//!
//! kubelet may believe that a pod has none: an annotation was taken away, or a list was wrong. Two machines, or a machine and a container, would
//! then have one pod's volumes and name. A sandbox that is not ready any more is none: kubelet makes the next attempt beside it.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{ListPodSandboxResponse, PodSandbox, PodSandboxState};
use tonic::Status;

use super::ask::Question;
use super::keys::shown;
use super::kind::Kind;
use super::side::Side;
use super::uses::Uses;
use super::wire::{self, Malformed, Value};

/// How old the default's last list may be for what is not in it not to be asked for. kubelet lists every second, and all that is made
/// through us is added to it.
const RECENT: Duration = Duration::from_secs(5);

/// A pod that is to have a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pod<'a> {
    uid: &'a str,
    attempt: u64,
}

impl<'a> Pod<'a> {
    /// Of a request whose pod is in field `config`.
    pub(super) fn read(request: &'a [u8], config: u32) -> Result<Self, Malformed> {
        let mut attempt = 0;
        wire::each(request, &[config, 1, 4], &mut |value| {
            let Value::Varint(number) = value else { return Err(Malformed) };
            attempt = number;
            Ok(())
        })?;
        Ok(Self { uid: wire::text(request, &[config, 1, 2])?, attempt })
    }
}

/// That the pod has no ready sandbox but one that `side` knows how to give again: another attempt of a machine, or one of the other side.
///
/// # Errors
/// AlreadyExists, with the id. Of a machine also when ours cannot be listed; a container needs nothing of us, and is made then.
pub(super) async fn check_alone(uses: &Uses, pod: &Pod<'_>, side: Side) -> Result<(), Status> {
    if pod.uid.is_empty() {
        return Ok(());
    }
    let is_another = |sandbox: &PodSandbox| side == Side::Default || attempt(sandbox) != pod.attempt;
    match ours(uses).await {
        Ok(ours) => {
            if let Some(has) = ours.iter().find(|sandbox| is_ready_of(sandbox, pod.uid) && is_another(sandbox)) {
                return Err(exists(has, "of virtual machines"));
            }
        }
        Err(status) if side == Side::Ours => return Err(status),
        Err(status) => tracing::debug!(%status, "not known whether the pod is a machine"),
    }
    match side {
        Side::Ours => match ready_there(uses, pod.uid).await {
            Some(has) => Err(exists(&has, "of the container runtime")),
            None => Ok(()),
        },
        Side::Default => Ok(()),
    }
}

fn exists(has: &PodSandbox, of: &str) -> Status {
    let pod = has.metadata.clone().unwrap_or_default();
    Status::already_exists(format!(
        "pod `{}/{}` has a sandbox {of} that is ready, `{}` (attempt {}); stop it first",
        shown(&pod.namespace),
        shown(&pod.name),
        has.id,
        pod.attempt
    ))
}

/// A ready sandbox that the default has of the pod. A default that cannot be asked has what it had last; before it was asked once, none.
async fn ready_there(uses: &Uses, uid: &str) -> Option<PodSandbox> {
    let ready = |all: Vec<PodSandbox>| all.into_iter().find(|sandbox| is_ready_of(sandbox, uid));
    if let Some((last, age)) = uses.lists.last_sandboxes()
        && age < RECENT
        && ready(last).is_none()
    {
        return None;
    }
    // It may have been stopped since.
    ready(uses.lists.sandboxes().await.ok()?)
}

/// Whose sandbox the pod has: kubelet runs the sandbox before it pulls. One that is ready counts before those that are not any more.
///
/// # Errors
/// When ours cannot be listed, unless the default is known to have it: a machine's image must not be pulled for containers.
pub(super) async fn side(uses: &Uses, uid: &str) -> Result<Side, Status> {
    if uid.is_empty() {
        return Ok(Side::Default);
    }
    match ours(uses).await {
        Ok(ours) if ours.iter().any(|sandbox| is_ready_of(sandbox, uid)) => Ok(Side::Ours),
        _ if last_there(uses).iter().any(|sandbox| is_ready_of(sandbox, uid)) => Ok(Side::Default),
        Ok(ours) if ours.iter().any(|sandbox| is_of(sandbox, uid)) => Ok(Side::Ours),
        Ok(_) => Ok(Side::Default),
        Err(status) => Err(status),
    }
}

async fn ours(uses: &Uses) -> Result<Vec<PodSandbox>, Status> {
    let listed = uses.own.ask(Question::new(Kind::Sandboxes.path(), Bytes::new())).await?;
    let list = ListPodSandboxResponse::decode(listed).map_err(|error| Status::internal(error.to_string()))?;
    Ok(list.items)
}

/// The default's as far as it is known without a question.
fn last_there(uses: &Uses) -> Vec<PodSandbox> {
    uses.lists.last_sandboxes().map(|(last, _)| last).unwrap_or_default()
}

fn attempt(sandbox: &PodSandbox) -> u64 {
    sandbox.metadata.as_ref().map_or(0, |metadata| metadata.attempt.into())
}

fn is_of(sandbox: &PodSandbox, uid: &str) -> bool {
    sandbox.metadata.as_ref().is_some_and(|metadata| metadata.uid == uid)
}

fn is_ready_of(sandbox: &PodSandbox, uid: &str) -> bool {
    sandbox.state() == PodSandboxState::SandboxReady && is_of(sandbox, uid)
}
