//! The HTTP(S) provider: a rule's URL is the image itself.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::ready;

use super::{Answer, Caps, Locator, Provider, RemoteImage, Want};
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
        let request = Request::get(locator.url().clone()).with_transport(locator.transport().clone());
        // What a rule says of a login wins over what the caller brought along.
        let url = locator.url();
        let host = url.host_str().unwrap_or_default();
        let server = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let request = match want.auth_for(&server) {
            Some(auth) if !request.has_auth() => request.with_auth(auth),
            _ => request,
        };
        ready(Ok(RemoteImage::at(self.id(), request))).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        image.open_by(self.id(), &self.client, ask)
    }
}
