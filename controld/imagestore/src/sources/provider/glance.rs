//! Glance, OpenStack's image service (Image API v2), with tokens from Keystone or from a file, or without any.
//!
//! ```text
//! secret's file --> Keystone --> token, catalog --> endpoint --> /v2/images?name=.. --> record --> /v2/images/ID/file
//! ```
//!
//! The data have no validators: that an image is the one of before is told by its record, which is asked for at every
//! look-up and has the hash. A token is kept until it ends; one that is refused earlier is renewed once.
//!
//! Invariants: nothing but an active image counts, whatever the server says to have filtered by; no image without a
//! hash of a known algorithm, and none with MD5 alone unless weak hashes are allowed; a token goes to the endpoint and
//! nowhere else; names are not unique, so the newest image counts and the others are reported.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use common::Reason;
use futures_util::FutureExt as _;
use hyper::StatusCode;
use url::Url;
use vmimage::error::printable;

use super::{
    Answer, Caps, HashAlg, ImageHash, ImageMetadata, Locator, Platform, Provider, ProviderError, RemoteImage, Want,
    mirror,
};
use crate::sources::net::{Ask, Client, FetchError, Opened, Request, Small, Transport};

#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod keystone;
mod login;
mod record;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
use keystone::Grant;
pub use login::GlanceConfig;
use login::{Login, read_secret};
use record::{Page, Record};

/// Largest answer: a page of records, or a token with its catalog.
const ANSWER: usize = 16 << 20;
/// Records of a page.
const PAGE: &str = "200";
/// Most pages of a list.
const PAGES: usize = 1000;
/// A token is not used in the last seconds of its time, as it has to last for a while.
const MARGIN: u64 = 60;

/// The provider.
#[derive(Debug)]
pub struct Glance {
    id: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    login: Login,
    endpoint: Option<Url>,
    region: Option<String>,
    interface: String,
    allow_weak: bool,
    hidden: bool,
    session: Mutex<Option<Arc<Session>>>,
}

/// Leave to ask Glance.
struct Session {
    endpoint: Url,
    token: Option<String>,
    /// Seconds since 1970.
    expires: Option<u64>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Session at {}", crate::sources::net::redacted(&self.endpoint))
    }
}

impl Session {
    fn get(&self, url: Url, transport: &Arc<Transport>) -> Request {
        let request = Request::get(url).with_transport(transport.clone());
        match &self.token {
            Some(token) => request.with_secret_header("X-Auth-Token", token),
            None => request,
        }
    }

    fn is_spent(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        self.expires.is_some_and(|expires| expires <= now + MARGIN)
    }
}

impl Glance {
    /// A provider of the Glance that `config` names.
    ///
    /// # Errors
    /// When the settings contradict each other.
    pub fn new(
        id: &str,
        config: &GlanceConfig,
        client: Arc<Client>,
        transport: Arc<Transport>,
    ) -> Result<Self, ProviderError> {
        let login = Login::of(config);
        Ok(Self {
            id: id.to_owned(),
            client,
            transport,
            login: login.map_err(|cause| ProviderError::Config { provider: id.to_owned(), cause: cause.into() })?,
            endpoint: config.endpoint.as_deref().cloned(),
            region: config.region.clone(),
            interface: config.interface.clone(),
            allow_weak: config.allow_weak_hashes,
            hidden: config.hide_from_search,
            session: Mutex::default(),
        })
    }

