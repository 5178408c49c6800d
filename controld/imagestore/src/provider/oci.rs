//! Images of registries: container disks (`/disk/` in the layers of an image) and plain artifacts (one blob, a disk).
//!
//! ```text
//! reference --> index --(platform)--> manifest --> configuration --> the layer with the disk
//!                (HEAD: unchanged?)                 (platform agrees, digests of layers)
//! ```
//!
//! Resolves `oci://` and `docker://` URLs of any registry, and names whose host is one of the configured registries.
//!
//! Invariants: every document is what its digest says, from the reference or the document above down; a login goes to
//! its registry alone ([`session`]); what is downloaded is promised by the layer's digest and, for images, by the
//! digest of the uncompressed layer; an image for another platform is never given.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use hyper::StatusCode;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use serde::Deserialize;
use url::Url;

use super::{
    Caps, Covers, ImageHash, ImageMetadata, Locator, Platform, Promise, Provider, ProviderError, Registered,
    RemoteImage, Source, Want, timestamp,
};
use crate::decode::Decompressor;
use crate::name::printable;
use crate::net::{Ask, Auth, Client, Opened, Small, Transport};

mod challenge;
mod exercise;
mod layer;
mod layers;
mod login;
mod manifest;
mod reference;
mod select;
mod session;

pub use exercise::exercise;
pub use layer::{LayerError, TarError};
pub use layers::LayersError;
pub use login::{LoginError, RealmError, login};
pub use manifest::ManifestError;
use manifest::{Config, Content, Descriptor, Document, Manifest};
pub use reference::ReferenceError;
use reference::{Reference, Version};
use session::{Caller, Session, Tokens};

/// Largest manifest or index.
const MANIFEST: usize = 4 * 1024 * 1024;
/// Largest configuration.
const CONFIG: usize = 4 * 1024 * 1024;
/// Indices within each other.
const DEPTH: usize = 2;
/// Indices within one.
const INNER: usize = 16;
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

/// A login.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoginConfig {
    /// The user.
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
}

/// What was found under a reference, and by which digest it is known again.
#[derive(Debug, Clone)]
struct Known {
    digest: ImageHash,
    image: RemoteImage,
}

