//! virt-builder's sources: a signed index beside the images it names.
//!
//! ```text
//! index.asc --(conditional GET)--> verified text --> sections --(name, architecture)--> file, checksum
//! ```
//!
//! Every look-up asks for the index again, with what the last answer can be recognised by: one round trip if nothing
//! changed. A name is a section's own or one of its aliases; of several sections with an alias the highest revision
//! counts, and then the first one.
//!
//! Invariants: with keys configured nothing is read but what they signed; an image of a signed index never goes back to
//! a lower revision than was seen ([`Memory`]); every file is below the index's directory, on its server, also after
//! redirects; no file of a signed index without a strong checksum, unless weak ones are allowed.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use common::Reason;
use futures_util::FutureExt as _;
use serde::Deserialize;
use url::Url;
use vmimage::convert::ForeignFormat;
use vmimage::declared::Declared;
use vmimage::error::printable;

use super::memory::Memory;
use super::mirror::{self, Fetched};
use super::signature::{self, KeyRing, SignatureError};
use super::{
    Answer, Caps, Covers, Dropped, ImageHash, ImageMetadata, Platform, Promise, Provider, ProviderError, RemoteImage,
    Revision, SourceUrl, Want,
};
use crate::sources::net::{Ask, Client, Opened, Request, Transport, Validators, redacted};

#[cfg(any(test, feature = "exercise"))]
mod exercise;
mod index;
mod repos;

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
pub use index::{Entry, Index, Skipped, parse as parse_index};
pub use repos::ReposError;
pub(crate) use repos::{Format as RepoFormat, Proxy as RepoProxy, Repo, read as read_repos};

/// Largest index.
const INDEX: usize = 16 * 1024 * 1024;
/// What errors call it.
const WHAT: &str = "the index";

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VirtBuilderConfig {
    /// The index.
    pub uri: SourceUrl,
    /// File of OpenPGP public keys, one of which must have signed.
    #[serde(default)]
    pub keyring: Option<PathBuf>,
    /// Fingerprint of the one key of the file that counts.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Takes what nobody signed. Needed if there is no `keyring`.
    #[serde(default)]
    pub insecure: bool,
    /// Takes files that have no checksum but MD5 or SHA-1, or none at all.
    #[serde(default)]
    pub allow_weak_hashes: bool,
    /// Takes an index with CR LF, with a byte order mark, or without the end of its last line.
    #[serde(default)]
    pub lenient: bool,
    /// Only warns of revisions lower than were seen.
    #[serde(default)]
    pub allow_rollback: bool,
}

impl VirtBuilderConfig {
    /// An index that must be signed by a key of that file.
    pub(crate) fn signed(uri: SourceUrl, keyring: PathBuf) -> Self {
        Self {
            uri,
            keyring: Some(keyring),
            fingerprint: None,
            insecure: false,
            allow_weak_hashes: false,
            lenient: false,
            allow_rollback: false,
        }
    }
}

/// The provider.
#[derive(Debug)]
pub struct VirtBuilder {
    id: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    config: VirtBuilderConfig,
    keys: Option<KeyRing>,
    memory: Memory,
    last: Mutex<Option<Arc<Known>>>,
}

/// An index that was fetched and verified.
#[derive(Debug)]
struct Known {
    index: Index,
    validators: Validators,
    signer: Option<String>,
}

impl VirtBuilder {
    /// A provider of the index that `config` names, which remembers revisions in the file `memory`.
    ///
    /// # Errors
    /// When the settings contradict each other, or the keys cannot be read.
    pub fn new(
        id: &str,
        config: VirtBuilderConfig,
        client: Arc<Client>,
        transport: Arc<Transport>,
        memory: Option<PathBuf>,
    ) -> Result<Self, ProviderError> {
        let wrong = |cause: &'static str| ProviderError::Config { provider: id.to_owned(), cause: cause.into() };
        let (keyring, fingerprint) = (config.keyring.as_deref(), config.fingerprint.as_deref());
        let keys = signature::keys_of(id, keyring, fingerprint, config.insecure)?;
        if keys.is_none() && config.fingerprint.is_some() {
            return Err(wrong("a `fingerprint` needs a `keyring` with its key"));
        }
        if !matches!(config.uri.scheme(), "http" | "https") {
            return Err(wrong("`uri` must be an http or https URL"));
        }
        let memory = Memory::new(memory);
        Ok(Self { id: id.to_owned(), client, transport, config, keys, memory, last: Mutex::default() })
    }

