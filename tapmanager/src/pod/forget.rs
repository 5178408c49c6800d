//! Removes, at a person's request, what the daemon cannot remove by itself: a pod whose record is not understood or
//! lost, or whose networks cannot be given back; a namespace whose owner is unknown.
//!
//! For the networks it runs DEL with what the CNI result cache has of them. It reports what it cannot do, and removes
//! the rest all the same, as a person has looked. The pod's actor does the part that is the pod's own.

use common::Chain;
use proto::tap::{CollectReport, NetnsName, PodId};
use tokio::sync::oneshot;
use tracing::info;

use super::Pods;
use super::command::{Collected, Command};
use super::error::PodError;
use super::names::NetnsOwner;
use super::world::World;
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
    pub(crate) async fn forget_namespace(&self, name: &NetnsName) -> Result<CollectReport, PodError> {
        let operations = &self.shared.operations;
        let path = operations.names.dir().join(name.as_str());
        let on_record = self.namespaces_on_record().contains(&path);
        if on_record || operations.names.owner(&path) != Some(NetnsOwner::Unknown) {
            return Err(PodError::Owned { netns: path });
        }
        let leftovers = self.leftovers(|leftover| leftover.netns == path).await?;
        let mut all = Collected::default();
        for leftover in &leftovers {
            all.add(match operations.world.del_leftover(leftover).await {
                Ok(()) => Collected::removed(leftover.to_string()),
                Err(error) => Collected::kept(format!("{leftover}: {}", Chain(&error))),
            });
        }
        operations.world.remove_netns(&path).await.map_err(|cause| PodError::Forget { what: path.clone(), cause })?;
        info!(netns = %path.display(), "namespace of an unknown owner is removed");
        all.removed.push(format!("namespace `{}`", path.display()));
        Ok(all.report())
    }

    async fn leftovers(&self, wanted: impl Fn(&Leftover) -> bool) -> Result<Vec<Leftover>, PodError> {
        let operations = &self.shared.operations;
        let all = operations.world.leftovers().await;
        let all = all.map_err(|cause| PodError::Forget { what: operations.names.dir().to_owned(), cause })?;
        Ok(all.into_iter().filter(wanted).collect())
    }
}
