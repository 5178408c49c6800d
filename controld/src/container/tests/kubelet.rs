//! kubelet's sync loop for one pod, as its `computePodActions` and `killPod` have it (1.37).

use std::sync::Arc;
use std::time::Duration;

use super::fake::{Domain, Node};
use crate::model::{Container, ContainerState};

/// kubelet's `runtimeRequestTimeout`: it gives a call up then; the call goes on.
const CALL_DEADLINE: Duration = Duration::from_secs(120);
const GRACE: Duration = Duration::from_secs(30);

/// A pod's restart policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    Always,
    OnFailure,
    Never,
}

/// What kubelet wants of the pod.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) policy: Policy,
    /// The pod is to go.
    pub(super) deleted: bool,
}

impl Wish {
    /// One round of the pod's worker.
    pub(super) async fn sync(self, node: Node) {
        let newest = newest(&node);
        if self.deleted {
            self.kill(&node).await;
            return;
        }
        let attempt = match &newest {
            None => 0,
            Some(container) if !self.wants_another(container) => return,
            Some(container) => {
                // What may run is stopped before there is another.
                let id = container.id;
                if container.state == ContainerState::Uncertain
                    && !call(&node, move |n| async move { n.stop(id, GRACE).await.is_ok() }).await
                {
                    return;
                }
                container.config.attempt + 1
            }
        };
        let created = call(&node, move |n| async move { n.create(attempt).await.ok() }).await;
        if let Some(id) = created {
            call(&node, move |n| async move { n.start(id).await.is_ok() }).await;
        }
    }

    async fn kill(self, node: &Node) {
        for container in node.shown() {
            let id = container.id;
            if container.state == ContainerState::Running
                && !call(node, move |n| async move { n.stop(id, GRACE).await.is_ok() }).await
            {
                return;
            }
        }
        if call(node, |n| async move { n.stop_sandbox().await.is_ok() }).await {
            call(node, |n| async move { n.remove_sandbox().await.is_ok() }).await;
        }
    }

    /// Removes all that ended but the newest, as kubelet's collector of containers does.
    pub(super) async fn collect(self, node: Node) {
        let newest = newest(&node).map(|container| container.id);
        for container in node.shown() {
            let id = container.id;
            if container.state == ContainerState::Exited && Some(id) != newest {
                call(&node, move |n| async move { n.remove(id).await.is_ok() }).await;
            }
        }
    }

    /// Whether the pod is as it is wanted, and nothing is left of what it was.
    pub(super) fn is_granted(self, node: &Node) -> bool {
        let (shown, domains) = (node.shown(), node.domains());
        if self.deleted {
            return shown.is_empty() && domains.is_empty();
        }
        let Some(newest) = newest(node) else { return false };
        let alone = shown.iter().all(|c| c.id == newest.id || c.state == ContainerState::Exited);
        let machine: Vec<_> = domains.into_iter().collect();
        alone
            && match newest.state {
                ContainerState::Running => machine == [(newest.id, Domain::On)],
                ContainerState::Exited => machine.is_empty() && !self.wants_another(&newest),
                _ => false,
            }
    }

    fn wants_another(self, newest: &Container) -> bool {
        match newest.state {
            ContainerState::Running => false,
            ContainerState::Created | ContainerState::Starting | ContainerState::Uncertain => true,
            ContainerState::Exited => match self.policy {
                Policy::Always => true,
                Policy::OnFailure => newest.exit.as_ref().is_none_or(|exit| exit.code != 0),
                Policy::Never => false,
            },
        }
    }
}

fn newest(node: &Node) -> Option<Arc<Container>> {
    node.shown().into_iter().max_by_key(|container| container.created_at)
}

/// A call of CRI: it goes on when kubelet does not wait any more. Given up, or cut off by the end of controld, it has failed.
async fn call<T, F>(node: &Node, work: impl FnOnce(Node) -> F) -> T
where
    T: Default + Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let called = tokio::spawn(work(node.clone()));
    match tokio::time::timeout(CALL_DEADLINE, called).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(panicked)) => std::panic::resume_unwind(panicked.into_panic()),
        Err(_elapsed) => T::default(),
    }
}
