//! What keeps an image besides its names: leases, which outlive the process, and holds, which do not.

use std::collections::BTreeSet;
use std::sync::Arc;

use vmimage::digest::ImageId;

use super::record::{LeaseRecord, VERSION, encode};
use super::{ContentStore, DiskError, MAX_HOLDER, PINNED};

/// Keeps an image while work is under way that will need it.
#[derive(Debug)]
pub(crate) struct Hold {
    content: Arc<ContentStore>,
    id: ImageId,
}

impl ContentStore {
    /// Who has leases.
    pub(crate) fn holders(&self) -> Vec<String> {
        self.read().leases.keys().filter(|holder| *holder != PINNED).cloned().collect()
    }

    /// Keeps an image for a holder until it is released. `false` if it is not here.
    pub(crate) fn lease(&self, id: &ImageId, holder: &str) -> Result<bool, DiskError> {
        let _changing = self.lock();
        let index = self.read();
        if !index.images.contains_key(id) {
            return Ok(false);
        }
        let mut images = index.leases.get(holder).cloned().unwrap_or_default();
        drop(index);
        if images.insert(id.clone()) {
            self.write_lease(holder, images)?;
        }
        Ok(true)
    }

    /// Gives up all that a holder has.
    pub(crate) fn release(&self, holder: &str) -> Result<(), DiskError> {
        let _changing = self.lock();
        if !self.read().leases.contains_key(holder) {
            return Ok(());
        }
        self.disk.leases.remove(&lease_name(holder))?;
        self.disk.leases.sync()?;
        let images = self.write().leases.remove(holder).unwrap_or_default();
        images.iter().try_for_each(|id| self.drop_unused(id))
    }

    /// Pins an image. `false` if it is not here.
    pub(crate) fn pin(&self, id: &ImageId) -> Result<bool, DiskError> {
        self.lease(id, PINNED)
    }

    /// The pinned image of an id or its beginning, also if it has no name.
    pub(crate) fn pinned(&self, text: &str) -> Option<ImageId> {
        self.read().pinned(text).cloned()
    }

    /// Gives up the pin of one image. Fine if it has none.
    pub(crate) fn unpin(&self, id: &ImageId) -> Result<(), DiskError> {
        let _changing = self.lock();
        let mut images = self.read().leases.get(PINNED).cloned().unwrap_or_default();
        if !images.remove(id) {
            return Ok(());
        }
        self.write_lease(PINNED, images)?;
        self.drop_unused(id)
    }

    /// What a holder has, on the disk and then in memory.
    fn write_lease(&self, holder: &str, images: BTreeSet<ImageId>) -> Result<(), DiskError> {
        let record = LeaseRecord { version: VERSION, images: images.iter().cloned().collect() };
        self.disk.leases.write_record(&lease_name(holder), &encode(&record))?;
        self.write().leases.insert(holder.to_owned(), images);
        Ok(())
    }

    /// Keeps an image while the answer lives. `None` if it is not here, or has lost its file.
    pub(crate) fn hold_sound(self: &Arc<Self>, id: &ImageId) -> Result<Option<Hold>, DiskError> {
        let _changing = self.lock();
        Ok(self.is_there(id)?.then(|| self.hold_locked(id)))
    }

    /// The same, if its bytes are known to be the right ones. Takes back what is on its way out.
    pub(crate) fn hold_trusted(self: &Arc<Self>, id: &ImageId) -> Result<Option<Hold>, DiskError> {
        self.bring_back(id)?;
        if self.is_trusted(id)? { self.hold_sound(id) } else { Ok(None) }
    }

    pub(super) fn hold_locked(self: &Arc<Self>, id: &ImageId) -> Hold {
        *self.write().holds.entry(id.clone()).or_default() += 1;
        Hold { content: self.clone(), id: id.clone() }
    }
}

impl Hold {
    pub(crate) fn id(&self) -> &ImageId {
        &self.id
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _changing = self.content.lock();
        let mut index = self.content.write();
        if let Some(count) = index.holds.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                index.holds.remove(&self.id);
            }
        }
        drop(index);
        // What cannot be removed now is removed when somebody collects, or at the next start.
        if let Err(error) = self.content.drop_unused(&self.id) {
            tracing::warn!(%error, image = %self.id, "image that nobody needs left behind");
        }
    }
}

/// Whether a text can be the name of a lease's file.
pub(crate) fn is_holder(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    (1..=MAX_HOLDER).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(allowed)
}

fn lease_name(holder: &str) -> String {
    format!("{holder}.json")
}
