//! Removes a pod that cannot be detached: what belongs to the pod alone. Called for [`Command::Forget`], and by a
//! Detach of a pod whose record the daemon does not understand.
//!
//! [`Command::Forget`]: crate::pod::command::Command::Forget

use common::Chain;
use proto::tap::PodPhase;
use tracing::{error, warn};

use super::Actor;
use crate::blocking::off_reactor;
use crate::cni::Leftover;
use crate::pod::command::Collected;
use crate::pod::error::PodError;
use crate::pod::world::World;

impl<W: World> Actor<W> {
    /// Takes away what there is of a pod that cannot be detached.
    pub(super) async fn forget(&mut self, leftovers: &[Leftover]) -> Result<Collected, PodError> {
        match self.state.as_ref().map(|state| state.record.phase) {
            Some(PodPhase::Attached | PodPhase::Attaching) => Err(PodError::OnRecord { pod: self.pod.clone() }),
            Some(PodPhase::Detaching) => self.give_up().await,
            None => self.forget_unknown(leftovers).await,
        }
    }

    /// Of a pod whose networks could not be given back.
    async fn give_up(&mut self) -> Result<Collected, PodError> {
        let pod = self.pod.as_str().to_owned();
        let Err(error) = self.take_away().await else {
            return Ok(Collected::removed(format!("what was left of pod `{pod}`")));
        };
        let why = Chain(&error).to_string();
        if let Some(state) = &self.state
            && let Err(error) = self.shared.operations.drop_remains(&state.record).await
        {
            self.schedule();
            return Ok(Collected::kept(format!("pod `{pod}`: {why}; and {}", Chain(&error))));
        }
        self.gone();
        warn!(error = why, "pod is forgotten, although its networks may keep something of it");
        Ok(Collected::removed(format!(
            "pod `{pod}`, although its networks may keep something of it on the node: {why}"
        )))
    }

    /// Of a pod without a record that is understood.
    async fn forget_unknown(&mut self, leftovers: &[Leftover]) -> Result<Collected, PodError> {
        let operations = &self.shared.operations;
        let mut all = self.del_leftovers(leftovers).await;
        let netns = operations.names.path(&self.pod);
        let failed = |what, cause| PodError::Forget { what, cause };
        operations.world.remove_netns(&netns).await.map_err(|cause| failed(netns.clone(), cause))?;
        let (journal, pod) = (operations.journal.clone(), self.pod.clone());
        let had = off_reactor(move || {
            let had = journal.has(&pod);
            journal.remove(&pod).map(|()| had)
        });
        if had.await.map_err(|cause| PodError::Unrecorded { pod: self.pod.clone(), cause })? {
            warn!("pod is forgotten, whose record was not understood");
            all.removed.push(format!("record of pod `{}`", self.pod.as_str()));
        }
        self.gone();
        Ok(all)
    }

    /// Answers a Detach of a pod whose record is not understood: nothing may hold a pod's deletion up for ever, and what
    /// is not understood is left to whoever does.
    pub(super) async fn leave_unread(&mut self) {
        if self.unread.is_none() {
            return;
        }
        let (journal, pod) = (self.shared.operations.journal.clone(), self.pod.clone());
        if off_reactor(move || journal.has(&pod)).await {
            error!("detach is answered, but the pod's record is not understood, and its network is kept");
        } else {
            self.gone();
        }
    }
}