    /// A session, which is not `refused`.
    async fn session(&self, refused: Option<&Arc<Session>>) -> Result<Arc<Session>, ProviderError> {
        let kept = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(kept) = kept
            && !kept.is_spent()
            && refused.is_none_or(|refused| !Arc::ptr_eq(refused, &kept))
        {
            return Ok(kept);
        }
        let session = Arc::new(self.log_in().await?);
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session.clone());
        Ok(session)
    }

    async fn log_in(&self) -> Result<Session, ProviderError> {
        let (url, who, secret) = match (&self.login, &self.endpoint) {
            (Login::Keystone { url, who, secret }, _) => (url, who, self.secret(secret)?),
            (Login::Token { file }, Some(endpoint)) => {
                return Ok(Session { endpoint: endpoint.clone(), token: Some(self.secret(file)?), expires: None });
            }
            (Login::Open, Some(endpoint)) => {
                return Ok(Session { endpoint: endpoint.clone(), token: None, expires: None });
            }
            (Login::Token { .. } | Login::Open, None) => {
                return Err(ProviderError::Unsupported { provider: self.id.clone(), what: "endpoint" });
            }
        };
        let unusable = |cause: Reason| ProviderError::Metadata {
            provider: self.id.clone(),
            what: "Keystone's answer".into(),
            cause: Box::new(cause),
        };
        let body = keystone::ask(who, &secret)
            .map_err(|cause| ProviderError::Config { provider: self.id.clone(), cause: Box::new(cause) })?;
        let request =
            Request::post(keystone::tokens(url), "application/json", body).with_transport(self.transport.clone());
        let answer = self.client.small(&request, ANSWER, None).await?;
        match answer.status {
            StatusCode::CREATED => {}
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(self.absent("Keystone", &answer.url)),
            _ => return Err(answer.refusal().into()),
        }
        let token = answer.headers.get("X-Subject-Token").and_then(|value| value.to_str().ok());
        let token = token.ok_or_else(|| unusable(Reason::new("answer without `X-Subject-Token`")))?;
        let grant = Grant::parse(&answer.body).map_err(unusable)?;
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => grant.images(&self.interface, self.region.as_deref(), url).map_err(unusable)?,
        };
        tracing::debug!(provider = self.id, endpoint = crate::sources::net::redacted(&endpoint), "token of Keystone");
        Ok(Session { endpoint, token: Some(token.to_owned()), expires: grant.expires })
    }

    /// Asks with a session, and once more with a new one if the first is refused.
    async fn ask(&self, url: impl Fn(&Url) -> Url) -> Result<Small, ProviderError> {
        let mut session = self.session(None).await?;
        let mut answer = self.ask_with(&session, &url).await?;
        if answer.status == StatusCode::UNAUTHORIZED && session.token.is_some() {
            session = self.session(Some(&session)).await?;
            answer = self.ask_with(&session, &url).await?;
        }
        Ok(answer)
    }

    async fn ask_with(&self, session: &Session, url: impl Fn(&Url) -> Url) -> Result<Small, FetchError> {
        let request = session.get(url(&session.endpoint), &self.transport);
        self.client.small(&request, ANSWER, None).await
    }

    async fn by_id(&self, id: &str) -> Result<Option<Record>, ProviderError> {
        let answer = self.ask(|endpoint| record::image(endpoint, id)).await?;
        match answer.status {
            StatusCode::OK => Record::parse(&answer.body).map(Some).map_err(|cause| self.unusable(id, cause)),
            StatusCode::NOT_FOUND => Ok(None),
            _ => Err(answer.refusal().into()),
        }
    }

    /// All active images that fit the filters.
    async fn list(&self, filters: &[(&str, &str)]) -> Result<Vec<Record>, ProviderError> {
        let filters: Vec<_> = filters.iter().copied().chain([("status", "active")]).collect();
        let mut records = self.list_all(&filters).await?;
        records.retain(Record::is_active);
        Ok(records)
    }

    /// All images that fit the filters, in whatever state.
    async fn list_all(&self, filters: &[(&str, &str)]) -> Result<Vec<Record>, ProviderError> {
        let mut records = Vec::new();
        let mut seen = BTreeSet::new();
        let mut query: Option<String> = None;
        let wrong = |cause| self.unusable("list of images", cause);
        loop {
            if seen.len() == PAGES {
                return Err(wrong(Reason::new(format!("list of images has more than {PAGES} pages"))));
            }
            if !seen.insert(query.clone()) {
                return Err(wrong(Reason::new("list of images goes round in circles")));
            }
            let at = |endpoint: &Url| {
                let mut url = record::images(endpoint);
                match &query {
                    Some(query) => url.set_query(Some(query)),
                    None => {
                        let fixed = [("sort", "created_at:desc"), ("limit", PAGE)];
                        url.query_pairs_mut().extend_pairs(filters).extend_pairs(fixed);
                    }
                }
                url
            };
            let answer = self.ask(at).await?;
            match answer.status {
                StatusCode::OK => {}
                StatusCode::NOT_FOUND | StatusCode::GONE => return Err(self.absent("the list of images", &answer.url)),
                _ => return Err(answer.refusal().into()),
            }
            let page = Page::parse(&answer.body).map_err(wrong)?;
            let next = page.next(&answer.url).map_err(wrong)?;
            records.extend(page.images);
            match next {
                Some(url) => query = url.query().map(str::to_owned),
                None => return Ok(records),
            }
        }
    }

    fn unusable(&self, what: &str, cause: Reason) -> ProviderError {
        ProviderError::Metadata { provider: self.id.clone(), what: printable(what), cause: Box::new(cause) }
    }

    fn absent(&self, what: &'static str, url: &Url) -> ProviderError {
        ProviderError::Absent { provider: self.id.clone(), what, url: crate::sources::net::redacted(url) }
    }

    /// What a file with a secret holds. Without it nothing is known of any image.
    fn secret(&self, file: &Path) -> Result<String, ProviderError> {
        read_secret(file).map_err(|cause| ProviderError::Config { provider: self.id.clone(), cause: Box::new(cause) })
    }

    async fn find_image(&self, name: &str, want: &Want) -> Result<Option<RemoteImage>, ProviderError> {
        if record::is_id(name)
            && let Some(record) = self.by_id(name).await?
        {
            return self.chosen(&[record], name, want).map(Some);
        }
        let filter = record::exactly(name);
        let filter = filter.as_deref().map(|name| ("name", name));
        let mut named = self.list_all(filter.as_slice()).await?;
        named.retain(|record| record.name.as_deref() == Some(name) && !record.is_gone());
        // An image that is not active has the name all the same: it is refused, and no other source is asked for it.
        if named.iter().any(Record::is_active) {
            named.retain(Record::is_active);
        }
        if named.is_empty() { Ok(None) } else { self.chosen(&named, name, want).map(Some) }
    }

    /// The newest of several images for the platform that is wanted.
    fn chosen(&self, records: &[Record], name: &str, want: &Want) -> Result<RemoteImage, ProviderError> {
        let fitting: Vec<_> = records.iter().filter(|record| record.fits(&want.platform)).collect();
        let Some(newest) = fitting.iter().max_by_key(|record| record.age()) else {
            let platforms = records.iter().filter_map(Record::platform);
            let available: BTreeSet<_> = platforms.map(|platform| printable(&platform.to_string())).collect();
            return Err(ProviderError::Platform {
                provider: self.id.clone(),
                name: printable(name),
                wanted: want.platform.to_string(),
                available: available.into_iter().collect(),
            });
        };
        if fitting.len() > 1 {
            let (chosen, others) = (&newest.id, fitting.len() - 1);
            tracing::warn!(provider = self.id, name, chosen, others, "name of several images, the newest one counts");
        }
        self.image(newest, name)
    }

    fn image(&self, record: &Record, name: &str) -> Result<RemoteImage, ProviderError> {
        let wrong = |cause| self.unusable(name, cause);
        record.checked().map_err(wrong)?;
        let promise = record.promise().map_err(wrong)?;
        if !promise.hash.alg().is_strong() && !self.allow_weak {
            return Err(ProviderError::WeakHash { provider: self.id.clone(), name: printable(name) });
        }
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let endpoint = session.map(|session| session.endpoint.clone()).or_else(|| self.endpoint.clone());
        let Some(endpoint) = endpoint else {
            return Err(ProviderError::Unsupported { provider: self.id.clone(), what: "endpoint" });
        };
        // Without the token, which may end while others are being downloaded.
        let request = Request::get(data(&endpoint, &record.id)).with_transport(self.transport.clone());
        let mut image = RemoteImage::at(&self.id, request);
        image.key = format!("{} {}", image.key, promise.hash);
        image.size = record.size();
        image.metadata = record.metadata(&self.id);
        image.promises = vec![promise];
        Ok(image)
    }

    async fn by_hash(&self, hash: &ImageHash) -> Result<Option<ImageMetadata>, ProviderError> {
        let filter = match hash.alg() {
            HashAlg::Md5 => ("checksum", hash.hex()),
            HashAlg::Sha1 | HashAlg::Sha256 | HashAlg::Sha512 => ("os_hash_value", hash.hex()),
        };
        let mut records = self.list(&[filter]).await?;
        records.retain(|record| record.has(hash));
        Ok(records.iter().max_by_key(|record| record.age()).map(|record| record.metadata(&self.id)))
    }

    async fn find_all(&self, prefix: &str, platform: Option<&Platform>) -> Result<Vec<ImageMetadata>, ProviderError> {
        if self.hidden {
            return Ok(Vec::new());
        }
        // Glance has no filter for beginnings of names.
        let mut records = self.list(&[]).await?;
        records.retain(|record| {
            let named = record.name.as_deref().is_some_and(|name| name.starts_with(prefix));
            named && !record.is_hidden() && platform.is_none_or(|wanted| record.fits(wanted))
        });
        records.sort_by(|one, other| one.name.cmp(&other.name).then_with(|| other.age().cmp(&one.age())));
        Ok(records.iter().map(|record| record.metadata(&self.id)).collect())
    }

    /// Asks for data. They have no validators, so a known one is no use; where a part was asked for that the store
    /// behind Glance cannot give, the whole comes.
    async fn open_data(&self, image: &RemoteImage, ask: &Ask) -> Result<Opened, ProviderError> {
        let super::Source::Http(request) = &image.source else {
            return Err(ProviderError::Unsupported { provider: self.id.clone(), what: "local files" });
        };
        let (url, mut ask) = (request.url(), Ask { known: None, ..ask.clone() });
        let mut session = self.session(None).await?;
        let mut renewed = false;
        loop {
            // The catalog may have changed since the image was found; a token is for its own endpoint alone.
            if url.origin() != session.endpoint.origin() {
                return Err(ProviderError::NotFound { provider: self.id.clone(), name: image.shown.clone() });
            }
            match self.client.open(&session.get(url.clone(), &self.transport), &ask).await {
                Err(FetchError::Status { status: 401, .. }) if !renewed => {
                    renewed = true;
                    session = self.session(Some(&session)).await?;
                }
                Err(FetchError::Status { status: 400, .. }) if ask.from.is_some() => ask = Ask::default(),
                opened => return Ok(opened?),
            }
        }
    }
}

