//! A pod that is made of a checkpoint: its sandbox, with a network that is asked for the addresses that the guest's NICs have, and its container.
//!
//! All that can be known before is judged before. What a crash leaves is what one amid RunPodSandbox or CreateContainer leaves, and the same
//! call again goes on from there.

use common::Chain;
use proto::tap::{MacAddr, PodId};
use vmspec::error::{Error, Kind, Result};
use vmspec::{ContainerConfig, ContainerId, SandboxConfig};

use super::Sandboxes;
use super::underway::Asked;
use crate::container::Create;
use crate::model::Sandbox;

/// What a pod is to be made of.
#[derive(Debug)]
pub struct Restore {
    /// The directory of the checkpoint.
    pub path: String,
    pub sandbox: SandboxConfig,
    pub container: ContainerConfig,
}

impl Sandboxes {
    /// Makes a pod of a checkpoint, whose container is to be started. Repeating it for the same pod gives the same ids.
    ///
    /// # Errors
    /// When the guest cannot go on as this pod: all that differs is told, and nothing is made. When the network gives other addresses, or a
    /// step fails: then nothing is left, or the sandbox is on record as not ready.
    pub async fn restore(&self, restore: Restore) -> Result<(PodId, ContainerId)> {
        let made = self.make_of(restore).await;
        self.containers.count_restored(made.is_ok());
        made
    }

    async fn make_of(&self, restore: Restore) -> Result<(PodId, ContainerId)> {
        let Restore { path, sandbox, container } = restore;
        let annotations = sandbox.annotations.clone();
        let (namespace, name, uid, _attempt) = sandbox.key();
        let pod = format!("{namespace}/{name}");
        // Two calls for one pod are one after the other; the second has no files open until the first has ended.
        let _pod = self.mutex.lock(format!("restore/{pod}/{uid}")).await;
        let waking = self.containers.open_checkpoint(&path).await?;
        // What a killed controld has left half made of the same pod is undone beside the start, and is in the way until then.
        let all = self.uses.store.sandboxes();
        if let Some(half) = all.iter().find(|other| other.key() == sandbox.key() && self.half_made.contains(&other.id))
        {
            self.settle_sandbox(&half.id).await?;
        }
        if let Some(id) = self.there(&sandbox)?
            && let Some(made) = self.containers.restored(&id, &container, &waking)
        {
            return Ok((id, made));
        }
        let learns = self.containers.can_restore(&waking, &sandbox, &container, &annotations).await?;
        let (id, is_new) = {
            let there = self.there(&sandbox)?;
            let free = |asked: &[Asked]| self.free(waking.macs(), (there.as_ref(), asked), learns);
            let (macs, _asking) = self.underway.ask(pod, free)?;
            (self.run_with(sandbox, &macs).await?, there.is_none())
        };
        let _copying = self.underway.copying(&id, waking.unwanted());
        let create = Create { sandbox: id.clone(), config: container, annotations };
        match self.containers.restore(create, &waking).await {
            Ok(made) => {
                tracing::info!(pod = %id, container = %made, checkpoint = path, "pod made of a checkpoint");
                Ok((id, made))
            }
            Err(error) => {
                // Somebody may have made a container in it meanwhile, which is not ours to remove.
                if is_new
                    && self.uses.store.containers_of(&id).is_empty()
                    && let Err(left) = self.remove(&id).await
                {
                    tracing::error!(pod = %id, error = %Chain(&left), "sandbox of a pod that was not made of its checkpoint not removed; stop it to try again");
                }
                Err(error)
            }
        }
    }

    /// Those of these addresses that no other pod of the node has: on one network the two would take each other's frames.
    ///
    /// # Errors
    /// When one has, and the guest learns no other.
    fn free(
        &self,
        macs: Vec<(String, MacAddr)>,
        (own, asked): (Option<&PodId>, &[Asked]),
        learns: bool,
    ) -> Result<Vec<(String, MacAddr)>> {
        let all = self.uses.store.sandboxes();
        let others: Vec<_> = all.iter().filter(|other| Some(&other.id) != own && self.is_up(other)).collect();
        let has = |other: &Sandbox, mac: MacAddr| other.net.iter().flat_map(|net| &net.nics).any(|nic| nic.mac == mac);
        let of_other = |mac| {
            let has_it = others.iter().find(|other| has(other, mac));
            let asks_for_it = || asked.iter().find(|asked| asked.macs.contains(&mac)).map(|asked| asked.pod.clone());
            has_it.map(|other| format!("{}/{}", other.config.namespace, other.config.name)).or_else(asks_for_it)
        };
        let mut free = Vec::new();
        for (link, mac) in macs {
            match of_other(mac) {
                None => free.push((link, mac)),
                Some(_) if learns => {}
                Some(other) => {
                    let what = format!(
                        "the guest of the checkpoint has the MAC address {mac}, which pod `{other}` of this node has, and learns no other without \
                         our agent; stop that pod first"
                    );
                    return Err(Error::new(Kind::State, what));
                }
            }
        }
        Ok(free)
    }
}
