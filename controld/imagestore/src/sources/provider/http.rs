//! The HTTP(S) provider: a rule's URL is the image itself. A rule may name a list of checksums that promises what it is.

use std::sync::Arc;

use futures_util::FutureExt as _;
use url::Url;

use super::{Answer, Caps, Locator, Provider, ProviderError, RemoteImage, Want, checksums};
use crate::sources::net::{Ask, Client, Opened, Request};

/// The provider.
#[derive(Debug)]
pub struct Http {
    client: Arc<Client>,
}

impl Http {
    /// A provider that speaks through `client`.
    #[must_use]
    pub fn new(client: Arc<Client>) -> Self {
        Self { client }
    }

    /// The same image with what the list of checksums says of it.
    async fn promised(
        &self,
        mut image: RemoteImage,
        list: &Url,
        locator: &Locator,
        want: &Want,
    ) -> Result<RemoteImage, ProviderError> {
        // The caller's login, and what the rule says of the server, are for the image's server alone.
        let asked = match list.origin() == locator.url().origin() {
            true => request(list, locator, want),
            false => request(list, locator, &Want::default()).abroad(),
        };
        let asked = asked.within_tls();
        let promises = checksums::promised(self.id(), &self.client, &asked, locator.url()).await?;
        let strongest = promises.last().map(|promise| promise.hash.to_string()).unwrap_or_default();
        image.key = format!("{} {strongest}", image.key);
        image.metadata.promises.clone_from(&promises);
        image.listed = true;
        image.promises = promises;
        Ok(image)
    }
}

/// Asks for a URL as its rule wants it to be asked.
fn request(url: &Url, locator: &Locator, want: &Want) -> Request {
    let request = Request::get(url.clone()).with_transport(locator.transport().clone());
    let host = url.host_str().unwrap_or_default();
    let server = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    match want.auth_for(&server) {
        // What a rule says of a login wins over what the caller brought along.
        Some(auth) if !request.has_auth() => request.with_auth(auth),
        _ => request,
    }
}

impl Provider for Http {
    fn id(&self) -> &str {
        "http"
    }

    fn caps(&self) -> Caps {
        Caps { range: true, conditional: true, ..Caps::default() }
    }

    fn schemes(&self) -> &[&str] {
        &["http", "https"]
    }

    fn resolve<'a>(&'a self, locator: &'a Locator, want: &'a Want) -> Answer<'a, RemoteImage> {
        async move {
            let image = RemoteImage::at(self.id(), request(locator.url(), locator, want));
            match locator.checksums() {
                Some(list) => self.promised(image, list, locator, want).await,
                None => Ok(image),
            }
        }
        .boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        image.open_by(self.id(), &self.client, ask)
    }
}
