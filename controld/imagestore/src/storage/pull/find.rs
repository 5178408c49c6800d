//! Step 3: finds where the image of an order is. A rule decides; without a rule, the first provider that knows the
//! name; without such a provider, the catalogue, or else the name is taken for a URL.

use std::sync::Arc;

use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::digest::Digest;

use super::Puller;
use super::error::{DownloadError, PullError};
use super::order::Order;
use super::way::Way;
use crate::sources::provider::{Choice, ProviderError};
use crate::sources::translate::Translated;

/// Where the image of an order is.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) choice: Choice,
    /// Who said so.
    pub(super) by: String,
    /// What the rule demands.
    pub(super) digest: Option<Digest>,
    /// What the rule or the provider says that it is.
    pub(super) declared: Option<Declared>,
}

impl Found {
    /// What it is to be converted from.
    pub(super) fn foreign(&self) -> Option<ForeignFormat> {
        self.declared.and_then(Declared::foreign)
    }
}

impl Puller {
    /// Where the image of an order is: a rule's word, then that of a provider that knows the name, then the name as a
    /// URL.
    pub(super) async fn find(self: &Arc<Self>, order: &Order, way: Way) -> Result<Found, PullError> {
        let image = &order.key.image;
        let nowhere = |cause: ProviderError| PullError::Find { image: image.clone(), cause: Box::new(cause) };
        let (name, default) = match way {
            Way::Rule(rule) => return self.resolve(order, rule).await,
            Way::Name { name, default } => (name, default),
        };
        if let Some(choice) = self.by_name(order, &name).await.map_err(nowhere)? {
            let by = format!("provider `{}`", choice.provider.id());
            let declared = choice.image.metadata.format;
            let found = Found { choice, by, digest: None, declared };
            let refused = |cause| PullError::Download {
                image: image.clone(),
                url: found.choice.image.shown.clone().into(),
                by: found.by.clone().into(),
                cause: Arc::new(cause),
            };
            self.check_declared(declared, image.digest().is_some()).map_err(refused)?;
            return Ok(found);
        }
        if let Some(provider) = &order.provider {
            return Err(nowhere(ProviderError::NotFound { provider: provider.clone(), name }));
        }
        let by_default =
            default.map_err(|cause| PullError::Translate { image: image.clone(), cause: Box::new(cause) })?;
        self.resolve(order, by_default).await
    }

    pub(super) async fn by_name(&self, order: &Order, name: &str) -> Result<Option<Choice>, ProviderError> {
        match (&order.provider, &order.providers) {
            (None, Some(allowed)) => {
                for provider in self.registry.providers().iter().filter(|provider| allowed.contains(provider.id())) {
                    let found = self.registry.find(name, &order.want, Some(provider.id())).await?;
                    if found.is_some() {
                        return Ok(found);
                    }
                }
                Ok(None)
            }
            (Some(pin), Some(allowed)) if !allowed.contains(pin) => {
                Err(ProviderError::NotServed { provider: pin.clone() })
            }
            (pin, _) => self.registry.find(name, &order.want, pin.as_deref()).await,
        }
    }

    async fn resolve(&self, order: &Order, translated: Translated) -> Result<Found, PullError> {
        let Translated { locator, digest, format } = translated;
        let failed = |cause: DownloadError| PullError::Download {
            image: order.key.image.clone(),
            url: locator.to_string().into(),
            by: locator.by().into(),
            cause: Arc::new(cause),
        };
        let choice = self.registry.resolve(&locator, &order.want).await.map_err(|cause| failed(cause.into()))?;
        if order.providers.as_ref().is_some_and(|allowed| !allowed.contains(choice.provider.id())) {
            return Err(failed(ProviderError::NotServed { provider: choice.provider.id().to_owned() }.into()));
        }
        let declared = agreed(format, choice.image.metadata.format).map_err(failed)?;
        self.check_declared(declared, order.key.image.digest().is_some()).map_err(failed)?;
        Ok(Found { choice, by: locator.by().to_owned(), digest, declared })
    }
}

/// What both a rule and a source say of a format, or either of them.
fn agreed(rule: Option<Declared>, told: Option<Declared>) -> Result<Option<Declared>, DownloadError> {
    match (rule, told) {
        (Some(rule), Some(told)) if rule != told => Err(DownloadError::Contradiction { rule, told }),
        (rule, told) => Ok(rule.or(told)),
    }
}
