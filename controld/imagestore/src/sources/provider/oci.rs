//! Images of registries: container disks (`/disk/` in the layers of an image) and plain artifacts (one blob, a disk).
//!
//! ```text
//! reference --> index --(platform)--> manifest --> configuration --> the layer with the disk
//!                (HEAD: unchanged?)                 (platform agrees, digests of layers)
//! ```
//!
//! Resolves `oci://` and `docker://` URLs of any registry, and names whose host is one of the configured registries, or,
//! if it is for any registry ([`any`]), is found to be one.
//!
//! Invariants: every document is what its digest says, from the reference or the document above down; a login goes to
//! its registry alone ([`session`]); what is downloaded is promised by the layer's digest and, for images, by the
//! digest of the uncompressed layer; an image for another platform is never given.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use serde::Deserialize;
use url::Url;
use vmimage::decode::Decompressor;
use vmimage::error::printable;

use super::{Answer, Caps, ImageHash, Locator, Platform, Provider, ProviderError, RemoteImage, Source, Want};
use crate::sources::net::{Ask, Auth, Client, Opened, Transport};

mod any;
mod challenge;
mod describe;
mod documents;
#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod layer;
mod layers;
mod login;
mod manifest;
mod reference;
mod select;
mod session;

use any::Any;
pub use any::AnyRegistry;
#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
pub use layer::TarError;
pub use login::login;
use reference::Reference;
pub use reference::ReferenceError;
use session::{Caller, Session, Tokens};

/// Images and sessions that are remembered.
const REMEMBERED: usize = 1024;

/// Settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OciConfig {
    /// Hosts (with ports) of the registries whose names are answered.
    #[serde(default)]
    pub registries: Vec<String>,
    /// Those that are spoken to without TLS.
    #[serde(default)]
    pub plain_http: Vec<String>,
    /// Hosts of token services, beside the registries' own, that logins may be sent to.
    #[serde(default)]
    pub token_hosts: Vec<String>,
    /// Logins by host, for callers that bring none.
    #[serde(default)]
    pub logins: BTreeMap<String, LoginConfig>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginConfig {
    pub username: String,
    /// File with the password.
    pub password_file: PathBuf,
}

/// The provider.
#[derive(Debug)]
pub struct Oci {
    id: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    config: OciConfig,
    decompressor: Decompressor,
    tokens: Arc<Tokens>,
    sessions: Mutex<BTreeMap<String, Arc<Session>>>,
    known: Mutex<BTreeMap<String, Known>>,
    any: Option<Any>,
}

/// What was found under a reference, and by which digest it is known again.
#[derive(Debug, Clone)]
struct Known {
    digest: ImageHash,
    image: RemoteImage,
}

impl Oci {
    /// A provider that speaks to its registries through `client`, and by `transport` for names.
    #[must_use]
    pub fn new(id: &str, config: OciConfig, client: Arc<Client>, transport: Arc<Transport>) -> Self {
        Self {
            id: id.to_owned(),
            client,
            transport,
            config,
            decompressor: Decompressor::default(),
            tokens: Arc::default(),
            sessions: Mutex::default(),
            known: Mutex::default(),
            any: None,
        }
    }

    /// The same, which answers for names of all registries, spoken to in this way.
    pub(crate) fn of_any_registry(mut self, any: Option<AnyRegistry>) -> Self {
        self.any = any.map(Any::new);
        self
    }

    /// The same, with what opens layers that are looked through.
    pub(crate) fn with_decompressor(mut self, decompressor: Decompressor) -> Self {
        self.decompressor = decompressor;
        self
    }

    fn session(
        &self,
        reference: &Reference,
        transport: &Arc<Transport>,
        login: Option<Auth>,
        by_name: bool,
    ) -> Result<Arc<Session>, ProviderError> {
        let base = self.base(reference, by_name)?;
        let login = match (login, self.config.logins.get(&reference.registry)) {
            (None, Some(config)) => Some(self.login(config)?),
            (login, _) => login,
        };
        let caller = Caller {
            provider: &self.id,
            client: &self.client,
            transport,
            tokens: &self.tokens,
            login,
            token_hosts: &self.config.token_hosts,
        };
        let session = Session::new(caller, reference, base);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sessions.get(session.key()) {
            return Ok(known.clone());
        }
        if sessions.len() >= REMEMBERED {
            sessions.pop_first();
        }
        let session = Arc::new(session);
        sessions.insert(session.key().to_owned(), session.clone());
        Ok(session)
    }

