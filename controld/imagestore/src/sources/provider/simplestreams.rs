//! Simple Streams: a mirror whose signed index names files of products, and these name disks and their hashes.
//!
//! ```text
//! index.sjson / index.json + .gpg --> files of products (same way) --> versions --> items: path, size, hashes
//! ```
//!
//! Every look-up asks for the documents again, with what the last answer can be recognised by: one round trip each if
//! nothing changed. A name is a product's id, alias, release or version, and means the newest version of it; a public
//! name means just one version.
//!
//! Invariants: with keys configured nothing is read but what they signed, in the form that the signature covers; a
//! signed index never goes back in time; every path is below the root of the mirror; no disk without a strong hash,
//! unless weak ones are allowed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use common::Reason;
use futures_util::FutureExt as _;
use serde::Deserialize;
use url::Url;
use vmimage::declared::Declared;
use vmimage::error::printable;

use super::memory::{Memory, Recalled};
use super::mirror::{self, Fetched};
use super::signature::{KeyRing, SignatureError, Verified, keys_of, verify_clearsigned, verify_detached};
use super::{
    Answer, Caps, Covers, Dropped, ImageHash, ImageMetadata, Platform, Promise, Provider, ProviderError, RemoteImage,
    Revision, SourceUrl, Want, timestamp,
};
use crate::sources::net::{self, Ask, Client, Opened, Request, Transport, Validators};

#[cfg(any(test, feature = "exercise"))]
mod exercise;
#[cfg(test)]
mod tests;
mod tree;

#[cfg(any(test, feature = "exercise"))]
pub use exercise::exercise;
use tree::{Dated, Disk, Index, Item, Products};

/// Largest document.
const DOCUMENT: usize = 16 << 20;
/// Largest detached signature.
const SIGNATURE: usize = 64 << 10;
/// Where a mirror has its indices.
const STREAMS: &str = "streams/v1/";
/// Kinds of items that are disks, the preferred one first.
const KINDS: [&str; 8] =
    ["disk.img", "disk1.img", "disk-kvm.img", "uefi1.img", "qcow2", "disk.qcow2", "raw.xz", "raw.zst"];

/// Why a signed document is refused that cannot be told from an older one.
const UNDATED: &str = "no date `updated` of the form `Tue, 08 Mar 2016 01:02:03 +0000`";

/// Settings.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SimplestreamsConfig {
    /// Root of the mirror, or an index below its `streams/v1/`.
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
    /// Takes disks that have no hash but MD5.
    #[serde(default)]
    pub allow_weak_hashes: bool,
    /// Kinds (`ftype`) of items that are disks, the preferred one first.
    #[serde(default = "default_kinds")]
    pub ftypes: Vec<String>,
}

fn default_kinds() -> Vec<String> {
    KINDS.map(str::to_owned).into()
}

impl SimplestreamsConfig {
    /// A mirror whose documents must be signed by a key of that file.
    pub(crate) fn signed(uri: SourceUrl, keyring: PathBuf) -> Self {
        Self {
            uri,
            keyring: Some(keyring),
            fingerprint: None,
            insecure: false,
            allow_weak_hashes: false,
            ftypes: default_kinds(),
        }
    }
}

/// The provider.
#[derive(Debug)]
pub struct Simplestreams {
    id: String,
    client: Arc<Client>,
    transport: Arc<Transport>,
    root: Url,
    /// Paths where the index may be, the first to try in front.
    indices: Vec<String>,
    keys: Option<KeyRing>,
    kinds: Vec<String>,
    allow_weak: bool,
    memory: Memory,
    /// Documents by their path.
    index: Cache<Index>,
    files: Cache<Products>,
}

type Cache<T> = Mutex<BTreeMap<String, Arc<Document<T>>>>;

/// A document that was fetched and verified.
#[derive(Debug)]
struct Document<T> {
    content: T,
    validators: Validators,
    signer: Option<String>,
}

/// A disk among the documents.
struct Found {
    item: Item,
    signer: Option<String>,
}

