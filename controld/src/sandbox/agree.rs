//! Two books are kept of the pods' networks, ours and tapmanager's. They are compared both ways at the start and after each
//! new connection to tapmanager, which may have been restarted, or be another one.
//!
//! Each difference is settled by a task of its own under the gate of its sandbox, from what both books say then: a call may
//! have been in flight.
//! What is not certain is left as it is. Pods of other owners are none of our business.

use std::collections::BTreeMap;

use common::Chain;
use proto::tap::{PodId, PodPhase, PodSummary};
use tracing::{Instrument as _, Span};
use vmspec::error::{Kind, Result};

use super::{Sandboxes, Settling};
use crate::model::span;
use crate::model::{Sandbox, SandboxState};

/// What tapmanager's word means for a sandbox that is ready by our book.
#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    /// Its network stands.
    Stands,
    /// tapmanager does not know yet.
    Waits,
    /// It is attached, but of no use.
    Troubled(&'a str),
    /// It is being taken away.
    Ends,
    /// tapmanager has no such pod.
    Unheard,
}

enum Difference {
    /// Our book says something else of this sandbox than tapmanager's.
    Sandbox(PodId),
    /// tapmanager has a network of ours, we have no sandbox for it, and no record can be missing.
    Network(PodId),
}

impl Difference {
    fn pod(&self) -> &PodId {
        match self {
            Self::Sandbox(pod) | Self::Network(pod) => pod,
        }
    }
}

impl Sandboxes {
    /// Compares, and begins to settle what differs. Gives the pods that are not settled yet, or of which tapmanager does not
    /// know yet how they stand, so that it is to be asked again.
    ///
    /// # Errors
    /// When tapmanager does not answer, or has not answered one that was being settled. It can be done again.
    pub async fn agree(&self, settling: &mut Settling) -> Result<Vec<PodId>> {
        settling.collect()?;
        let theirs = self.uses.tap.pods(None).await?;
        let theirs: BTreeMap<PodId, PodSummary> = theirs.into_iter().map(|pod| (pod.pod.clone(), pod)).collect();
        let on_record = self.uses.store.sandboxes();
        let sandboxes = on_record.iter().filter(|sandbox| match sandbox.state {
            SandboxState::Creating => self.half_made.contains(&sandbox.id),
            SandboxState::Ready => !matches!(word(theirs.get(&sandbox.id)), Word::Stands | Word::Waits),
            SandboxState::NotReady => false,
        });
        let ours = |pod: &&PodSummary| self.is_ours(pod);
        let unrecorded = theirs.values().filter(ours).filter(|pod| self.uses.store.sandbox(&pod.pod).is_none());
        let left = self.uses.orphans.left_by_a_kill(unrecorded.cloned().collect()).await;
        let networks = left.into_iter().filter(|pod| !pod.recovering);
        let differences: Vec<Difference> = sandboxes
            .map(|sandbox| Difference::Sandbox(sandbox.id.clone()))
            .chain(networks.map(|pod| Difference::Network(pod.pod)))
            .collect();
        for difference in differences {
            let (sandboxes, pod) = (self.clone(), difference.pod().clone());
            let of_pod = self.uses.store.sandbox(&pod).map_or_else(Span::none, |sandbox| span::of_sandbox(&sandbox));
            settling.settle(&pod, async move { sandboxes.settle(difference).await }.instrument(of_pod));
        }
        let recovering = theirs.values().filter(ours).filter(|pod| pod.recovering).map(|pod| &pod.pod);
        Ok(recovering.chain(settling.under_way()).cloned().collect())
    }

    async fn settle(&self, difference: Difference) -> Result<()> {
        match difference {
            Difference::Sandbox(id) => self.settle_sandbox(&id).await,
            Difference::Network(id) => {
                self.take_down(&id).await;
                Ok(())
            }
        }
    }

