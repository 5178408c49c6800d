//! Calls to the service for looking after images.

use futures_util::Stream;
use proto::images::*;

use super::super::error::CtlError;
use super::{Client, Messages, look, refused, work};

impl Client {
    /// Dropping the messages stops the pull.
    pub(crate) async fn pull(
        &self,
        request: PullWithProgressRequest,
    ) -> Result<Messages<PullWithProgressResponse>, CtlError> {
        let mut admin = self.admin.clone();
        let action = format!("pull image `{}`", request.name);
        let stream = look(&action, admin.pull_with_progress(request)).await?;
        Ok(Messages { action, stream })
    }

    /// Sends an image. There is no deadline on it, as on messages: controld has one on each part of its work.
    pub(crate) async fn import_image(
        &self,
        name: &str,
        pieces: impl Stream<Item = ImportRequest> + Send + 'static,
    ) -> Result<Image, CtlError> {
        let mut admin = self.admin.clone();
        let action = format!("import image `{name}`");
        let answer = admin.import(pieces).await.map_err(refused(&action))?.into_inner();
        answer.image.ok_or(CtlError::Answer { action, lacks: "image" })
    }

    /// Images that a name means, or all if it is empty; of a handler, or of all if that is empty.
    pub(crate) async fn list_images(&self, name: &str, handler: &str) -> Result<Vec<Image>, CtlError> {
        let mut admin = self.admin.clone();
        let request = ListRequest { name: name.to_owned(), handler: handler.to_owned() };
        Ok(look("list images", admin.list(request)).await?.images)
    }

    pub(crate) async fn search_images(&self, request: SearchRequest) -> Result<Vec<RemoteImage>, CtlError> {
        let mut admin = self.admin.clone();
        let action = format!("search for `{}`", request.query);
        Ok(work(&action, admin.search(request)).await?.images)
    }

    pub(crate) async fn inspect_image(&self, name: &str, handler: &str) -> Result<InspectResponse, CtlError> {
        let mut admin = self.admin.clone();
        let request = InspectRequest { name: name.to_owned(), handler: handler.to_owned() };
        look(&format!("inspect image `{name}`"), admin.inspect(request)).await
    }

    /// All images if the name is empty.
    pub(crate) async fn verify_images(&self, name: &str) -> Result<Messages<VerifyResponse>, CtlError> {
        let mut admin = self.admin.clone();
        let action = if name.is_empty() { "verify images".into() } else { format!("verify image `{name}`") };
        let stream = look(&action, admin.verify(VerifyRequest { name: name.to_owned() })).await?;
        Ok(Messages { action, stream })
    }

    /// Says the image's id.
    pub(crate) async fn pin_image(&self, name: &str, handler: &str, pinned: bool) -> Result<String, CtlError> {
        let mut admin = self.admin.clone();
        let action = if pinned { format!("pin image `{name}`") } else { format!("unpin image `{name}`") };
        let request = PinRequest { name: name.to_owned(), handler: handler.to_owned(), pinned };
        Ok(work(&action, admin.pin(request)).await?.id)
    }

    pub(crate) async fn collect_images(&self, request: GcRequest) -> Result<GcResponse, CtlError> {
        let mut admin = self.admin.clone();
        work("remove what nobody needs", admin.gc(request)).await
    }

    pub(crate) async fn providers(&self) -> Result<Vec<Provider>, CtlError> {
        let mut admin = self.admin.clone();
        Ok(look("list providers", admin.list_providers(ListProvidersRequest {})).await?.providers)
    }

    /// All providers if none is named.
    pub(crate) async fn refresh_providers(
        &self,
        provider: &str,
    ) -> Result<Vec<refresh_providers_response::Outcome>, CtlError> {
        let mut admin = self.admin.clone();
        let request = RefreshProvidersRequest { provider: provider.to_owned() };
        Ok(work("refresh providers", admin.refresh_providers(request)).await?.outcomes)
    }

    /// All providers if none is named.
    pub(crate) async fn clear_provider_caches(&self, provider: &str) -> Result<(), CtlError> {
        let mut admin = self.admin.clone();
        let request = ClearProviderCachesRequest { provider: provider.to_owned(), forget_seen: false };
        work("clear the caches of providers", admin.clear_provider_caches(request)).await.map(drop)
    }

    /// Has older documents of a provider's source taken again.
    pub(crate) async fn forget_provider(&self, provider: &str) -> Result<(), CtlError> {
        let mut admin = self.admin.clone();
        let request = ClearProviderCachesRequest { provider: provider.to_owned(), forget_seen: true };
        work("forget what was seen of a provider", admin.clear_provider_caches(request)).await.map(drop)
    }

    /// Takes an image from a handler, or from all if none is named. Fine with an absent image.
    pub(crate) async fn remove_image(&self, name: &str, handler: &str) -> Result<Vec<Removed>, CtlError> {
        let mut admin = self.admin.clone();
        let request = RemoveRequest { name: name.to_owned(), handler: handler.to_owned(), only_name: true };
        Ok(work(&format!("remove image `{name}`"), admin.remove(request)).await?.images)
    }
}
