//! Which side a pod is on, by its uid: of what has no other key.

use bytes::Bytes;
use prost::Message as _;
use proto::cri::{ListPodSandboxResponse, PodSandbox, PodSandboxState};
use tonic::Status;

use super::ask::Question;
use super::kind::Kind;
use super::side::Side;
use super::uses::Uses;

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

fn is_of(sandbox: &PodSandbox, uid: &str) -> bool {
    sandbox.metadata.as_ref().is_some_and(|metadata| metadata.uid == uid)
}

fn is_ready_of(sandbox: &PodSandbox, uid: &str) -> bool {
    sandbox.state() == PodSandboxState::SandboxReady && is_of(sandbox, uid)
}