    pub(super) async fn settle_sandbox(&self, id: &PodId) -> Result<()> {
        let _pass = self.mutex.lock(id.as_str()).await;
        let Some(sandbox) = self.uses.store.sandbox(id) else { return Ok(()) };
        match sandbox.state {
            // Others are in the hands of a call.
            SandboxState::Creating if self.half_made.contains(id) => self.undo(id).await,
            SandboxState::Creating | SandboxState::NotReady => {}
            SandboxState::Ready => {
                let now = self.uses.tap.pods(Some(id)).await?;
                match word(now.first()) {
                    Word::Stands | Word::Waits => {}
                    Word::Ends => self.lost(&sandbox),
                    Word::Unheard => self.lost_unless_it_runs(&sandbox),
                    Word::Troubled(trouble) => self.recover(&sandbox, trouble).await?,
                }
            }
        }
        Ok(())
    }

    /// Has tapmanager look at the network of a sandbox in which a machine did not start. If it is lost, kubelet is to know:
    /// it makes another sandbox only for one that is not ready, and would try the same in this one for ever.
    pub async fn doubt(&self, id: &PodId) {
        let _pass = self.mutex.lock(id.as_str()).await;
        let ready = self.uses.store.sandbox(id).filter(|sandbox| sandbox.state == SandboxState::Ready);
        let Some(sandbox) = ready else { return };
        if let Err(error) = self.recover(&sandbox, "a machine did not start in it").await {
            tracing::warn!(pod = %id, error = %Chain(&error), "network of a machine that did not start not looked at");
        }
    }

    /// Has tapmanager take up a network that is in trouble.
    async fn recover(&self, sandbox: &Sandbox, trouble: &str) -> Result<()> {
        match self.uses.tap.recover(sandbox.id.clone()).await {
            Ok(_net) => tracing::info!(pod = %sandbox.id, trouble, "network recovered"),
            Err(error) if matches!(error.kind(), Kind::Unavailable | Kind::Deadline) => return Err(error),
            Err(error) => {
                tracing::warn!(pod = %sandbox.id, trouble, error = %Chain(&error), "network not recovered");
                self.lost_unless_it_runs(sandbox);
            }
        }
        Ok(())
    }

    /// kubelet ends what is in a sandbox that is not ready. A machine that runs in a namespace that stands is not ended on
    /// the word of a tapmanager that may have lost its records.
    fn lost_unless_it_runs(&self, sandbox: &Sandbox) {
        let of_pod = self.uses.store.containers_of(&sandbox.id);
        let may_run = of_pod.iter().any(|container| container.state.may_run());
        if may_run && sandbox.net.as_ref().is_some_and(|net| net.netns.exists()) {
            let what = "tapmanager does not keep the network of a machine that runs; both are left as they are";
            tracing::error!(pod = %sandbox.id, "{what}");
            return;
        }
        self.lost(sandbox);
    }

    fn lost(&self, sandbox: &Sandbox) {
        tracing::warn!(pod = %sandbox.id, "sandbox has lost its network");
        self.uses.store.show_sandbox(Sandbox { state: SandboxState::NotReady, ..sandbox.clone() });
    }

    /// Takes down a network that no sandbox has.
    async fn take_down(&self, id: &PodId) {
        let _pass = self.mutex.lock(id.as_str()).await;
        if self.uses.store.sandbox(id).is_some() {
            return;
        }
        tracing::warn!(pod = %id, "taking down a network of ours that no sandbox has");
        if let Err(error) = self.uses.tap.detach(id.clone()).await {
            // tapmanager tries again by itself, and we after the next connection.
            tracing::error!(pod = %id, error = %Chain(&error), "network that no sandbox has not taken down");
        }
    }

    fn is_ours(&self, pod: &PodSummary) -> bool {
        // The first releases told no owner.
        (pod.owner.is_some() && pod.owner == self.owner()) || self.uses.store.sandbox(&pod.pod).is_some()
    }
}

fn word(pod: Option<&PodSummary>) -> Word<'_> {
    match pod {
        None => Word::Unheard,
        Some(PodSummary { recovering: true, .. }) => Word::Waits,
        Some(PodSummary { phase: PodPhase::Attached, trouble: None, .. }) => Word::Stands,
        Some(PodSummary { phase: PodPhase::Attached, trouble: Some(trouble), .. }) => Word::Troubled(trouble),
        Some(PodSummary { phase: PodPhase::Attaching | PodPhase::Detaching, .. }) => Word::Ends,
    }
}

#[cfg(test)]
mod tests;