    /// The index as it is just now.
    async fn load(&self) -> Result<Arc<Known>, ProviderError> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let request = Request::get(Url::clone(&self.config.uri)).with_transport(self.transport.clone());
        let validators = last.as_ref().map(|last| &last.validators);
        let (bytes, validators) = match (mirror::fetch(&self.client, &request, INDEX, validators).await?, last) {
            (Fetched::Unchanged, Some(last)) => return Ok(last),
            (Fetched::Document { bytes, validators }, _) => (bytes, validators),
            (Fetched::Missing | Fetched::Unchanged, _) => {
                let url = redacted(&self.config.uri);
                return Err(ProviderError::Absent { provider: self.id.clone(), what: WHAT, url });
            }
        };
        let (index, signer) = self.read(&bytes)?;
        for Skipped { name, cause, .. } in &index.skipped {
            tracing::warn!(provider = self.id, image = printable(name), %cause, "entry of the index passed over");
        }
        if signer.is_some() {
            self.check_revisions(&index)?;
        }
        let known = Arc::new(Known { index, validators, signer });
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(known.clone());
        Ok(known)
    }

    /// What may be read of the index's bytes, and who signed it.
    fn read(&self, bytes: &[u8]) -> Result<(Index, Option<String>), ProviderError> {
        let Some(keys) = &self.keys else {
            if signature::looks_signed(bytes) {
                return Err(self.unusable(Reason::new(
                    "it is signed; name a `keyring`, or the `uri` of the index without a signature",
                )));
            }
            let index = index::parse(bytes, self.config.lenient).map_err(|cause| self.unusable(cause))?;
            return Ok((index, None));
        };
        let verified = signature::verify_clearsigned(bytes, keys).map_err(|cause: SignatureError| {
            ProviderError::Signature { provider: self.id.clone(), what: WHAT.into(), cause: Box::new(cause) }
        })?;
        let index =
            index::parse(verified.text.as_bytes(), self.config.lenient).map_err(|cause| self.unusable(cause))?;
        Ok((index, Some(verified.fingerprint)))
    }

    fn check_revisions(&self, index: &Index) -> Result<(), ProviderError> {
        let revisions = index.entries.iter().map(|entry| {
            (format!("{} {} {}", self.config.uri.as_str(), entry.name, entry.arch.uname_arch()), entry.revision)
        });
        let revisions: Vec<_> = revisions.collect();
        match self.memory.note_all(&revisions) {
            Ok(None) => Ok(()),
            Ok(Some((at, seen))) => {
                let entry = &index.entries[at];
                let (name, found) = (printable(&entry.name), entry.revision);
                if self.config.allow_rollback {
                    tracing::warn!(provider = self.id, image = name, found, seen, "index went back to an older image");
                    return Ok(());
                }
                Err(self.unusable(Reason::new(format!(
                    "revision {found} of `{name}`, though {seen} was seen before; if it was withdrawn, run \
                     `virtletctl image providers forget`"
                ))))
            }
            Err(cause) => Err(self.unusable(Reason::new("revisions of earlier indices cannot be kept").with(cause))),
        }
    }

    fn unusable(&self, cause: impl std::error::Error + Send + Sync + 'static) -> ProviderError {
        ProviderError::Metadata { provider: self.id.clone(), what: WHAT.into(), cause: Box::new(cause) }
    }

    async fn find_image(&self, name: &str, want: &Want) -> Result<Option<RemoteImage>, ProviderError> {
        // A name of the index has no tag.
        let name = name.split(':').next().unwrap_or(name);
        let known = self.load().await?;
        let named: Vec<_> = known.index.entries.iter().filter(|entry| entry.is_called(name)).collect();
        let fitting = named.iter().filter(|entry| want.platform.accepts(&entry.arch));
        // The last of equals is taken, and the first one is wanted.
        let chosen = fitting.rev().max_by_key(|entry| (entry.name == name, entry.revision));
        // A broken entry has the name all the same, and nobody knows for which platform: neither an alias of another
        // image nor another source may answer in its place.
        let is_own = chosen.is_some_and(|entry| entry.name == name);
        let mut broken = known.index.skipped.iter();
        let broken =
            broken.find(|skipped| skipped.name == name && !is_own || chosen.is_none() && skipped.is_called(name));
        if let Some(Skipped { cause, .. }) = broken {
            let what = format!("entry `{}` of the index", printable(name));
            return Err(ProviderError::Metadata { provider: self.id.clone(), what, cause: Box::new(cause.clone()) });
        }
        match chosen {
            Some(entry) => self.image(entry, &known).map(Some),
            None if named.is_empty() => Ok(None),
            None => {
                let mut available: Vec<_> = named.iter().map(|entry| printable(&entry.arch.to_string())).collect();
                available.sort();
                available.dedup();
                Err(ProviderError::Platform {
                    provider: self.id.clone(),
                    name: printable(name),
                    wanted: want.platform.to_string(),
                    available,
                })
            }
        }
    }

    fn image(&self, entry: &Entry, known: &Known) -> Result<RemoteImage, ProviderError> {
        let strongest = entry.checksums.first();
        let unreliable = match strongest {
            Some(hash) => !hash.alg().is_strong(),
            // What nobody signed may also be what nobody hashed.
            None => known.signer.is_some(),
        };
        if unreliable && !self.config.allow_weak_hashes {
            return Err(ProviderError::WeakHash { provider: self.id.clone(), name: printable(&entry.name) });
        }
        let mut directory = Url::clone(&self.config.uri);
        if let Ok(mut segments) = directory.path_segments_mut() {
            segments.pop();
        }
        let request = Request::get(mirror::join(&directory, &entry.file)).with_transport(self.transport.clone());
        let mut image = RemoteImage::at(&self.id, request.below(Url::clone(&self.config.uri)));
        image.key =
            format!("{} {} {}", image.key, entry.revision, strongest.map(ToString::to_string).unwrap_or_default());
        image.size = entry.compressed_size;
        image.promises =
            strongest.map(|hash| Promise { hash: hash.clone(), covers: Covers::Hosted }).into_iter().collect();
        image.metadata = self.metadata_of(entry, known);
        Ok(image)
    }

    fn metadata_of(&self, entry: &Entry, known: &Known) -> ImageMetadata {
        let promise = |hash: &ImageHash| Promise { hash: hash.clone(), covers: Covers::Hosted };
        let mut extra = std::collections::BTreeMap::new();
        extra.extend(entry.title.clone().map(|title| ("title".to_owned(), title)));
        // Also one that we have no name for.
        extra.extend(entry.format.clone().map(|format| ("format".to_owned(), format)));
        ImageMetadata {
            name: entry.name.clone(),
            aliases: entry.aliases.clone(),
            provider: self.id.clone(),
            promises: entry.checksums.iter().map(promise).collect(),
            format: entry.format.as_deref().and_then(declared),
            artifact_size: entry.compressed_size,
            virtual_size: Some(entry.size),
            platform: entry.arch.clone(),
            osinfo: entry.osinfo.clone(),
            revision: Some(Revision::Number(entry.revision)),
            root_partition: entry.expand.clone(),
            lvexpand: entry.lvexpand.clone(),
            notes: entry.notes.clone(),
            hidden: entry.hidden,
            signed_by: known.signer.clone(),
            extra,
            ..ImageMetadata::default()
        }
    }
}

