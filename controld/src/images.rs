//! The image store as this crate's services want it: their errors, configuration turned into the store's, pulls counted.

mod advice;
mod end;
pub mod mapping;
mod pulls;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::Chain;
use imagestore::{FetchError, FsUsage, Image, Mappings, PullError, PullRequest, Store, StoreError, Upload};
use tokio_util::sync::CancellationToken;
use vmimage::declared::Declared;
use vmimage::digest::ImageId;
use vmimage::error::ErrorKind;
use vmspec::error::{Error, Kind, Result};
use vmspec::plan::Layer;

use self::end::End;
pub use self::pulls::PullCounts;
use self::pulls::Pulls;
use crate::config::Config;
use crate::config::images::HandlerConfig;

/// Most problems of translation rules that a status shows.
const MAX_PROBLEMS: usize = 32;
/// Most characters of each.
const MAX_PROBLEM: usize = 500;

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Images {
    store: Store,
    mappings: Mappings,
    pulls: Arc<Pulls>,
    /// Whether callers may bring images themselves.
    import: bool,
    /// Set when the daemon goes down.
    closing: CancellationToken,
}

impl Images {
    /// Opens the store, which sweeps what a crash left.
    ///
    /// # Errors
    /// When its directory cannot be had, or another process has it.
    pub fn open(config: &Config) -> Result<Self> {
        let wanted = for_store(config);
        let mappings = wanted.mappings.clone();
        let store = Store::open(wanted).map_err(|cause| store_failed("image store not opened", cause))?;
        for finding in store.findings() {
            tracing::warn!(path = %finding.path.display(), removed = finding.removed, what = finding.what, "in the image store");
        }
        for problem in store.sources_left_out() {
            tracing::warn!(error = %Chain(problem), "source of virt-builder left out");
        }
        Ok(Self { import: config.images.import, ..Self::of(store, mappings) })
    }

    /// Whether [`Images::open`] would take these settings, without touching the store.
    ///
    /// # Errors
    /// When a handler or a provider cannot be used.
    pub fn check(config: &Config) -> Result<()> {
        Store::check(&for_store(config)).map_err(|cause| store_failed("settings of images cannot be used", cause))
    }

    /// An opened store with its translations.
    #[must_use]
    pub fn of(store: Store, mappings: Mappings) -> Self {
        let pulls = Arc::new(Pulls::new(&store.handler_names()));
        Self { store, mappings, pulls, import: true, closing: CancellationToken::new() }
    }

    /// The same, which takes nothing from callers.
    #[cfg(test)]
    pub(crate) fn without_imports(self) -> Self {
        Self { import: false, ..self }
    }

    /// Rules for names that somebody else pushes.
    #[must_use]
    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// The store itself, for those who look after it.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The image of a name or id that a machine of a handler can be made of.
    ///
    /// # Errors
    /// When it is not here, here for other handlers only, or incomplete.
    pub fn find(&self, name: &str, handler: &str) -> Result<Image> {
        self.store.usable(name, handler).map_err(|cause| store_failed("no image for the container", cause))
    }

    /// The files that an image stands on, from the top down.
    ///
    /// # Errors
    /// When one is missing.
    pub fn below(&self, id: &ImageId) -> Result<Vec<Layer>> {
        let layers = self.store.below(id).map_err(|cause| store_failed("no image for the container", cause))?;
        Ok(layers.into_iter().map(|layer| Layer { path: layer.path, format: layer.format.to_string() }).collect())
    }

    /// Whether an image was converted on this node, by which its id is this node's.
    #[must_use]
    pub fn is_converted(&self, id: &ImageId) -> bool {
        self.store.is_converted(id)
    }

    /// The image of a name or id under a handler, if it is here.
    ///
    /// # Errors
    /// When there is no such handler.
    pub fn look_up(&self, name: &str, handler: &str) -> Result<Option<Image>> {
        self.store.get(name, handler).map_err(|cause| store_failed("image not looked up", cause))
    }

    /// All images, or those of a handler, that `name` means, or all if it is empty. A text that is no name means none.
    ///
    /// # Errors
    /// When there is no such handler.
    pub fn list(&self, name: &str, handler: &str) -> Result<Vec<Arc<Image>>> {
        let found = if name.is_empty() { self.store.list(handler) } else { self.store.named(name, handler) };
        found.map_err(|cause| store_failed("images not listed", cause))
    }

    /// How a registry would name an image.
    #[must_use]
    pub fn repo_digest(&self, id: &str, handler: &str) -> Option<String> {
        self.look_up(id, handler).ok()??.repo_digests.into_iter().next()
    }

    /// How many images there are for each handler; the default one's own name is the first of the store's.
    #[must_use]
    pub fn per_handler(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<_, _> = self.store.handler_names().into_iter().map(|handler| (handler, 0)).collect();
        // Without a handler there is nothing to be unknown.
        for image in self.store.list("").unwrap_or_default() {
            *counts.entry(image.handler.clone()).or_default() += 1;
        }
        counts
    }

