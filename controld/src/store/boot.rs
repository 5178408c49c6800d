//! Which boot of the node this is, so that a machine that is gone is told from one that a reboot ended.
//!
//! A container's record names the boot in which its machine was started. Records of the first release do not; for them it is
//! told whether the node was restarted since the database was last opened, which only the first life after it can say.

use std::path::Path;

use crate::store::{Store, StoreError};

const FACT: &str = "boot_id";

#[derive(Debug, Clone)]
pub struct Boot {
    /// The kernel's id of it.
    id: String,
    /// It is another one than when the database was last opened.
    is_new: bool,
}

impl Boot {
    /// The one that we are in.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub async fn of_node(store: &Store) -> std::io::Result<Self> {
        let id = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))?.trim().to_owned();
        Ok(Self::begin(id, store).await.unwrap_or_else(|(error, boot)| {
            tracing::warn!(%error, "boot of the node not noted; the next start notes it");
            boot
        }))
    }

    async fn begin(id: String, store: &Store) -> Result<Self, (StoreError, Self)> {
        let before: Option<String> = store.fact(FACT);
        let boot = Self { is_new: before.as_ref().is_some_and(|before| *before != id), id };
        if before.as_ref() == Some(&boot.id) {
            return Ok(boot);
        }
        match store.put_fact(FACT, &boot.id).await {
            Ok(()) => Ok(boot),
            Err(error) => Err((error, boot)),
        }
    }

    /// One as a test wants it.
    #[cfg(test)]
    pub(crate) fn of_test(id: &str) -> Self {
        Self { id: id.to_owned(), is_new: false }
    }

    /// Its id, for records.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the node was restarted since `boot`, which may be empty.
    #[must_use]
    pub fn is_after(&self, boot: &str) -> bool {
        if boot.is_empty() { self.is_new } else { boot != self.id }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_of_an_earlier_boot_is_known_however_often_we_are_started_in_this_one() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("meta.redb");
        let mut seen = Vec::new();
        for id in ["one", "two", "two"] {
            let store = Store::open(&path).expect("opens");
            let Ok(boot) = Boot::begin(id.to_owned(), &store).await else { panic!("not noted") };
            seen.push((boot.is_after("one"), boot.is_after("two"), boot.is_after("")));
        }
        // The last column is what the first release knew of every machine.
        assert_eq!(seen, [(false, true, false), (true, false, true), (true, false, false)]);
    }
}
