//! Step 4: whether the bytes of an image are in the content store, and the caller may have them.
//!
//! The caller may have them if their source shows that it would give them: it promises just these digests, or a rule
//! demands the digest and the source lets the caller in, or it says that the file did not change. A promise counts only
//! from where the bytes came from: anybody who runs a server can write a manifest with any digest in it.

use std::sync::Arc;

use common::off_reactor;
use vmimage::convert::ForeignFormat;
use vmimage::digest::ImageId;

use super::Puller;
use super::error::DownloadError;
use super::find::Found;
use super::order::Order;
use super::origin::{giver, place, sought};
use crate::sources::net::{Ask, Validators};
use crate::sources::provider::{Choice, Promise};
use crate::storage::content::{DiskError, Hold, Origin};

/// What the content store has of an image.
pub(super) enum Here {
    /// Its bytes, which the caller may have.
    Usable(Hold),
    /// An image that may be the same: it is if the source says that it did not change since it had these validators.
    Perhaps(ImageId, Validators),
    /// Nothing of use.
    No,
}

/// What a server has given of an image that is here.
enum Gave {
    /// These very bytes: the same URL.
    This,
    /// The same bytes at another URL, such as a registry's other repository. It tells them apart by whom it lets in.
    Other,
    Nothing,
}

impl Puller {
    /// What the content store has of an image that was found, for the one who asks.
    pub(super) async fn here(
        self: &Arc<Self>,
        order: &Order,
        found: &Found,
        promises: &[Promise],
    ) -> Result<Here, DownloadError> {
        if order.force {
            return Ok(Here::No);
        }
        let Choice { provider, image: remote } = &found.choice;
        let known = match self.hold_promised(promises, found.foreign(), provider.id()).await? {
            // The source itself has said, to the one who asks, that it has these bytes; or the list beside it, to anybody.
            Some(hold) if !remote.promises.is_empty() => {
                match self.gave(hold.id(), found) {
                    Gave::This if !remote.listed => {}
                    Gave::This | Gave::Other => self.ask_leave(found).await?,
                    Gave::Nothing => {
                        tracing::debug!(from = remote.shown, id = %hold.id(), "image is here, but not from there");
                        return Ok(Here::No);
                    }
                }
                tracing::info!(from = remote.shown, id = %hold.id(), "image is here already");
                return Ok(Here::Usable(hold));
            }
            // The operator says that it has them. Whether it has them for the one who asks is its own to say.
            Some(hold) if found.digest.is_some() => {
                self.ask_leave(found).await?;
                tracing::info!(from = remote.shown, id = %hold.id(), "image is here already, and may be had");
                return Ok(Here::Usable(hold));
            }
            // Only the name says so. If it came from there before, whoever asked, the source is asked whether it still
            // has it for this one; otherwise nothing but the bytes themselves shows that it has them at all.
            Some(hold) => {
                let (id, site) = (hold.id().clone(), giver(found).site);
                self.known_at(move |of, origin| *of == id && origin.site.as_ref() == Some(&site)).await?
            }
            // What is promised and not here is not what is here, whatever the server says of that.
            None if !promises.is_empty() => None,
            None => {
                let place = place(found);
                self.known_at(move |_, origin| origin.place.as_ref() == Some(&place)).await?
            }
        };
        Ok(known.map_or(Here::No, |(id, validators)| Here::Perhaps(id, validators)))
    }

    /// The image that has all promised digests.
    async fn hold_promised(
        self: &Arc<Self>,
        promises: &[Promise],
        foreign: Option<ForeignFormat>,
        provider: &str,
    ) -> Result<Option<Hold>, DownloadError> {
        let sought: Vec<_> = promises.iter().map(|promise| sought(promise, foreign)).collect();
        let (this, provider) = (self.clone(), provider.to_owned());
        Ok(off_reactor(move || this.content.hold_promised(&sought, &provider)).await?)
    }

    /// What the source of a promise gave of an image that is here.
    fn gave(&self, id: &ImageId, found: &Found) -> Gave {
        let (giver, given) = (giver(found), self.content.given(id));
        if given.iter().any(|other| other.site == giver.site) {
            Gave::This
        } else if giver.host.is_some() && given.iter().any(|other| other.host == giver.host) {
            Gave::Other
        } else {
            Gave::Nothing
        }
    }

    /// Asks a source for an image as if it were to be downloaded: what it refuses, it refuses before the bytes.
    async fn ask_leave(&self, found: &Found) -> Result<(), DownloadError> {
        let Choice { provider, image } = &found.choice;
        let _polite = self.hosts.enter(&image.source).await;
        Ok(provider.open(image, &Ask::default()).await.map(drop)?)
    }

    /// What is here from a place, if the place can be asked whether it changed.
    async fn known_at(
        self: &Arc<Self>,
        is_it: impl Fn(&ImageId, &Origin) -> bool + Send + 'static,
    ) -> Result<Option<(ImageId, Validators)>, DownloadError> {
        let this = self.clone();
        let known = off_reactor(move || {
            let Some((id, Origin { etag, last_modified, .. })) = this.content.known_at(is_it) else { return Ok(None) };
            // Without a sound file, to hear that it did not change is of no use.
            Ok::<_, DiskError>(this.content.hold_sound(&id)?.map(|_| (id, Validators { etag, last_modified })))
        });
        Ok(known.await?.filter(|(_, validators)| !validators.is_empty()))
    }
}
