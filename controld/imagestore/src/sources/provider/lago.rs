//! A Lago repository: a document of templates and their versions, and files beside each disk.
//!
//! ```text
//! repo.metadata --> template, version, source, handle --> HANDLE.metadata, HANDLE.hash --> HANDLE.xz, else HANDLE
//! ```
//!
//! The hashes are of the disk once it is decompressed, and SHA-1 alone unless there is a `.metadata` with SHA-512; so
//! most repositories need `allow_weak_hashes`. Nothing here is signed.
//!
//! Invariants: a handle stays below its source; a source in a directory of this machine is below one of the directories
//! that local images may come from, whoever wrote the document; what came encrypted leads to nothing in the clear.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use common::Reason;
use futures_util::FutureExt as _;
use futures_util::future::ready;
use serde::Deserialize;
use url::Url;
use vmimage::error::{ErrorKind, printable};

use super::mirror::{self, Fetched};
use super::{
    Answer, Caps, Dropped, ImageMetadata, LocalFiles, Locator, Platform, Provider, ProviderError, RemoteImage,
    Revision, Source, SourceUrl, Want,
};
use crate::sources::net::{Ask, Client, FetchError, Opened, Request, Transport, Validators};

#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod repo;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
use repo::{Image, Metadata, Place, Repo};

/// Largest `repo.metadata`.
const REPO: usize = 16 << 20;
/// Largest file beside a disk.
const BESIDE: usize = 1 << 20;

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LagoConfig {
    /// The repository's `repo.metadata`: an http, https or file URL.
    pub uri: SourceUrl,
    /// Takes disks that have no hash but SHA-1.
    #[serde(default)]
    pub allow_weak_hashes: bool,
}

/// The provider.
#[derive(Debug)]
pub struct Lago {
    id: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    /// Opens local files, where that is allowed.
    local: Arc<LocalFiles>,
    uri: SourceUrl,
    allow_weak: bool,
    repo: Mutex<Option<Arc<Kept>>>,
}

/// The document that was read last.
#[derive(Debug)]
struct Kept {
    validators: Validators,
    repo: Repo,
}

/// Where a file is.
#[derive(Debug, Clone)]
enum At {
    Url(Url),
    Path(PathBuf),
}

impl At {
    fn shown(&self) -> String {
        match self {
            Self::Url(url) => crate::sources::net::redacted(url),
            Self::Path(path) => path.display().to_string(),
        }
    }
}

