//! Keys that libvirt is given for a start, and that it forgets after it.

use uuid::Uuid;
use vmspec::error::Result;
use vmspec::flexvolume::Key;

use super::Hypervisor;
use super::calls::QUICK_DEADLINE;
use super::ffi::Connection;
use crate::model::domain::DiskSecret;

impl Hypervisor {
    /// Gives libvirt keys, in memory only. Again is fine.
    ///
    /// # Errors
    /// When libvirt does not take one, or does not answer; it may have some then.
    pub async fn give_secrets(&self, secrets: Vec<(DiskSecret, Key)>) -> Result<()> {
        if secrets.is_empty() {
            return Ok(());
        }
        let give = move |connection: &Connection| {
            secrets.iter().try_for_each(|(secret, key)| connection.define_secret(&secret.xml())?.set(&key.0))
        };
        self.call("take the keys of the machine's disks", QUICK_DEADLINE, give).await
    }

    /// Makes libvirt forget keys; fine if it has none of them.
    ///
    /// # Errors
    /// When it does not, or does not answer.
    pub async fn take_secrets(&self, ids: Vec<Uuid>) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let take = move |connection: &Connection| {
            ids.iter().try_for_each(|id| connection.look_up_secret(*id)?.map_or(Ok(()), |secret| secret.undefine()))
        };
        self.call("forget the keys of the machine's disks", QUICK_DEADLINE, take).await
    }

    /// All secrets, each with libvirt's word for its name.
    ///
    /// # Errors
    /// When libvirt does not answer.
    pub async fn secrets(&self) -> Result<Vec<(Uuid, String)>> {
        let list = |connection: &Connection| {
            let all = connection.secrets()?;
            all.iter().map(|secret| Ok((secret.id()?, secret.usage().unwrap_or_default()))).collect()
        };
        self.call("list its secrets", QUICK_DEADLINE, list).await
    }
}
