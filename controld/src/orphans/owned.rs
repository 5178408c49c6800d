//! Whose disks are: what is made for a pod carries its name, and goes with it.

use vmspec::error::{Error, Kind, Result};

use super::Orphans;
use crate::model::PodName;
use crate::volumes::{Folder, Owner, VolumeError};

/// What to lock while the disks of a pod are claimed or dropped, with the record of their user. A pod's sandboxes share its
/// disks, so that a lock of one sandbox does not do. It is taken last, inside of any other.
#[must_use]
pub fn disks_key(pod_uid: &str) -> String {
    format!("uid/{pod_uid}")
}

impl Orphans {
    /// A pod as the owner of what is made for it now. The database has its sandbox: it tells by the note if it is put back
    /// from a copy that has not (see [`super::instance`]).
    ///
    /// # Errors
    /// When the database cannot be written.
    pub async fn owner(&self, pod: &PodName) -> Result<Owner> {
        self.uses.store.flush().await?;
        let now = (self.uses.instance.epoch(), self.uses.store.commits());
        Ok(Owner::new(self.uses.instance.id(), now, &pod.uid, &pod.namespace, &pod.name))
    }

    /// Removes the disks of a pod, and gives up its hold on images. It may be done again.
    ///
    /// # Errors
    /// When something of it stays.
    pub async fn drop_disks(&self, pod_uid: &str) -> Result<()> {
        let folders = self.uses.volumes.of_pod(pod_uid).map_err(|cause| not_removed(pod_uid, cause))?;
        for folder in folders {
            self.drop_folder(&folder).await?;
        }
        Ok(())
    }

    /// Removes a folder of disks, and gives up its hold on images. It may be done again.
    ///
    /// # Errors
    /// When something of it stays.
    pub async fn drop_folder(&self, folder: &Folder) -> Result<()> {
        // The folder itself goes last: it says whose the rest is.
        self.uses.volumes.empty(folder).await.map_err(|cause| not_removed(folder.name(), cause))?;
        self.uses.images.release(folder.name()).await?;
        self.uses.volumes.remove(folder).await.map_err(|cause| not_removed(folder.name(), cause))
    }
}

fn not_removed(folder: &str, cause: VolumeError) -> Error {
    Error::because(Kind::Internal, format!("disks of pod `{folder}` not removed"), cause)
}