impl Lago {
    /// A provider of the repository that `config` names. Files of this machine come through `local`.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub fn new(
        id: &str,
        config: &LagoConfig,
        client: Arc<Client>,
        transport: Arc<Transport>,
        local: Arc<LocalFiles>,
    ) -> Result<Self, ProviderError> {
        if !matches!(config.uri.scheme(), "http" | "https" | "file") {
            let cause = "`uri` must be an http, https or file URL".into();
            return Err(ProviderError::Config { provider: id.to_owned(), cause });
        }
        Ok(Self {
            id: id.to_owned(),
            client,
            transport,
            local,
            uri: config.uri.clone(),
            allow_weak: config.allow_weak_hashes,
            repo: Mutex::default(),
        })
    }

    fn unusable(&self, what: &str, cause: Reason) -> ProviderError {
        ProviderError::Metadata { provider: self.id.clone(), what: printable(what), cause: Box::new(cause) }
    }

    fn request(&self, url: &Url) -> Request {
        Request::get(self.uri.lend_login(url.clone())).with_transport(self.transport.clone())
    }

    async fn fetch(&self, at: &At, limit: usize, known: Option<&Validators>) -> Result<Fetched, ProviderError> {
        match at {
            At::Url(url) => Ok(mirror::fetch(&self.client, &self.request(url), limit, known).await?),
            At::Path(path) => match self.read(path, limit).await {
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Fetched::Missing),
                read => read,
            },
        }
    }

    async fn load(&self) -> Result<Arc<Kept>, ProviderError> {
        let known = self.repo.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let at = match self.uri.to_file_path() {
            Ok(path) if self.uri.scheme() == "file" => At::Path(path),
            _ => At::Url(Url::clone(&self.uri)),
        };
        let validators = known.as_ref().map(|known| &known.validators).filter(|known| !known.is_empty());
        let kept = match (self.fetch(&at, REPO, validators).await?, known) {
            (Fetched::Unchanged, Some(known)) => return Ok(known),
            (Fetched::Document { bytes, validators }, _) => {
                let repo = Repo::parse(&bytes).map_err(|cause| self.unusable("repo.metadata", cause))?;
                Arc::new(Kept { validators, repo })
            }
            (Fetched::Missing | Fetched::Unchanged, _) => {
                return Err(ProviderError::Absent {
                    provider: self.id.clone(),
                    what: "repo.metadata",
                    url: at.shown(),
                });
            }
        };
        *self.repo.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept.clone());
        Ok(kept)
    }

    /// Where a file of an image's source is.
    fn place(&self, image: &Image, file: &str) -> Result<At, Reason> {
        match &image.place {
            Place::Dir(root) => Ok(At::Path(Path::new(root).join(file))),
            Place::Url(base) => match Url::parse(base) {
                Ok(base) if base.scheme() == "http" && self.uri.scheme() == "https" => {
                    let base = crate::sources::net::redacted(&base);
                    Err(Reason::new(format!("`{base}` is plain http, though the repository is https")))
                }
                Ok(base) if matches!(base.scheme(), "http" | "https") => Ok(At::Url(mirror::join(&base, file))),
                _ => Err(Reason::new(format!("`{}` is no http or https URL", printable(base)))),
            },
        }
    }

    /// The first of some files that is there.
    async fn beside(&self, image: &Image, suffix: &str) -> Result<Option<Bytes>, ProviderError> {
        for file in image.beside(suffix) {
            let at = self.place(image, &file).map_err(|cause| self.unusable("repo.metadata", cause))?;
            if let Fetched::Document { bytes, .. } = self.fetch(&at, BESIDE, None).await? {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    async fn find_image(&self, name: &str, want: &Want) -> Result<Option<RemoteImage>, ProviderError> {
        let kept = self.load().await?;
        let found = kept.repo.find(name).map_err(|cause| self.unusable("repo.metadata", cause))?;
        let Some(found) = found else { return Ok(None) };
        let wrong = |cause| self.unusable(&found.handle, cause);
        let said = match self.beside(&found, ".metadata").await? {
            Some(bytes) => Metadata::parse(&bytes).map_err(wrong)?,
            None => Metadata::default(),
        };
        let hash = self.beside(&found, ".hash").await?;
        // What is no text is no hash either, and refused as such.
        let hash = hash.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let promises = said.promises(hash.as_deref()).map_err(wrong)?;
        if !self.allow_weak && !promises.iter().any(|promise| promise.hash.alg().is_strong()) {
            return Err(ProviderError::WeakHash { provider: self.id.clone(), name: printable(name) });
        }
        if let Some(offered) = said.platform().filter(|offered| !want.platform.accepts(offered)) {
            return Err(ProviderError::Platform {
                provider: self.id.clone(),
                name: printable(name),
                wanted: want.platform.to_string(),
                available: vec![printable(&offered.to_string())],
            });
        }
        let mut image = match self.place(&found, &found.handle).map_err(wrong)? {
            At::Url(url) => RemoteImage::at(&self.id, self.request(&url)),
            At::Path(path) => RemoteImage::in_file(&self.id, path),
        };
        let strongest = promises.first().map(|promise| promise.hash.to_string()).unwrap_or_default();
        image.key = format!("{} {strongest}", image.key);
        image.metadata = self.metadata_of(&kept.repo.name, &found);
        said.tell(&mut image.metadata);
        image.metadata.promises.clone_from(&promises);
        image.promises = promises;
        Ok(Some(image))
    }

    fn metadata_of(&self, repo: &str, image: &Image) -> ImageMetadata {
        ImageMetadata {
            name: image.template.clone(),
            aliases: vec![image.name(), format!("{repo}:{}", image.name())],
            provider: self.id.clone(),
            revision: Some(Revision::Serial(image.version.clone())),
            created: image.created(),
            ..ImageMetadata::default()
        }
    }

    async fn list(&self, prefix: &str) -> Result<Vec<ImageMetadata>, ProviderError> {
        let kept = self.load().await?;
        let found = kept.repo.search(prefix).filter_map(|image| match image {
            Ok(image) => Some(self.metadata_of(&kept.repo.name, &image)),
            Err(error) => {
                tracing::debug!(provider = self.id, %error, "image left out of a search");
                None
            }
        });
        Ok(found.collect())
    }

    async fn open_disk(&self, image: &RemoteImage, ask: &Ask) -> Result<Opened, ProviderError> {
        let compressed = match &image.source {
            Source::Http(request) if !request.url().path().ends_with(".xz") => {
                let mut url = request.url().clone();
                url.set_path(&format!("{}.xz", url.path()));
                Some(At::Url(url))
            }
            Source::File(path) if path.extension().is_none_or(|end| end != "xz") => {
                let mut path = path.clone().into_os_string();
                path.push(".xz");
                Some(At::Path(path.into()))
            }
            Source::Http(_) | Source::File(_) => None,
        };
        if let Some(at) = compressed {
            match self.open_at(&at, ask).await {
                // Some servers forbid what is not there.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Denied) => {}
                opened => return opened,
            }
        }
        match &image.source {
            Source::Http(request) => self.open_at(&At::Url(request.url().clone()), ask).await,
            Source::File(path) => self.open_at(&At::Path(path.clone()), ask).await,
        }
    }

    async fn open_at(&self, at: &At, ask: &Ask) -> Result<Opened, ProviderError> {
        match at {
            At::Url(url) => Ok(self.client.open(&self.request(url), ask).await?),
            At::Path(path) => self.local.open_path(path, ask).await,
        }
    }

    /// A small file of this machine.
    async fn read(&self, path: &Path, limit: usize) -> Result<Fetched, ProviderError> {
        let Opened::Artifact(mut file) = self.local.open_path(path, &Ask::default()).await? else {
            return Ok(Fetched::Unchanged);
        };
        if file.length.is_none_or(|length| length > limit as u64) {
            return Err(FetchError::TooLarge { url: path.display().to_string(), limit }.into());
        }
        let mut bytes = Vec::new();
        let mut room = vec![0; 64 << 10];
        loop {
            match file.body.read(&mut room).await? {
                0 => return Ok(Fetched::Document { bytes: bytes.into(), validators: Validators::default() }),
                count => bytes.extend_from_slice(&room[..count]),
            }
        }
    }
}

impl Provider for Lago {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> Caps {
        // By hash would take a look beside every disk.
        Caps { search: true, range: true, conditional: true, signed: false, by_hash: false, platform: false }
    }

    fn resolve<'a>(&'a self, locator: &'a Locator, _want: &'a Want) -> Answer<'a, RemoteImage> {
        ready(Err(ProviderError::Scheme { scheme: locator.url().scheme().to_owned() })).boxed()
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        self.find_image(name, want).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        self.open_disk(image, ask).boxed()
    }

    /// The document does not say what its images run on, so the platform does not matter.
    fn search<'a>(&'a self, prefix: &'a str, _platform: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        self.list(prefix).boxed()
    }

    fn dropped(&self) -> Vec<Dropped> {
        let kept = self.repo.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = kept.iter().flat_map(|kept| kept.repo.named());
        all.filter_map(|(name, image)| Some(Dropped::new(name, &image.err()?))).collect()
    }

    fn clear_cache(&self) {
        *self.repo.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
