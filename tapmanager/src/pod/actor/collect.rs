//! A collection of one pod. Part of the pod's actor ([`super`]), so nothing else happens to the pod meanwhile.

use common::Chain;
use proto::tap::PodPhase;

use super::Actor;
use crate::blocking::off_reactor;
use crate::cni::Leftover;
use crate::pod::command::{Collected, Occasion};
use crate::pod::machine::{AfterFailure, is_hopeless};
use crate::pod::world::{NetnsState, World};

impl<W: World> Actor<W> {
    /// Does what is to be done about this pod.
    pub(super) async fn collect(&mut self, leftovers: &[Leftover], occasion: Occasion) -> Collected {
        match self.state.as_ref().map(|state| state.record.phase) {
            None => self.collect_stray(leftovers, occasion).await,
            Some(PodPhase::Detaching) => self.collect_overdue().await,
            // Attached meanwhile.
            Some(PodPhase::Attached | PodPhase::Attaching) => Collected::default(),
        }
    }

    async fn collect_stray(&self, leftovers: &[Leftover], occasion: Occasion) -> Collected {
        let operations = &self.shared.operations;
        let netns = operations.names.path(&self.pod);
        let name = netns.display().to_string();
        let (journal, pod) = (operations.journal.clone(), self.pod.clone());
        if off_reactor(move || journal.has(&pod)).await {
            return Collected::kept(format!(
                "namespace `{name}`: the journal has a file of its pod that is not understood"
            ));
        }
        let stands = match operations.world.look(&netns).await {
            Ok(seen) => seen == NetnsState::Present,
            Err(error) => return Collected::kept(format!("namespace `{name}`: {}", Chain(&error))),
        };
        if stands && occasion == Occasion::Routine {
            return Collected::kept(format!(
                "namespace `{name}`: its pod is on no record any more; if it does not run, ask for a collection"
            ));
        }
        let had_vfs = operations.world.vf_owners().contains(&self.pod);
        if let Err(error) = operations.world.give_back(&self.pod).await {
            return Collected::kept(format!("virtual functions of pod `{}`: {}", self.pod.as_str(), Chain(&error)));
        }
        let mut all = self.del_leftovers(leftovers).await;
        if had_vfs {
            all.removed
                .push(format!("claims of virtual functions of pod `{}`, which is on no record", self.pod.as_str()));
        }
        // DEL needs it.
        if stands && all.kept.is_empty() {
            match operations.world.remove_netns(&netns).await {
                Ok(()) => all.removed.push(format!("namespace `{name}`, which belongs to no pod")),
                Err(error) => all.kept.push(format!("namespace `{name}`: {}", Chain(&error))),
            }
        }
        all
    }

    pub(super) async fn del_leftovers(&self, leftovers: &[Leftover]) -> Collected {
        let mut all = Collected::default();
        for leftover in leftovers {
            match self.shared.operations.world.del_leftover(leftover).await {
                Ok(()) => all.removed.push(leftover.to_string()),
                Err(error) => all.kept.push(format!("{leftover}: {}", Chain(&error))),
            }
        }
        all
    }

    async fn collect_overdue(&mut self) -> Collected {
        let pod = self.pod.as_str().to_owned();
        let Err(error) = self.take_away().await else {
            return Collected::removed(format!("what was left of pod `{pod}`"));
        };
        let why = Chain(&error).to_string();
        let Some(state) = &self.state else { return Collected::default() };
        let seen = self.shared.operations.world.look(&state.record.netns).await;
        let hopeless = seen.is_ok_and(|seen| is_hopeless(error.cause.is_absence(), seen));
        if self.schedule() == AfterFailure::Overdue
            && hopeless
            && let Some(state) = &self.state
            && self.shared.operations.drop_remains(&state.record).await.is_ok()
        {
            self.gone();
            return Collected::removed(format!(
                "pod `{pod}`, although its networks may keep something of it on the node: {why}"
            ));
        }
        Collected::kept(format!("pod `{pod}`: {why}"))
    }
}