    /// Where the API begins of a registry that is meant by a name, or else by a URL that says so.
    fn base(&self, reference: &Reference, by_name: bool) -> Result<Url, ProviderError> {
        let host = reference.host();
        let any_is_plain = by_name && self.any.as_ref().is_some_and(Any::is_plain);
        let plain = any_is_plain || self.config.plain_http.iter().any(|plain| plain == host);
        let scheme = if plain { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/")).map_err(|cause| self.unusable(host, cause))
    }

    /// Read each time, as passwords change.
    fn login(&self, config: &LoginConfig) -> Result<Auth, ProviderError> {
        let password = std::fs::read_to_string(&config.password_file)
            .map_err(|cause| ProviderError::File { path: config.password_file.clone(), cause })
            // Says nothing of the image.
            .map_err(|cause| ProviderError::Config { provider: self.id.clone(), cause: Box::new(cause) })?;
        let password = password.strip_suffix('\n').unwrap_or(&password).to_owned();
        Ok(Auth::Basic { user: config.username.clone(), password })
    }

    fn unusable(&self, what: &str, cause: impl std::error::Error + Send + Sync + 'static) -> ProviderError {
        ProviderError::Metadata { provider: self.id.clone(), what: printable(what), cause: Box::new(cause) }
    }

    async fn image(&self, session: &Session, reference: &Reference, want: &Want) -> Result<RemoteImage, ProviderError> {
        let shown = reference.to_string();
        let key = format!("{shown} {} {}", want.platform, session.key());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if let Some(Known { digest, image }) = known
            && self.is_still(session, reference, &digest).await?
        {
            return Ok(image);
        }
        let (digest, chosen) = self.choose(session, reference, &want.platform).await?;
        let image = self.describe(session, reference, &digest, chosen, want).await?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED {
            known.pop_first();
        }
        known.insert(key, Known { digest, image: image.clone() });
        Ok(image)
    }

    fn other_platform(&self, name: &str, wanted: &Platform, mut available: Vec<String>) -> ProviderError {
        available.sort();
        available.dedup();
        ProviderError::Platform {
            provider: self.id.clone(),
            name: name.to_owned(),
            wanted: wanted.to_string(),
            available,
        }
    }

    async fn open_image(&self, image: &RemoteImage, ask: &Ask) -> Result<Opened, ProviderError> {
        let Source::Http(request) = &image.source else {
            return Err(ProviderError::Unsupported { provider: self.id.clone(), what: "local files" });
        };
        let key = image.key.split_once(' ').map_or("", |(_, key)| key);
        let session = self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned();
        match session {
            Some(session) => session.open(request, ask).await,
            None => Ok(self.client.open(request, ask).await?),
        }
    }
}

impl Provider for Oci {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> Caps {
        Caps { range: true, conditional: true, platform: true, ..Caps::default() }
    }

    fn schemes(&self) -> &[&str] {
        &["oci", "docker"]
    }

    fn resolve<'a>(&'a self, locator: &'a Locator, want: &'a Want) -> Answer<'a, RemoteImage> {
        async move {
            let url = locator.url();
            let reference =
                Reference::of_url(url, want.version.as_ref()).map_err(|cause| self.unusable("the URL", cause))?;
            // What a rule says of a login wins over what the caller brought along.
            let login = crate::sources::net::login_of(url).or_else(|| want.auth_for(reference.host()));
            let session = self.session(&reference, locator.transport(), login, false)?;
            self.image(&session, &reference, want).await
        }
        .boxed()
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        async move {
            let Ok(reference) = Reference::parse(name, want.version.as_ref()) else { return Ok(None) };
            let is_configured = self.config.registries.contains(&reference.registry);
            let is_served = is_configured || (want.anywhere && self.is_any_registry(&reference).await?);
            if !is_served {
                return Ok(None);
            }
            let session = self.session(&reference, &self.transport, want.auth_for(reference.host()), true)?;
            match self.image(&session, &reference, want).await {
                // Of what was only guessed to be a registry, nobody is asked after it: its word is the last.
                Err(ProviderError::NotFound { .. }) if is_configured => Ok(None),
                found => found.map(Some),
            }
        }
        .boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        self.open_image(image, ask).boxed()
    }

    fn clear_cache(&self) {
        self.tokens.clear();
        if let Some(any) = &self.any {
            any.forget();
        }
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