/// A manifest, and how it was reached.
struct Chosen {
    manifest: Box<Manifest>,
    digest: ImageHash,
    /// What the index says that it is for.
    platform: Option<Platform>,
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
        }
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
    ) -> Result<Arc<Session>, ProviderError> {
        let host = reference.host();
        let scheme = if self.config.plain_http.iter().any(|plain| plain == host) { "http" } else { "https" };
        let base = Url::parse(&format!("{scheme}://{host}/")).map_err(|cause| self.unusable(host, cause))?;
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

    /// Whether the registry has the same document under that reference: one round trip, without the document.
    async fn is_still(
        &self,
        session: &Session,
        reference: &Reference,
        digest: &ImageHash,
    ) -> Result<bool, ProviderError> {
        // Also under a digest, which nobody can change: whoever asks may be let in no more.
        let request =
            session.head(session.url("manifests", &reference.version)).with_header(ACCEPT.as_str(), manifest::ACCEPT);
        let answer = session.small(&request, 0).await?;
        Ok(answer.status == StatusCode::OK && named_digest(&answer).as_ref() == Some(digest))
    }

    /// The manifest for a platform, and the digest of what the reference itself stands for.
    async fn choose(
        &self,
        session: &Session,
        reference: &Reference,
        wanted: &Platform,
    ) -> Result<(ImageHash, Chosen), ProviderError> {
        let expected = match &reference.version {
            Version::Digest(digest) => Some(digest),
            Version::Tag(_) => None,
        };
        let shown = reference.to_string();
        let (top, document) = self.document(session, &shown, &reference.version, expected, None).await?;
        let mut platform = None;
        let mut digest = top.clone();
        let mut available = Vec::new();
        // Indices to look into, each with its depth.
        let mut indices = match document {
            Document::Manifest(manifest) => return Ok((top, Chosen { manifest, digest, platform })),
            Document::Index(index) => vec![(1, index)],
        };
        let mut fetched = 0;
        while !indices.is_empty() {
            let (depth, index) = indices.remove(0);
            index.check().map_err(|cause| self.unusable(&shown, cause))?;
            let (inner, images): (Vec<_>, Vec<_>) = index.manifests.into_iter().partition(Descriptor::is_index);
            let images: Vec<_> = images.into_iter().filter(Descriptor::is_manifest).collect();
            let offered: Vec<_> = images.iter().map(Descriptor::platform).collect();
            // Of one that does not say what it runs on, the configuration has the last word, as it has of all.
            let silent = || images.iter().position(Descriptor::is_silent);
            if let Some(at) = select::best(wanted, &offered).or_else(silent) {
                let chosen = &images[at];
                platform.clone_from(&offered[at]);
                digest = chosen.hash().map_err(|cause| self.unusable(&shown, cause))?;
                return match self.document(session, &shown, &digest, Some(&digest), Some(chosen)).await?.1 {
                    Document::Manifest(manifest) => Ok((top, Chosen { manifest, digest, platform })),
                    Document::Index(_) => Err(self.unusable(&shown, layers::LayersError::Depth)),
                };
            }
            available.extend(offered.into_iter().flatten().map(|platform| printable(&platform.to_string())));
            for descriptor in &inner {
                fetched += 1;
                if depth >= DEPTH || fetched > INNER {
                    return Err(self.unusable(&shown, layers::LayersError::Depth));
                }
                let digest = descriptor.hash().map_err(|cause| self.unusable(&shown, cause))?;
                match self.document(session, &shown, &digest, Some(&digest), Some(descriptor)).await?.1 {
                    Document::Index(index) => indices.push((depth + 1, index)),
                    Document::Manifest(_) => return Err(self.unusable(&shown, layers::LayersError::Depth)),
                }
            }
        }
        Err(self.other_platform(&shown, wanted, available))
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

    /// An index or manifest, verified against the digest and the descriptor that led to it.
    async fn document(
        &self,
        session: &Session,
        shown: &str,
        version: &(dyn std::fmt::Display + Sync),
        expected: Option<&ImageHash>,
        descriptor: Option<&Descriptor>,
    ) -> Result<(ImageHash, Document), ProviderError> {
        let request = session.get(session.url("manifests", version)).with_header(ACCEPT.as_str(), manifest::ACCEPT);
        let answer = session.small(&request, MANIFEST).await?;
        self.check_status(&answer, shown)?;
        let unusable = |cause| self.unusable(shown, cause);
        if let Some(descriptor) = descriptor {
            check_size(descriptor, &answer.body).map_err(unusable)?;
        }
        let digest = manifest::check_digest(&answer.body, expected).map_err(unusable)?;
        if let Some(named) = named_digest(&answer)
            && named.alg() == digest.alg()
            && named != digest
        {
            return Err(unusable(ManifestError::Digest { expected: named, actual: digest }));
        }
        let content_type = answer.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let document = manifest::document(&answer.body, content_type).map_err(unusable)?;
        Ok((digest, document))
    }

    fn check_status(&self, answer: &Small, shown: &str) -> Result<(), ProviderError> {
        match answer.status {
            StatusCode::OK => Ok(()),
            StatusCode::NOT_FOUND => Err(ProviderError::NotFound { provider: self.id.clone(), name: shown.to_owned() }),
            _ => Err(answer.refusal().into()),
        }
    }

    /// A blob that is small enough to be looked into here.
    async fn blob(
        &self,
        session: &Session,
        shown: &str,
        descriptor: &Descriptor,
        limit: usize,
    ) -> Result<Bytes, ProviderError> {
        let unusable = |cause| self.unusable(shown, cause);
        let digest = descriptor.hash().map_err(unusable)?;
        let answer = session.small(&session.get(session.url("blobs", &digest)), limit).await?;
        self.check_status(&answer, shown)?;
        check_size(descriptor, &answer.body).map_err(unusable)?;
        manifest::check_digest(&answer.body, Some(&digest)).map_err(unusable)?;
        Ok(answer.body)
    }

    /// What is to be downloaded of an image, and all that is known of it.
    async fn describe(
        &self,
        session: &Session,
        reference: &Reference,
        top: &ImageHash,
        chosen: Chosen,
        want: &Want,
    ) -> Result<RemoteImage, ProviderError> {
        let Chosen { manifest, digest, platform } = chosen;
        let shown = reference.to_string();
        let content = manifest.content().map_err(|cause| self.unusable(&shown, cause))?;
        let config = if manifest.has_config() {
            let bytes = self.blob(session, &shown, &manifest.config, CONFIG).await?;
            let config = manifest::config(&bytes).map_err(|cause| self.unusable(&shown, cause))?;
            // Without an index, this alone says what the image is for; with one, both must.
            if !want.platform.accepts(&config.platform()) {
                let available = vec![printable(&config.platform().to_string())];
                return Err(self.other_platform(&shown, &want.platform, available));
            }
            Some(config)
        } else {
            None
        };
        let (at, unpack) = match content {
            Content::Disk => (0, None),
            Content::Layers => {
                let (at, layer) = self.find_disk(session, &shown, &manifest).await?;
                (at, Some(layer))
            }
        };
        let layer = &manifest.layers[at];
        let hash = layer.hash().map_err(|cause| self.unusable(&shown, cause))?;
        let mut promises = vec![Promise { hash: hash.clone(), covers: Covers::Hosted }];
        if let (Content::Layers, Some(config)) = (content, &config) {
            let ids = config.diff_ids(manifest.layers.len()).map_err(|cause| self.unusable(&shown, cause))?;
            promises.extend(ids.into_iter().nth(at).map(|hash| Promise { hash, covers: Covers::Unpacked }));
        }
        let request = session.get(session.url("blobs", &hash));
        let mut image = RemoteImage::at(&self.id, request);
        // Who asks does not change the bytes, but must have been let in; the session knows how.
        image.key = format!("{hash} {}", session.key());
        image.shown = shown;
        image.size = Some(layer.size);
        image.promises.clone_from(&promises);
        image.unpack = unpack.map(|layer| Arc::new(layer) as Arc<dyn super::Unpack>);
        image.registered = Some(registered(config.as_ref(), top, &digest));
        image.metadata = ImageMetadata {
            name: format!("{}/{}", reference.registry, reference.repository),
            aliases: vec![reference.version.to_string()],
            provider: self.id.clone(),
            promises,
            artifact_size: Some(layer.size),
            platform: config.as_ref().map(Config::platform).or(platform).unwrap_or_else(|| want.platform.clone()),
            created: config.as_ref().and_then(|config| timestamp::of_internet(config.created.as_deref()?)),
            extra: extra(&manifest, config.as_ref()),
            ..ImageMetadata::default()
        };
        Ok(image)
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

/// The digest that a server names for a document. Not to be believed, but to be compared with.
fn named_digest(answer: &Small) -> Option<ImageHash> {
    reference::strong(answer.headers.get("docker-content-digest")?.to_str().ok()?)
}

fn check_size(descriptor: &Descriptor, body: &Bytes) -> Result<(), ManifestError> {
    let actual = body.len() as u64;
    if descriptor.size == actual { Ok(()) } else { Err(ManifestError::Size { expected: descriptor.size, actual }) }
}

/// By what the registry knows an image: the index if there is one, and the manifest.
fn registered(config: Option<&Config>, top: &ImageHash, manifest: &ImageHash) -> Registered {
    let mut digests = vec![top.clone(), manifest.clone()];
    digests.dedup();
    let run = config.and_then(|config| config.config.clone()).unwrap_or_default();
    Registered { digests, user: run.user.filter(|user| !user.is_empty()), labels: run.labels.unwrap_or_default() }
}

/// Facts that have no field of their own.
fn extra(manifest: &Manifest, config: Option<&Config>) -> BTreeMap<String, String> {
    let annotations = manifest.annotations.iter().map(|(name, value)| (format!("annotation.{name}"), value.clone()));
    let mut extra: BTreeMap<_, _> = annotations.collect();
    let Some(run) = config.and_then(|config| config.config.clone()) else { return extra };
    for variable in run.env.unwrap_or_default() {
        if let Some((name, value)) = variable.split_once('=') {
            extra.insert(format!("env.{name}"), value.to_owned());
        }
    }
    extra
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

    fn resolve<'a>(
        &'a self,
        locator: &'a Locator,
        want: &'a Want,
    ) -> BoxFuture<'a, Result<RemoteImage, ProviderError>> {
        async move {
            let url = locator.url();
            let reference =
                Reference::of_url(url, want.version.as_ref()).map_err(|cause| self.unusable("the URL", cause))?;
            // What a rule says of a login wins over what the caller brought along.
            let login = crate::net::login_of(url).or_else(|| want.auth_for(reference.host()));
            let session = self.session(&reference, locator.transport(), login)?;
            self.image(&session, &reference, want).await
        }
        .boxed()
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> BoxFuture<'a, Result<Option<RemoteImage>, ProviderError>> {
        async move {
            let Ok(reference) = Reference::parse(name, want.version.as_ref()) else { return Ok(None) };
            if !self.config.registries.contains(&reference.registry) {
                return Ok(None);
            }
            let session = self.session(&reference, &self.transport, want.auth_for(reference.host()))?;
            match self.image(&session, &reference, want).await {
                Err(ProviderError::NotFound { .. }) => Ok(None),
                found => found.map(Some),
            }
        }
        .boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> BoxFuture<'a, Result<Opened, ProviderError>> {
        self.open_image(image, ask).boxed()
    }

    fn clear_cache(&self) {
        self.tokens.clear();
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