/// The format of that name, which is QEMU's.
fn declared(name: &str) -> Option<Declared> {
    match name {
        "vpc" => Some(Declared::Foreign(ForeignFormat::Vhd)),
        name => Declared::named(name),
    }
}

impl Provider for VirtBuilder {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> Caps {
        let signed = self.keys.is_some();
        Caps { search: true, range: true, conditional: true, signed, by_hash: true, platform: true }
    }

    fn schemes(&self) -> &[&str] {
        &["virt-builder"]
    }

    fn claims(&self, url: &Url) -> bool {
        // `virt-builder:name` asks the first of these providers, `virt-builder://id/name` that one.
        url.host_str().is_none_or(|id| id.is_empty() || id == self.id)
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        self.find_image(name, want).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        image.open_by(&self.id, &self.client, ask)
    }

    fn metadata<'a>(&'a self, hash: &'a ImageHash) -> Answer<'a, Option<ImageMetadata>> {
        async move {
            let known = self.load().await?;
            let found = known.index.entries.iter().find(|entry| entry.checksums.contains(hash));
            Ok(found.map(|entry| self.metadata_of(entry, &known)))
        }
        .boxed()
    }

    fn search<'a>(&'a self, prefix: &'a str, platform: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        async move {
            let known = self.load().await?;
            let begins = |name: &String| name.starts_with(prefix);
            let found = known.index.entries.iter().filter(|entry| {
                (begins(&entry.name) || entry.aliases.iter().any(begins))
                    && platform.is_none_or(|platform| platform.accepts(&entry.arch))
            });
            Ok(found.map(|entry| self.metadata_of(entry, &known)).collect())
        }
        .boxed()
    }

    fn dropped(&self) -> Vec<Dropped> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let skipped = last.iter().flat_map(|known| &known.index.skipped);
        skipped.map(|Skipped { name, cause, .. }| Dropped::new(name, cause)).collect()
    }

    fn clear_cache(&self) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn forget(&self) -> Result<(), std::io::Error> {
        self.clear_cache();
        self.memory.forget()
    }
}
