//! The folders of pods' disks, compared with the records at the start.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use common::Chain;
use vmspec::error::{Error, Kind, Result};

use super::Orphans;
use crate::model::PodName;
use crate::orphans::instance::Instance;
use crate::store::Store;
use crate::volumes::{Found, Kept, VolumeError};

/// What the records say.
#[derive(Debug)]
struct OnRecord {
    /// Root disks of containers.
    roots: Vec<PathBuf>,
    /// Pods that have a sandbox.
    pods: Vec<PodName>,
    /// There are records that cannot be read.
    unread: bool,
}

/// What becomes of a folder.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It is this pod's.
    Of(PodName),
    /// Nobody knows whose it is.
    Kept(String),
    /// Its pod is gone, and a kill kept us from removing it.
    Left,
}

impl Orphans {
    /// Looks at all folders, before anything new is made.
    pub async fn sweep(&self) {
        let found = match self.uses.volumes.look() {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(error = %Chain(&error), "disks of pods not listed; none is removed");
                return;
            }
        };
        let records = OnRecord::of(&self.uses.store);
        let mut done = true;
        for found in found {
            let folder = found.folder.clone();
            if let Err(error) = self.settle_folder(&records, found).await {
                tracing::error!(folder = folder.name(), error = %Chain(&error), "folder of a pod's disks not put in order");
                done = false;
            }
        }
        self.known.swept.store(done, Ordering::Relaxed);
        self.refresh().await;
    }

    async fn settle_folder(&self, records: &OnRecord, found: Found) -> Result<()> {
        let failed = |cause: VolumeError| Error::because(Kind::Internal, "its notes cannot be written", cause);
        let folder = &found.folder;
        match fate(&found, records, &self.uses.instance) {
            Fate::Of(pod) => {
                if found.kept.is_some() {
                    tracing::info!(
                        folder = folder.name(),
                        namespace = pod.namespace,
                        name = pod.name,
                        "its pod is on record again"
                    );
                    self.uses.volumes.give_back(folder).map_err(failed)?;
                }
                if found.owner == Ok(None) {
                    self.uses.volumes.stamp(folder, &self.owner(&pod).await?).map_err(failed)?;
                }
                Ok(())
            }
            Fate::Kept(why) => {
                let kept = found.kept.unwrap_or_else(|| {
                    tracing::error!(folder = folder.name(), why, "disks of unknown owner are kept");
                    Kept::new(why)
                });
                self.uses.volumes.keep(folder, kept).map_err(failed)
            }
            Fate::Left => {
                tracing::warn!(folder = folder.name(), "removing disks of a pod that is gone");
                self.drop_folder(folder).await
            }
        }
    }
}

/// Decides. Pure.
fn fate(found: &Found, records: &OnRecord, instance: &Instance) -> Fate {
    let folder = &found.folder;
    let (owner, unreadable) = match &found.owner {
        Ok(owner) => (owner.as_ref(), None),
        Err(why) => (None, Some(why)),
    };
    let uid = owner.map_or(folder.name(), |owner| owner.pod_uid.as_str());
    let pod = records.pods.iter().find(|pod| pod.uid == uid);
    let in_use = records.roots.iter().any(|root| folder.has(root));
    match (pod, &found.kept) {
        // A container's record names the very file.
        (pod, _) if in_use => {
            Fate::Of(pod.cloned().unwrap_or_else(|| PodName { uid: uid.to_owned(), ..PodName::default() }))
        }
        // A pod of that UID may have been made anew, with another folder.
        (_, Some(kept)) => Fate::Kept(kept.why.clone()),
        (Some(pod), None) => Fate::Of(pod.clone()),
        (None, None) => match owner {
            _ if records.unread => Fate::Kept("there are records that cannot be read".into()),
            _ if instance.doubt().is_some() => Fate::Kept(instance.doubt().unwrap_or_default().to_owned()),
            None => Fate::Kept(unreadable.cloned().unwrap_or_else(|| "nothing in it says whose it is".into())),
            Some(owner) if instance.would_be_on_record(owner.instance, owner.epoch) => Fate::Left,
            Some(owner) if owner.instance != instance.id() => {
                Fate::Kept(format!("instance `{}` of controld made it", owner.instance))
            }
            Some(_) => Fate::Kept("it was made before records were lost".into()),
        },
    }
}

impl OnRecord {
    fn of(store: &Store) -> Self {
        Self {
            roots: store.containers().iter().map(|container| container.machine.root.overlay.clone()).collect(),
            pods: store.sandboxes().iter().map(|sandbox| PodName::of(sandbox)).collect(),
            unread: !store.unread().is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