    /// The same beside the default handler.
    #[must_use]
    pub fn per_other_handler(&self) -> BTreeMap<String, u64> {
        let mut counts = self.per_handler();
        if let Some(default) = self.store.handler_names().first() {
            counts.remove(default);
        }
        counts
    }

    /// What is wrong with the translation rules: a line each, and no more than a status can hold.
    pub async fn rule_problems(&self) -> Vec<String> {
        match self.store.translation_problems().await {
            Ok(problems) => shown(problems.iter().map(|problem| Chain(problem).to_string())),
            Err(error) => shown([Chain(&error).to_string()].into_iter()),
        }
    }

    /// What pulls there were for each handler.
    #[must_use]
    pub fn pull_counts(&self) -> Vec<(String, PullCounts)> {
        self.pulls.counts()
    }

    /// Bytes on the disk of each image, by the name of its file.
    #[must_use]
    pub fn sizes(&self) -> BTreeMap<String, u64> {
        self.store.sizes().into_iter().map(|(id, bytes)| (id.hex().to_owned(), bytes)).collect()
    }

    /// How far a pull is, as JSON, if one is under way.
    #[must_use]
    pub fn progress(&self, name: &str, handler: &str) -> Option<String> {
        let progress = self.store.pull_progress(name, handler)?;
        Some(serde_json::json!({ "bytes": progress.bytes, "total": progress.total }).to_string())
    }

    /// Fetches an image. Dropping this stops the download if nobody else waits for it.
    ///
    /// # Errors
    /// When it cannot be had, or is refused; nothing of it is left.
    pub async fn pull(&self, request: PullRequest) -> Result<Image> {
        if request.url.is_some() {
            self.may_import()?;
        }
        let (name, handler) = (request.name.clone(), request.handler.clone());
        let known = self.store.get(&name, &handler).ok().flatten();
        let end = End::of(&name, &handler);
        let pull = self.store.pull(request);
        let counted = self.pulls.count(&handler, known.as_ref(), pull, || self.store.watch_pull(&name, &handler));
        let closing =
            || Error::new(Kind::Unavailable, "controld is going down; the next pull goes on with what is here");
        let outcome = self.closing.run_until_cancelled(counted).await;
        let failed = |cause| pull_failed(cause, |provider| self.is_registry(provider));
        end.told(outcome.map_or_else(|| Err(closing()), |outcome| outcome.map_err(failed)))
    }

    /// Takes an image that is sent, and gives it the request's name. Dropping this leaves nothing of it.
    ///
    /// # Errors
    /// When this node takes none, or it is refused.
    pub async fn import(&self, request: PullRequest, upload: Upload, declared: Option<Declared>) -> Result<Image> {
        self.may_import()?;
        let (name, handler) = (request.name.clone(), request.handler.clone());
        let end = End::of(&name, &handler);
        let closing = || Error::new(Kind::Unavailable, "controld is going down; send the image again later");
        let outcome = self.closing.run_until_cancelled(self.store.import(request, upload, declared)).await;
        end.told(outcome.map_or_else(|| Err(closing()), |outcome| outcome.map_err(import_failed)))
    }

    fn may_import(&self) -> Result<()> {
        let refused = || Error::new(Kind::State, "this node takes no files and URLs: `images.import` is off");
        if self.import { Ok(()) } else { Err(refused()) }
    }

    /// Whether a provider is one of registries.
    fn is_registry(&self, provider: &str) -> bool {
        let providers = self.store.providers();
        providers.iter().any(|known| known.id == provider && known.schemes.iter().any(|scheme| scheme == "oci"))
    }

    /// Ends the pulls under way, and all further ones: the daemon goes down, and gigabytes are not waited for.
    pub fn stop_pulls(&self) {
        self.closing.cancel();
    }

    /// Forgets an image, for all handlers or one; its file stays while a machine needs it.
    ///
    /// # Errors
    /// When the name is none, or the disk fails.
    pub async fn remove(&self, name: &str, handler: &str) -> Result<()> {
        let removed = self.store.remove(name, handler).await;
        removed.map(drop).map_err(|cause| store_failed("image not removed", cause))
    }

    /// Waits until there may be other images than when this was waited for last, by the one who waits for it.
    pub async fn changed(&self) {
        self.store.changes().notified().await;
    }

    /// Has the one who waits for that look again.
    pub fn look_again(&self) {
        self.store.changes().notify_one();
    }

    /// Lets a group, and nobody else, open the files of images.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn serve_to(&self, gid: u32) -> Result<()> {
        self.store.serve_to(gid).await.map_err(|cause| store_failed("images not opened to QEMU's group", cause))
    }

    /// What images take of their file system.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn usage(&self) -> Result<FsUsage> {
        self.store.usage().await.map_err(|cause| store_failed("use of the image store not known", cause))
    }

    /// Keeps an image's file for a pod, also over a restart.
    ///
    /// # Errors
    /// When the image is not here, or the disk fails.
    pub async fn lease(&self, id: &ImageId, pod_uid: &str) -> Result<()> {
        self.store.lease(id, pod_uid).await.map_err(|cause| store_failed("image not kept for the pod", cause))
    }

    /// Gives up a pod's hold.
    ///
    /// # Errors
    /// When the disk fails.
    pub async fn release(&self, pod_uid: &str) -> Result<()> {
        self.store.release(pod_uid).await.map_err(|cause| store_failed("image not released by the pod", cause))
    }

    /// Pods that hold an image.
    #[must_use]
    pub fn holders(&self) -> Vec<String> {
        self.store.holders()
    }
}

