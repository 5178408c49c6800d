//! Images that a person brings by hand, which come from no server.

use common::Reason;
use vmimage::declared::Declared;
use vmimage::error::printable;
use vmimage::name::{IMPORT, Query};

use super::{PullRequest, Store, order};
use crate::sources::provider::Upload;
use crate::storage::config::HandlerConfig;
use crate::storage::content::{Image, Key};
use crate::storage::fit;
use crate::storage::pull::PullError;

impl Store {
    /// Takes an image that comes as bytes, and gives it the request's name: inspected, hashed and stored as a download
    /// is. `declared` is what the one who brings it says that it is. Of a request only the name, the handler and the
    /// layers count. Stops, and leaves nothing, if this future is dropped.
    ///
    /// # Errors
    /// See [`PullError`].
    pub async fn import(
        &self,
        request: PullRequest,
        upload: Upload,
        declared: Option<Declared>,
    ) -> Result<Image, PullError> {
        let unknown = || PullError::Handler { handler: printable(&request.handler), known: self.handlers.names() };
        let (handler, config) = self.handlers.find(&request.handler).ok_or_else(unknown)?;
        let image = match request.name.parse::<Query>() {
            Ok(Query::Ref(image)) => image,
            Ok(Query::Id(_) | Query::Digest(_)) => {
                return Err(PullError::Name {
                    name: printable(&request.name),
                    cause: Reason::new("an id is made of the bytes; give a name"),
                });
            }
            Err(cause) => return Err(PullError::Name { name: printable(&request.name), cause }),
        };
        let key = Key::new(handler, &image);
        let order = order(key, self.handlers.name_of(handler), config, request, self.layers);
        self.puller.clone().import(order, upload.within(self.stall), declared).await
    }

    /// What was brought here under a name that no server has. Nobody else could be asked for it, so it is given to
    /// whoever may have what the handler takes.
    pub(super) fn brought(&self, key: &Key, config: &HandlerConfig, request: &PullRequest) -> Option<Image> {
        if !key.image.is_local() || request.force || request.url.is_some() || request.provider.is_some() {
            return None;
        }
        let (image, origin) = self.content.remembered(key)?;
        let is_brought = origin.provider.as_deref() == Some(IMPORT);
        let fits = fit::check_origin(config.providers.as_ref(), config.translations.as_ref(), &origin).is_ok();
        (is_brought && fits && image.missing.is_none()).then_some(image)
    }
}
