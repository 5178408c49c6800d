//! The providers of a store, in the operator's order.

use std::sync::Arc;

use vmimage::error::printable;

use super::{ImageMetadata, Locator, Platform, Provider, ProviderError, RemoteImage, ReposError, Want};

/// Providers in the order in which they are asked.
#[derive(Debug, Default)]
pub struct Registry {
    providers: Vec<Arc<dyn Provider>>,
    fall_through: bool,
    left_out: Vec<ReposError>,
}

/// An image and the provider that found it.
#[derive(Debug, Clone)]
pub struct Choice {
    pub provider: Arc<dyn Provider>,
    pub image: RemoteImage,
}

impl Registry {
    /// These providers. With `fall_through`, one that cannot be reached is passed over; otherwise it ends a search, as
    /// the next one might answer for a name that is not its own.
    #[must_use]
    pub fn new(providers: Vec<Arc<dyn Provider>>, fall_through: bool) -> Self {
        Self { providers, fall_through, left_out: Vec::new() }
    }

    /// The same, with sources that are told to be none of them.
    #[must_use]
    pub(super) fn with_left_out(self, left_out: Vec<ReposError>) -> Self {
        Self { left_out, ..self }
    }

    /// All of them, in order.
    #[must_use]
    pub fn providers(&self) -> &[Arc<dyn Provider>] {
        &self.providers
    }

    /// Sources of virt-builder that are none of them, as they cannot be used.
    #[must_use]
    pub fn left_out(&self) -> &[ReposError] {
        &self.left_out
    }

    /// The provider of that name.
    ///
    /// # Errors
    /// When there is none.
    pub fn by_id(&self, id: &str) -> Result<&Arc<dyn Provider>, ProviderError> {
        let found = self.providers.iter().find(|provider| provider.id() == id);
        found.ok_or_else(|| ProviderError::Unknown { id: printable(id) })
    }

    /// The image of a rule's URL: by the provider of its scheme that the URL's host names, or else by the first that
    /// claims it.
    ///
    /// # Errors
    /// When no provider knows the scheme, or the one that does fails.
    pub async fn resolve(&self, locator: &Locator, want: &Want) -> Result<Choice, ProviderError> {
        let scheme = locator.url().scheme();
        let knows = |provider: &&Arc<dyn Provider>| provider.schemes().contains(&scheme);
        let mut known = self.providers.iter().filter(knows);
        let named = known.clone().find(|provider| locator.url().host_str() == Some(provider.id()));
        let Some(provider) = named.or_else(|| known.find(|provider| provider.claims(locator.url()))) else {
            return Err(ProviderError::Scheme { scheme: scheme.to_owned() });
        };
        Ok(Choice { image: provider.resolve(locator, want).await?, provider: provider.clone() })
    }

    /// The image of a name, by the first provider that knows it, or by the one it is pinned to.
    ///
    /// # Errors
    /// When a provider that had to be asked failed.
    pub async fn find(&self, name: &str, want: &Want, pin: Option<&str>) -> Result<Option<Choice>, ProviderError> {
        if let Some(id) = pin {
            let provider = self.by_id(id)?;
            let image = provider.find(name, want).await.map_err(|cause| cause.asked(id))?;
            return Ok(image.map(|image| Choice { image, provider: provider.clone() }));
        }
        for provider in &self.providers {
            match provider.find(name, want).await {
                Ok(Some(image)) => return Ok(Some(Choice { image, provider: provider.clone() })),
                Ok(None) => {}
                Err(error) if self.fall_through && error.is_unreachable() => {
                    tracing::warn!(provider = provider.id(), %error, "provider passed over");
                }
                Err(error) => return Err(error.asked(provider.id())),
            }
        }
        Ok(None)
    }

    /// Images of all providers that can search, in their order, or of the one that is named. Those marked as hidden are
    /// left out.
    ///
    /// # Errors
    /// When one of them fails, or there is none of that name.
    pub async fn search(
        &self,
        prefix: &str,
        platform: Option<&Platform>,
        only: Option<&str>,
    ) -> Result<Vec<ImageMetadata>, ProviderError> {
        let asked = match only {
            Some(id) => vec![self.by_id(id)?],
            None => self.providers.iter().filter(|provider| provider.caps().search).collect(),
        };
        let mut found = Vec::new();
        for provider in asked {
            found.extend(provider.search(prefix, platform).await?.into_iter().filter(|image| !image.hidden));
        }
        Ok(found)
    }
}