/// The first of some lines, and how many there are beside them.
fn shown(lines: impl ExactSizeIterator<Item = String>) -> Vec<String> {
    let left_out = lines.len().saturating_sub(MAX_PROBLEMS);
    let mut shown: Vec<String> =
        lines.take(MAX_PROBLEMS).map(|line| line.chars().take(MAX_PROBLEM).collect()).collect();
    if left_out > 0 {
        shown.push(format!("{left_out} more are in the log"));
    }
    shown
}

/// An error that all who waited for a pull share.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<PullError>);

/// The store's settings.
fn for_store(config: &Config) -> imagestore::Config {
    let images = &config.images;
    let mut store = imagestore::Config::new(config.images_dir());
    store.protocol = images.protocol;
    store.allow_untranslated = images.untranslated;
    store.registry_names = images.registry_names;
    store.translations_dir = Some(images.translations_dir.clone());
    store.catalogue_dir = Some(images.catalogue_dir.clone());
    store.regexp_translations = images.regexp_translations;
    store.strip_prefixes.clone_from(&images.strip_prefixes);
    store.local_roots.clone_from(&images.local_roots);
    store.allow_raw = images.allow_raw;
    store.layered = images.layered;
    store.convert.clone_from(&images.convert);
    // This program, also when the file was replaced since: it decompresses if it is told so.
    store.decoder = Some("/proc/self/exe".into());
    store.limits = images.limits.for_store(images.max_virtual_size);
    store.net.timeouts.stall = images.stall_deadline;
    store.net.policy.clone_from(&images.network);
    store.net.proxies.clone_from(&images.proxies);
    store.providers.clone_from(&images.providers);
    store.virt_builder_repos.clone_from(&images.virt_builder_repos);
    store.fall_through = images.fall_through;
    store.offline = images.offline;
    store.default_handler.clone_from(&images.default_handler);
    // A handler that pods may name and that is not described has machines like the default one's, and images of its own.
    let default = images.handlers.get(&images.default_handler).map(HandlerConfig::for_store).unwrap_or_default();
    let plain =
        config.runtime_handlers.iter().chain(config.handlers.keys()).map(|name| (name.clone(), default.clone()));
    let described = images.handlers.iter().map(|(name, handler)| (name.clone(), handler.for_store()));
    store.handlers = plain.chain(described).collect();
    store.pinned = images.pinned.iter().filter_map(|name| name.parse().ok()).collect();
    store
}

/// A pull's failure. kubelet shows the text to people, and looks at how it begins.
fn pull_failed(cause: Arc<PullError>, is_registry: impl Fn(&str) -> bool) -> Error {
    let (begins, kind) = class(&cause);
    let advice = advice::of(&cause, is_registry);
    Error::because(kind, format!("{begins}image not pulled{advice}"), Shared(cause))
}

fn import_failed(cause: PullError) -> Error {
    let (begins, kind) = match cause.kind() {
        // What is wrong with a source is here wrong with what was sent.
        ErrorKind::Server => ("", Kind::Invalid),
        _ => class(&cause),
    };
    Error::because(kind, format!("{begins}image not taken"), cause)
}

/// How the text of a failure begins, and what kind it is.
fn class(cause: &PullError) -> (&'static str, Kind) {
    match cause.kind() {
        _ if cause.is_unreachable() => ("RegistryUnavailable: ", Kind::Named),
        // Whoever answered is not the server that is meant. The store has no older image in its place for that.
        _ if matches!(cause.fetch(), Some(FetchError::Tls { .. })) => ("RegistryUnavailable: ", Kind::Named),
        // It answered, and will answer so again.
        ErrorKind::Server if !matches!(cause, PullError::Offline { .. }) => ("UnusableSource: ", Kind::State),
        ErrorKind::Signature => ("SignatureValidationFailed: ", Kind::Named),
        kind @ ErrorKind::Refused => ("UnsafeImage: ", kind_of(kind)),
        kind @ ErrorKind::DigestMismatch => ("DigestMismatch: ", kind_of(kind)),
        kind => ("", kind_of(kind)),
    }
}

pub(crate) fn store_failed(what: &'static str, cause: StoreError) -> Error {
    Error::because(kind_of(cause.kind()), what, cause)
}

fn kind_of(kind: ErrorKind) -> Kind {
    match kind {
        ErrorKind::InvalidName => Kind::Invalid,
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Denied => Kind::Denied,
        ErrorKind::Refused | ErrorKind::DigestMismatch | ErrorKind::Signature | ErrorKind::Incomplete => Kind::State,
        ErrorKind::Corrupt => Kind::DataLoss,
        ErrorKind::Server => Kind::Unavailable,
        ErrorKind::Deadline => Kind::Deadline,
        ErrorKind::Exhausted => Kind::Exhausted,
        ErrorKind::Internal => Kind::Internal,
    }
}
