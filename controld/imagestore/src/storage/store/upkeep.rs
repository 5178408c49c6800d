//! Upkeep, which people ask for and pods do not: lists, verification, collection, checks of rules and providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::off_reactor;
use tokio::sync::Notify;
use vmimage::declared::Declared;
use vmimage::digest::ImageId;

use super::{Store, StoreError};
use crate::sources::provider::{Caps, Dropped, ImageHash, ImageMetadata, Provider, ProviderError};
use crate::sources::translate::Wanted;
use crate::storage::content::{Details, GcOptions, GcReport, Image, Verified};
use crate::storage::pull::sought;

/// What a search calls the catalogue of translation files, which is asked after all providers.
pub const CATALOGUE: &str = "catalogue";

/// An image at a provider.
#[derive(Debug, Clone)]
pub struct Found {
    /// What the provider tells.
    pub image: ImageMetadata,
    /// Whether its bytes are in the store.
    pub cached: bool,
}

/// A provider, as people want to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderInfo {
    /// Its name in the configuration.
    pub id: String,
    /// What it can do.
    pub caps: Caps,
    /// Schemes of the URLs that it resolves.
    pub schemes: Vec<String>,
    /// Images of its source, as it was read last, that cannot be used.
    pub dropped: Vec<Dropped>,
}