impl Simplestreams {
    /// A provider of the mirror that `config` names, which remembers the dates of its documents in `memory`.
    ///
    /// # Errors
    /// When the settings contradict each other, or the keys cannot be read.
    pub fn new(
        id: &str,
        config: &SimplestreamsConfig,
        client: Arc<Client>,
        transport: Arc<Transport>,
        memory: Option<PathBuf>,
    ) -> Result<Self, ProviderError> {
        let wrong = |cause: &'static str| ProviderError::Config { provider: id.to_owned(), cause: cause.into() };
        let keys = keys_of(id, config.keyring.as_deref(), config.fingerprint.as_deref(), config.insecure)?;
        if !matches!(config.uri.scheme(), "http" | "https") {
            return Err(wrong("`uri` must be an http or https URL"));
        }
        let (root, index) = split(&config.uri);
        let indices = match (index, &keys) {
            (Some(index), None) if index.ends_with(".sjson") => {
                return Err(wrong("a signed index needs a `keyring`"));
            }
            (Some(index), _) => vec![index],
            (None, Some(_)) => vec![format!("{STREAMS}index.sjson"), format!("{STREAMS}index.json")],
            (None, None) => vec![format!("{STREAMS}index.json")],
        };
        Ok(Self {
            id: id.to_owned(),
            client,
            transport,
            root,
            indices,
            keys,
            kinds: config.ftypes.clone(),
            allow_weak: config.allow_weak_hashes,
            memory: Memory::new(memory),
            index: Cache::default(),
            files: Cache::default(),
        })
    }

    fn request(&self, path: &str) -> Request {
        Request::get(mirror::join(&self.root, path)).with_transport(self.transport.clone())
    }

    /// The index and all files of products that it names, in the order of their content ids.
    async fn load(&self) -> Result<Vec<Arc<Document<Products>>>, ProviderError> {
        let mut index = None;
        for path in &self.indices {
            index = self.document(&self.index, path).await?;
            if index.is_some() {
                break;
            }
        }
        let Some(index) = index else { return Err(self.absent()) };
        let mut files = Vec::new();
        for path in index.content.files.values() {
            match self.document(&self.files, path).await? {
                Some(file) => files.push(file),
                None => return Err(self.missing(path)),
            }
        }
        Ok(files)
    }

