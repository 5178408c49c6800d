//! Taking away, on a person's word, what nothing else is known about: a pod whose record is not understood, or is lost, or
//! whose networks cannot be given back; a namespace whose owner is unknown.
//!
//! What can be done for networks is done by what the CNI result cache tells of them. What cannot is told, and nothing
//! keeps the rest from being taken away: whoever asks has looked.

use proto::tap::{CollectReport, PodId, PodPhase};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::Pods;
use super::actor::{Actor, Collected, Command};
use super::collect::of;
use super::error::PodError;
use super::names::Holder;
use super::world::World;
use crate::blocking::off_reactor;
use crate::chain::Chain;
use crate::cni::Leftover;

impl<W: World> Pods<W> {
    /// Forgets a pod that cannot be detached.
    pub(crate) async fn forget(&self, pod: &PodId) -> Result<CollectReport, PodError> {
        let leftovers = self.leftovers(|leftover| leftover.pod == *pod).await?;
        let (reply, answer) = oneshot::channel();
        self.shared.tell(pod, Command::Forget { leftovers, reply }).await?;
        Ok(answer.await.map_err(|_| PodError::Died { pod: pod.clone() })??.report())
    }

    /// Removes a namespace whose owner is unknown, by the name of its file.
    pub(crate) async fn forget_namespace(&self, name: &PodId) -> Result<CollectReport, PodError> {
        let tools = &self.shared.tools;
        let path = tools.names.dir().join(name.as_str());
        let on_record = self.namespaces_on_record().contains(&path);
        if on_record || tools.names.holder(&path) != Some(Holder::Unknown) {
            return Err(PodError::Owned { netns: path });
        }
        let leftovers = self.leftovers(|leftover| leftover.netns == path).await?;
        let mut all = Collected::default();
        for leftover in &leftovers {
            all.add(match tools.world.del_leftover(leftover).await {
                Ok(()) => Collected::removed(of(leftover)),
                Err(error) => Collected::kept(format!("{}: {}", of(leftover), Chain(&error))),
            });
        }
        tools.world.remove_netns(&path).await.map_err(|cause| PodError::Forget { what: path.clone(), cause })?;
        info!(netns = %path.display(), "namespace of an unknown owner is removed");
        all.removed.push(format!("namespace `{}`", path.display()));
        Ok(all.report())
    }

    async fn leftovers(&self, wanted: impl Fn(&Leftover) -> bool) -> Result<Vec<Leftover>, PodError> {
        let tools = &self.shared.tools;
        let all = tools.world.leftovers().await;
        let all = all.map_err(|cause| PodError::Forget { what: tools.names.dir().to_owned(), cause })?;
        Ok(all.into_iter().filter(wanted).collect())
    }
}

impl<W: World> Actor<W> {
    /// Takes away what there is of a pod that cannot be detached.
    pub(super) async fn forget(&mut self, leftovers: &[Leftover]) -> Result<Collected, PodError> {
        match self.held.as_ref().map(|held| held.record.phase) {
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
        if let Some(held) = &self.held
            && let Err(error) = self.shared.tools.drop_remains(&held.record).await
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
        let tools = &self.shared.tools;
        let mut all = self.del_leftovers(leftovers).await;
        let netns = tools.names.path(&self.pod);
        let failed = |what, cause| PodError::Forget { what, cause };
        tools.world.remove_netns(&netns).await.map_err(|cause| failed(netns.clone(), cause))?;
        let (journal, pod) = (tools.journal.clone(), self.pod.clone());
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
        let (journal, pod) = (self.shared.tools.journal.clone(), self.pod.clone());
        if off_reactor(move || journal.has(&pod)).await {
            error!("detach is answered, but the pod's record is not understood, and its network is kept");
        } else {
            self.gone();
        }
    }
}