impl Store {
    /// All that is known of an image, also of one that is only pinned, by its id.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn inspect(&self, name: &str, handler: &str) -> Result<Option<Details>, StoreError> {
        Ok(self.content.details(name, self.handler(handler)?))
    }

    /// Removes what nobody needs. What is in use, or has a name of a handler that there is, stays.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn gc(&self, options: GcOptions) -> Result<GcReport, StoreError> {
        self.change(move |content| content.gc(options)).await
    }

    /// Told whenever there may be other images or names than before, as by a pull that moves a name; for one who waits.
    #[must_use]
    pub fn changes(&self) -> Arc<Notify> {
        self.content.changes()
    }

    /// All images, also those that only disks or other images still need, and the bytes that each takes on the disk.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<ImageId, u64> {
        self.content.sizes()
    }

    /// The images to verify, one after the other: the one of a name under any handler, or all.
    #[must_use]
    pub fn stored(&self, name: Option<&str>) -> Vec<ImageId> {
        self.content.stored(name)
    }

    /// Hashes an image's bytes anew, and puts them aside if they are not what was stored. `None` if there are none.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn verify(&self, id: &ImageId) -> Result<Option<Verified>, StoreError> {
        let id = id.clone();
        self.change(move |content| content.verify(&id)).await
    }

    /// Keeps an image, also if it has no name, until it is unpinned.
    ///
    /// # Errors
    /// If it is not here, or the disk fails.
    pub async fn pin(&self, id: &ImageId) -> Result<(), StoreError> {
        let wanted = id.clone();
        match self.change(move |content| content.pin(&wanted)).await? {
            true => Ok(()),
            false => Err(StoreError::NotFound { id: id.clone() }),
        }
    }

    /// The pinned image of an id, or of the beginning of one: it may have no name to find it by.
    #[must_use]
    pub fn pinned(&self, id: &str) -> Option<ImageId> {
        self.content.pinned(id)
    }

    /// Images that are pinned and have no name under any handler, so that [`Store::list`] does not have them.
    #[must_use]
    pub fn nameless(&self) -> Vec<Image> {
        self.content.nameless()
    }

    /// Gives up a pin. Fine if there is none.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn unpin(&self, id: &ImageId) -> Result<(), StoreError> {
        let id = id.clone();
        self.change(move |content| content.unpin(&id)).await
    }

    /// Images whose name begins with `query`, or whose hash it is, at one provider or all that can tell. With a
    /// handler, those for its platform.
    ///
    /// # Errors
    /// If there is no such handler or provider, or one that had to be asked failed.
    pub async fn search(&self, query: &str, handler: &str, provider: Option<&str>) -> Result<Vec<Found>, StoreError> {
        let platform = match handler {
            "" => None,
            named => Some(self.handler_config(named)?.platform.clone()),
        };
        let hash = query.parse::<ImageHash>().ok();
        let is_of_catalogue = provider == Some(CATALOGUE) && self.puller.registry().by_id(CATALOGUE).is_err();
        let images = match hash {
            _ if is_of_catalogue => Vec::new(),
            Some(ref hash) => by_hash(&self.providers_named(provider)?, hash).await?,
            None => self.puller.registry().search(query, platform.as_ref(), provider).await?,
        };
        let mut found: Vec<_> =
            images.into_iter().map(|image| Found { cached: self.is_cached(&image), image }).collect();
        if hash.is_none() && (provider.is_none() || is_of_catalogue) {
            found.extend(self.in_catalogue(query, handler).await?);
        }
        Ok(found)
    }

    /// Names of the catalogue that begin so.
    async fn in_catalogue(&self, prefix: &str, handler: &str) -> Result<Vec<Found>, StoreError> {
        let (own, config) = (self.handlers.name_of(self.handler(handler)?), self.handler_config(handler)?.clone());
        let puller = self.puller.clone();
        let names = off_reactor(move || {
            let wanted =
                Wanted { handler: &own, platform: &config.platform, configs: config.translations.as_ref(), tag: None };
            puller.translator().in_catalogue(&wanted)
        });
        let mut found = Vec::new();
        for name in names.await?.into_iter().filter(|name| name.starts_with(prefix)) {
            let cached = self.get(&name, handler)?.is_some();
            found.push(Found {
                image: ImageMetadata { name, provider: CATALOGUE.into(), ..ImageMetadata::default() },
                cached,
            });
        }
        Ok(found)
    }

    /// All providers, in the order in which they are asked.
    #[must_use]
    pub fn providers(&self) -> Vec<ProviderInfo> {
        let all = self.puller.registry().providers().iter();
        let info = |provider: &Arc<dyn Provider>| ProviderInfo {
            id: provider.id().to_owned(),
            caps: provider.caps(),
            schemes: provider.schemes().iter().map(ToString::to_string).collect(),
            dropped: provider.dropped(),
        };
        all.map(info).collect()
    }

    /// Makes one provider or all forget what they know of their sources.
    ///
    /// # Errors
    /// If there is no such provider.
    pub fn clear_caches(&self, provider: Option<&str>) -> Result<(), StoreError> {
        self.providers_named(provider)?.iter().for_each(|provider| provider.clear_cache());
        Ok(())
    }

    /// Makes one provider forget the newest documents that it has seen, so that older ones are taken again.
    ///
    /// # Errors
    /// If there is no such provider, or its file cannot be removed.
    pub async fn forget(&self, provider: &str) -> Result<(), StoreError> {
        let wanted = self.puller.registry().by_id(provider)?.clone();
        let forgotten = off_reactor(move || wanted.forget()).await;
        forgotten.map_err(|cause| StoreError::Forget { provider: provider.to_owned(), cause })
    }

    /// Makes one provider or all forget what they know of their sources, and ask those that have an index for it anew.
    /// Ids, and what failed.
    ///
    /// # Errors
    /// If there is no such provider.
    pub async fn refresh(
        &self,
        provider: Option<&str>,
    ) -> Result<Vec<(String, Result<(), ProviderError>)>, StoreError> {
        let mut outcomes = Vec::new();
        for provider in self.providers_named(provider)? {
            provider.clear_cache();
            let asked = match provider.caps().search {
                true => provider.search("", None).await.map(drop),
                false => Ok(()),
            };
            outcomes.push((provider.id().to_owned(), asked));
        }
        Ok(outcomes)
    }

    fn providers_named(&self, id: Option<&str>) -> Result<Vec<Arc<dyn Provider>>, StoreError> {
        let registry = self.puller.registry();
        match id {
            Some(id) => Ok(vec![registry.by_id(id)?.clone()]),
            None => Ok(registry.providers().to_vec()),
        }
    }

    /// Whether a digest that a provider gives leads to bytes that are here.
    fn is_cached(&self, image: &ImageMetadata) -> bool {
        let foreign = image.format.and_then(Declared::foreign);
        image.promises.iter().any(|promise| self.content.has(&sought(promise, foreign), &image.provider))
    }
}

async fn by_hash(providers: &[Arc<dyn Provider>], hash: &ImageHash) -> Result<Vec<ImageMetadata>, ProviderError> {
    let mut found = Vec::new();
    for provider in providers {
        found.extend(provider.metadata(hash).await?);
    }
    Ok(found)
}