    /// A document, verified; `None` if there is none.
    async fn document<T: Dated>(
        &self,
        cache: &Cache<T>,
        path: &str,
    ) -> Result<Option<Arc<Document<T>>>, ProviderError> {
        let known = cache.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        let validators = known.as_ref().map(|known| &known.validators);
        let (bytes, validators) = match mirror::fetch(&self.client, &self.request(path), DOCUMENT, validators).await? {
            Fetched::Unchanged => return Ok(known),
            Fetched::Missing => return Ok(None),
            Fetched::Document { bytes, validators } => (bytes, validators),
        };
        let (bytes, signer) = self.verified(path, bytes).await?;
        let content = T::parse(&bytes).map_err(|cause| self.unusable(path, cause))?;
        if signer.is_some() {
            match content.date() {
                Some(date) => self.check_date(path, date)?,
                None if T::MUST_BE_DATED => return Err(self.unusable(path, Reason::new(UNDATED))),
                None => {}
            }
        }
        let document = Arc::new(Document { content, validators, signer });
        cache.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), document.clone());
        Ok(Some(document))
    }

    /// What of a document may be read, and who signed it.
    async fn verified(&self, path: &str, bytes: Bytes) -> Result<(Bytes, Option<String>), ProviderError> {
        let Some(keys) = &self.keys else { return Ok((bytes, None)) };
        let unsigned = |cause: SignatureError| ProviderError::Signature {
            provider: self.id.clone(),
            what: printable(path),
            cause: Box::new(cause),
        };
        if path.ends_with(".sjson") {
            let Verified { text, fingerprint } = verify_clearsigned(&bytes, keys).map_err(unsigned)?;
            return Ok((text.into_bytes().into(), Some(fingerprint)));
        }
        let beside = self.request(&format!("{path}.gpg"));
        match mirror::fetch(&self.client, &beside, SIGNATURE, None).await? {
            Fetched::Document { bytes: signature, .. } => {
                let fingerprint = verify_detached(&bytes, &signature, keys).map_err(unsigned)?;
                Ok((bytes, Some(fingerprint)))
            }
            Fetched::Missing | Fetched::Unchanged => Err(unsigned(SignatureError::Unsigned)),
        }
    }

    fn check_date(&self, path: &str, date: &str) -> Result<(), ProviderError> {
        let Some(moment) = timestamp::of_mail(date) else { return Err(self.unusable(path, Reason::new(UNDATED))) };
        let document = mirror::join(&self.root, path);
        match self.memory.note(document.as_str(), moment) {
            Ok(Recalled::New) => Ok(()),
            Ok(Recalled::Older(seen)) => Err(self.unusable(path, Reason::new(format!(
                "of second {moment}, older than the one of second {seen} that was seen before; if that was withdrawn, run \
                 `virtletctl image providers forget`"
            )))),
            Err(cause) => Err(self.unusable(path, Reason::new("dates of earlier documents cannot be kept").with(cause))),
        }
    }

    fn unusable(&self, path: &str, cause: Reason) -> ProviderError {
        ProviderError::Metadata { provider: self.id.clone(), what: printable(path), cause: Box::new(cause) }
    }

    fn missing(&self, path: &str) -> ProviderError {
        self.unusable(path, Reason::new("not on the mirror"))
    }

    /// There is no index.
    fn absent(&self) -> ProviderError {
        let path = self.indices.first().map_or(STREAMS, String::as_str);
        let url = net::redacted(&mirror::join(&self.root, path));
        ProviderError::Absent { provider: self.id.clone(), what: "the index", url }
    }

    /// The image of a disk, if it can be relied on.
    fn image(&self, found: &Found, name: &str) -> Result<RemoteImage, ProviderError> {
        let Found { item, .. } = found;
        let disk = item.checked().map_err(|cause| self.unusable(&item.product, cause))?;
        let promise = Promise { hash: disk.hash.clone(), covers: Covers::Hosted };
        if !promise.hash.alg().is_strong() && !self.allow_weak {
            return Err(ProviderError::WeakHash { provider: self.id.clone(), name: printable(name) });
        }
        let mut image = RemoteImage::at(&self.id, self.request(&disk.path));
        image.key = format!("{} {}", image.key, promise.hash);
        image.size = disk.size;
        image.metadata = self.metadata_of(found, Some(&disk));
        image.promises = vec![promise];
        Ok(image)
    }

    fn metadata_of(&self, Found { item, signer }: &Found, disk: Option<&Disk>) -> ImageMetadata {
        let hashes = disk.into_iter().flat_map(Disk::hashes);
        ImageMetadata {
            name: item.product.clone(),
            aliases: item.names().skip(1).map(str::to_owned).collect(),
            provider: self.id.clone(),
            promises: hashes.map(|hash| Promise { hash: hash.clone(), covers: Covers::Hosted }).collect(),
            format: item.format().map(Declared::Kept),
            artifact_size: disk.and_then(|disk| disk.size),
            platform: item.platform().unwrap_or_default(),
            distro: item.distro().map(str::to_owned),
            revision: Some(Revision::Serial(item.serial.clone())),
            created: item.updated(),
            notes: item.title().map(|title| (String::new(), title.to_owned())).into_iter().collect(),
            signed_by: signer.clone(),
            ..ImageMetadata::default()
        }
    }

    async fn find_image(&self, name: &str, want: &Want) -> Result<Option<RemoteImage>, ProviderError> {
        let files = self.load().await?;
        let named = files.iter().flat_map(|file| {
            let signer = file.signer.clone();
            file.content.named(name, &self.kinds).map(move |item| Found { item, signer: signer.clone() })
        });
        let (fitting, others): (Vec<_>, Vec<_>) =
            named.partition(|found| found.item.platform().is_none_or(|offered| want.platform.accepts(&offered)));
        match &*fitting {
            [] if others.is_empty() => Ok(None),
            [] => {
                let platforms = others.iter().filter_map(|found| found.item.platform());
                let mut available: Vec<_> = platforms.map(|platform| printable(&platform.to_string())).collect();
                available.sort();
                available.dedup();
                Err(ProviderError::Platform {
                    provider: self.id.clone(),
                    name: printable(name),
                    wanted: want.platform.to_string(),
                    available,
                })
            }
            [found, rest @ ..] => {
                if !rest.is_empty() {
                    let chosen = printable(&found.item.product);
                    tracing::warn!(provider = self.id, name, chosen, others = rest.len(), "name of several products");
                }
                self.image(found, name).map(Some)
            }
        }
    }

    async fn metadata_by_hash(&self, hash: &ImageHash) -> Result<Option<ImageMetadata>, ProviderError> {
        for file in self.load().await? {
            let ids = file.content.products.keys();
            for item in ids.flat_map(|id| file.content.versions(id, &self.kinds)) {
                match item.checked() {
                    Ok(disk) if disk.hashes().any(|known| known == hash) => {
                        let found = Found { item, signer: file.signer.clone() };
                        return Ok(Some(self.metadata_of(&found, Some(&disk))));
                    }
                    // Nobody asked for the broken ones.
                    Ok(_) | Err(_) => {}
                }
            }
        }
        Ok(None)
    }

    async fn list(&self, prefix: &str, platform: Option<&Platform>) -> Result<Vec<ImageMetadata>, ProviderError> {
        let mut images = Vec::new();
        for file in self.load().await? {
            for item in file.content.newest(&self.kinds) {
                let fits = platform.is_none_or(|wanted| item.platform().is_none_or(|offered| wanted.accepts(&offered)));
                if fits && item.names().any(|name| name.starts_with(prefix)) {
                    let disk = item.checked().ok();
                    let found = Found { item, signer: file.signer.clone() };
                    images.push(self.metadata_of(&found, disk.as_ref()));
                }
            }
        }
        Ok(images)
    }
}

