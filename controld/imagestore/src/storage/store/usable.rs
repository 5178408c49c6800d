//! Which image of the store a machine can be made of.

use vmimage::digest::ImageId;
use vmimage::error::printable;

use super::{Store, StoreError};
use crate::storage::config::HandlerConfig;
use crate::storage::content::{Handler, Image, Origin};
use crate::storage::fit::{self, Unfit};

impl Store {
    /// The image that a machine of a handler can be made of. Pulls that name no handler serve those for handlers whose
    /// guests run on the default handler's platform, too, as not every caller can name one.
    ///
    /// # Errors
    /// If it is not here, here for other handlers only, none that the handler takes, or stands on something that is
    /// missing.
    pub fn usable(&self, name: &str, handler: &str) -> Result<Image, StoreError> {
        let (own, default) = (self.handler(handler)?, Handler::default());
        let serving = [Some(own), self.handlers.is_like_default(own).then_some(&default)];
        let serving: Vec<_> = serving.into_iter().flatten().collect();
        let Some(image) = serving.iter().find_map(|of| self.content.get(name, of)) else {
            let name = printable(name);
            return Err(match self.content.handlers_of(&name) {
                others if others.is_empty() => StoreError::absent(&name),
                pulled_for => StoreError::OtherHandler { name, handler: self.handlers.name_of(own), pulled_for },
            });
        };
        if let Some(missing) = image.missing.clone() {
            return Err(StoreError::Incomplete { id: image.id, missing });
        }
        match self.check_fit(&image, self.handler_config(handler)?, &serving) {
            Ok(()) => Ok(image),
            Err(cause) => Err(StoreError::Unfit { name: printable(name), handler: self.handlers.name_of(own), cause }),
        }
    }

    /// Whether the settings of a handler allow an image that was pulled for these. The same bytes may have come in more
    /// than one way, of which one is enough.
    fn check_fit(&self, image: &Image, config: &HandlerConfig, pulled_for: &[&Handler]) -> Result<(), Unfit> {
        let below = self.content.below(&image.id).unwrap_or_default();
        for format in std::iter::once(image.format).chain(below.into_iter().map(|layer| layer.format)) {
            fit::check_format(config.formats.as_ref(), format)?;
        }
        let mut refused = None;
        for origin in pulled_for.iter().flat_map(|of| self.origins(&image.id, of)) {
            match fit::check_origin(config.providers.as_ref(), config.translations.as_ref(), &origin) {
                Ok(()) => return Ok(()),
                Err(cause) => refused = refused.or(Some(cause)),
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Where the names of an image under a handler got it from.
    fn origins(&self, id: &ImageId, handler: &Handler) -> Vec<Origin> {
        let names = self.content.names_of(&id.to_string(), handler);
        names.iter().filter_map(|key| self.content.remembered(key)).map(|(_, origin)| origin).collect()
    }
}