impl Provider for Glance {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> Caps {
        Caps { search: true, range: true, conditional: false, signed: false, by_hash: true, platform: true }
    }

    fn schemes(&self) -> &[&str] {
        &["glance+https", "glance+http"]
    }

    fn claims(&self, url: &Url) -> bool {
        url.host_str() == Some(&self.id) || self.endpoint.as_ref().is_none_or(|endpoint| is_at(url, endpoint))
    }

    /// `glance+https://HOST/NAME`, where the host is the provider's name or that of its endpoint, and the name an id or
    /// a name, with `v2/images/` before it or without.
    fn resolve<'a>(&'a self, locator: &'a Locator, want: &'a Want) -> Answer<'a, RemoteImage> {
        async move {
            let url = locator.url();
            let missing = || ProviderError::NotFound { provider: self.id.clone(), name: locator.to_string() };
            if url.host_str() != Some(&self.id) && !is_at(url, &self.session(None).await?.endpoint) {
                return Err(missing());
            }
            self.find_image(&named(url.path()), want).await?.ok_or_else(missing)
        }
        .boxed()
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        self.find_image(name, want).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        self.open_data(image, ask).boxed()
    }

    fn metadata<'a>(&'a self, hash: &'a ImageHash) -> Answer<'a, Option<ImageMetadata>> {
        self.by_hash(hash).boxed()
    }

    fn search<'a>(&'a self, prefix: &'a str, platform: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        self.find_all(prefix, platform).boxed()
    }

    /// Forgets the token.
    fn clear_cache(&self) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The URL of an image's bytes.
fn data(endpoint: &Url, id: &str) -> Url {
    mirror::join(&record::image(endpoint, id), "file")
}

/// Whether a rule's URL means that endpoint.
fn is_at(url: &Url, endpoint: &Url) -> bool {
    url.scheme().strip_prefix("glance+") == Some(endpoint.scheme())
        && url.host_str().is_some_and(|host| Some(host) == endpoint.host_str())
        && url.port().or_else(|| default_port(endpoint.scheme())) == endpoint.port_or_known_default()
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "https" => Some(443),
        "http" => Some(80),
        _ => None,
    }
}

/// The image in the path of a rule's URL.
fn named(path: &str) -> String {
    let path = mirror::name_in(path);
    let rest = path.rsplit_once("v2/images/").map_or(path.as_str(), |(_, rest)| rest);
    rest.strip_suffix("/file").filter(|id| record::is_id(id)).unwrap_or(rest).to_owned()
}