impl Provider for Simplestreams {
    fn id(&self) -> &str {
        &self.id
    }

    fn caps(&self) -> Caps {
        Caps {
            search: true,
            range: true,
            conditional: true,
            signed: self.keys.is_some(),
            by_hash: true,
            platform: true,
        }
    }

    fn schemes(&self) -> &[&str] {
        &["simplestreams"]
    }

    fn claims(&self, url: &Url) -> bool {
        url.host_str() == Some(&self.id)
    }

    fn find<'a>(&'a self, name: &'a str, want: &'a Want) -> Answer<'a, Option<RemoteImage>> {
        self.find_image(name, want).boxed()
    }

    fn open<'a>(&'a self, image: &'a RemoteImage, ask: &'a Ask) -> Answer<'a, Opened> {
        image.open_by(&self.id, &self.client, ask)
    }

    fn metadata<'a>(&'a self, hash: &'a ImageHash) -> Answer<'a, Option<ImageMetadata>> {
        self.metadata_by_hash(hash).boxed()
    }

    fn search<'a>(&'a self, prefix: &'a str, platform: Option<&'a Platform>) -> Answer<'a, Vec<ImageMetadata>> {
        self.list(prefix, platform).boxed()
    }

    fn dropped(&self) -> Vec<Dropped> {
        let files: Vec<_> = self.files.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        let newest = files.iter().flat_map(|file| file.content.newest(&self.kinds));
        newest.filter_map(|item| Some(Dropped::new(&item.product, &item.checked().err()?))).collect()
    }

    fn clear_cache(&self) {
        self.index.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn forget(&self) -> Result<(), std::io::Error> {
        self.clear_cache();
        self.memory.forget()
    }
}

/// The root of a mirror, and the path of an index below it if the URL names one.
fn split(uri: &Url) -> (Url, Option<String>) {
    let mut root = uri.clone();
    let path = uri.path();
    let at = path.rfind("/streams/v1/").filter(|_| path.ends_with(".json") || path.ends_with(".sjson"));
    match at {
        Some(at) => {
            root.set_path(&path[..=at]);
            (root, Some(net::decoded(&path[at + 1..])))
        }
        None => {
            let bare = path.trim_end_matches('/');
            let bare = bare.strip_suffix("/streams/v1").unwrap_or(bare);
            root.set_path(&format!("{bare}/"));
            (root, None)
        }
    }
}
