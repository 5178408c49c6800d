//! Looking closer, cleaning up, checking: what people ask for and pods do not.

use super::{Store, StoreError};
use crate::name::ImageId;
use crate::shelf::{Details, GcOptions, GcReport, Verified};

impl Store {
    /// All that is known of an image.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn inspect(&self, name: &str, handler: &str) -> Result<Option<Details>, StoreError> {
        Ok(self.shelf.details(name, self.handler(handler)?))
    }

    /// Removes what nobody needs. What is in use, or has a name of a handler that there is, stays.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn gc(&self, options: GcOptions) -> Result<GcReport, StoreError> {
        self.change(move |shelf| shelf.gc(options)).await
    }

    /// The images to verify, one after the other: the one of a name under any handler, or all.
    #[must_use]
    pub fn stored(&self, name: Option<&str>) -> Vec<ImageId> {
        self.shelf.stored(name)
    }

    /// Hashes an image's bytes anew, and puts them aside if they are not what was stored. `None` if there are none.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn verify(&self, id: &ImageId) -> Result<Option<Verified>, StoreError> {
        let id = id.clone();
        self.change(move |shelf| shelf.verify(&id)).await
    }

    /// Keeps an image, also if it has no name, until it is unpinned.
    ///
    /// # Errors
    /// If it is not here, or the disk fails.
    pub async fn pin(&self, id: &ImageId) -> Result<(), StoreError> {
        let wanted = id.clone();
        match self.change(move |shelf| shelf.pin(&wanted)).await? {
            true => Ok(()),
            false => Err(StoreError::NotFound { id: id.clone() }),
        }
    }

    /// Gives up a pin. Fine if there is none.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn unpin(&self, id: &ImageId) -> Result<(), StoreError> {
        let id = id.clone();
        self.change(move |shelf| shelf.unpin(&id)).await
    }
}
