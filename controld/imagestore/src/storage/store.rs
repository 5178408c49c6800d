//! The store as callers use it: pulls, lookups, leases, upkeep.
//!
//! This module checks names and handlers. What is on disk belongs to the [`ContentStore`], and a pull to the
//! [`Puller`].
//!
//! An image is known by its name and the runtime handler that it is for. If a caller names no handler:
//!
//! | call | what it means |
//! |---|---|
//! | [`Store::pull`], [`Store::get`], [`Store::usable`] | the default handler |
//! | [`Store::list`], [`Store::remove`] | all handlers |

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::off_reactor;
use tokio::sync::watch;
use url::Url;
use vmimage::convert::{ConvertLimits, Converter};
use vmimage::decode::Decompressor;
use vmimage::digest::ImageId;
use vmimage::error::printable;
use vmimage::inspect::Policy;
use vmimage::name::{ImageRef, Query};

use crate::sources::net::{Auth, Client};
use crate::sources::provider::{AnyRegistry, Means, ProviderError, Registry, ReposError, Want};
use crate::sources::translate::{Problem, Protocol, RuleDir, RuleSource, TranslateConfig, Translator};
use crate::storage::config::{Config, HandlerConfig, Layers, Offline};
use crate::storage::content::{
    self, ContentStore, Disk, DiskError, Finding, FsUsage, Handler, Image, Keep, Key, Layer, Losing, Removed,
    is_holder, usage,
};
use crate::storage::pull::{Downloads, Flights, Order, Programs, Progress, PullError, Puller, Ticket};

mod error;
mod handlers;
mod import;
mod upkeep;
mod usable;

pub use error::StoreError;
use handlers::Handlers;
pub use upkeep::{CATALOGUE, Found, ProviderInfo};

/// What is to be pulled.
#[derive(Debug, Clone, Default)]
pub struct PullRequest {
    /// The image.
    pub name: String,
    /// The runtime handler that it is for; the default one if this is empty.
    pub handler: String,
    /// Credentials of the one who asks.
    pub auth: Option<Auth>,
    /// The registry that they are for; empty if they are for whatever the name leads to.
    pub auth_server: String,
    /// Whether to download also what did not change.
    pub force: bool,
    /// Where the image is, if that is not for rules and providers to say. An `http`, `https`, `oci` or `docker` URL.
    pub url: Option<Url>,
    /// The only provider that may be asked.
    pub provider: Option<String>,
    /// See [`Config::offline`], which this overrides.
    pub offline: Option<Offline>,
    /// What to do about what the image stands on. As [`Config::layered`] says if this is not set.
    pub layers: Option<Layers>,
}

impl From<&String> for PullRequest {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<&str> for PullRequest {
    fn from(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }
}

/// The image store. Clones are the same store.
#[derive(Debug, Clone)]
pub struct Store {
    content: Arc<ContentStore>,
    puller: Arc<Puller>,
    converter: Converter,
    flights: Arc<Flights<Ticket, Result<Image, Arc<PullError>>>>,
    handlers: Arc<Handlers>,
    offline: Offline,
    layers: Layers,
    /// How long an import may bring nothing.
    stall: Duration,
}

impl Store {
    /// Opens the store, making its directories and sweeping what a crash left. Blocks: a matter of start-up.
    ///
    /// # Errors
    /// If the directories cannot be had, another process has them, a handler's name is none, or a provider cannot be
    /// used or is not there.
    pub fn open(config: Config) -> Result<Self, StoreError> {
        Self::open_with(config, Box::new(|_| Ok(())))
    }

    /// Whether [`Store::open`] would take these settings. Reads the files that they name; neither looks at the store's
    /// directory nor changes anything.
    ///
    /// # Errors
    /// If a handler's name is none, or a provider cannot be used or is not there.
    pub fn check(config: &Config) -> Result<(), StoreError> {
        let handlers = Handlers::new(config.default_handler.clone(), config.handlers.clone())?;
        handlers.check_providers(&registry(config, &Decompressor::new(config.decoder.clone()), None)?)
    }

    fn open_with(config: Config, after: content::Hook) -> Result<Self, StoreError> {
        let translator = translator(&config);
        let handlers = Handlers::new(config.default_handler.clone(), config.handlers.clone())?;
        let limits = config.limits;
        let keep =
            Keep { partial_ttl: limits.partial_ttl, partial_quota: limits.partial_quota, reserve: limits.reserve };
        let content = Arc::new(ContentStore::open(
            Disk::open(&config.root)?,
            handlers.known(config.pinned.clone()),
            keep,
            after,
        )?);
        let decompressor = Decompressor::new(config.decoder.clone());
        let registry = registry(&config, &decompressor, Some(config.root.join("providers")))?;
        handlers.check_providers(&registry)?;
        let policy = Policy { allow_raw: config.allow_raw, max_virtual_size: limits.virtual_size };
        let convert_limits = ConvertLimits { virtual_size: limits.virtual_size, ..ConvertLimits::default() };
        let converter = Converter::new(config.qemu_img, convert_limits);
        let programs = Programs { decompressor, convert: config.convert, converter: converter.clone() };
        let puller = Puller::new(content.clone(), translator, registry, policy, limits, programs);
        let handlers = Arc::new(handlers);
        let layers = if config.layered { Layers::Pull } else { Layers::Refuse };
        let (puller, offline, stall) = (Arc::new(puller), config.offline, config.net.timeouts.stall);
        Ok(Self { content, puller, converter, flights: Arc::default(), handlers, offline, layers, stall })
    }

    /// Downloads at this moment.
    #[must_use]
    pub fn downloads(&self) -> Downloads {
        self.puller.downloads()
    }

    /// Pulls an image for a handler. Its source is asked each time, unless the name has a digest that the source gave to
    /// the same login lately; what is here and is still the same is not downloaded again. By an id alone there is no
    /// source to be asked, so only what was given so lately is given. All who ask for the same at the same time share one
    /// download; it stops when the last of them drops this future.
    ///
    /// # Errors
    /// See [`PullError`]; the same one goes to all who wait.
    pub async fn pull(&self, request: impl Into<PullRequest>) -> Result<Image, Arc<PullError>> {
        let request: PullRequest = request.into();
        let unknown = || PullError::Handler { handler: printable(&request.handler), known: self.handlers.names() };
        let (handler, config) = self.handlers.find(&request.handler).ok_or_else(|| Arc::new(unknown()))?;
        let image = match request.name.parse::<Query>() {
            Ok(Query::Ref(image)) => image,
            Ok(Query::Id(id)) => return self.pull_by_digest(&id.to_string(), handler, config, request).await,
            Ok(Query::Digest(digest)) => {
                return self.pull_by_digest(&digest.to_string(), handler, config, request).await;
            }
            Err(cause) => return Err(Arc::new(PullError::Name { name: printable(&request.name), cause })),
        };
        let key = Key::new(handler, &image);
        if let Some(brought) = self.brought(&key, config, &request) {
            return Ok(brought);
        }
        let offline = request.offline.unwrap_or(self.offline);
        let order = order(key, self.handlers.name_of(handler), config, request, self.layers);
        if offline == Offline::Always {
            return self.puller.clone().pull_offline(order).await.map_err(Arc::new);
        }
        let again = order.clone();
        let flight = self.flights.join(&order.ticket(), |progress| {
            let (puller, content) = (self.puller.clone(), self.content.clone());
            async move { pull_with_room(&puller, &content, order, progress).await.map_err(Arc::new) }
        });
        let outcome = flight.outcome().await;
        let outcome = outcome.unwrap_or_else(|| Err(Arc::new(PullError::Lost { image })));
        match outcome {
            Err(error) if offline == Offline::Auto && error.is_unreachable() => {
                match self.puller.clone().pull_offline(again).await {
                    Ok(known) => {
                        tracing::debug!(id = %known.id, %error, "source out of reach, image of the last pull taken");
                        Ok(known)
                    }
                    // Why the source was not asked matters more than what is not here.
                    Err(_) => Err(error),
                }
            }
            outcome => outcome,
        }
    }

    /// The image of a digest, if one of its names could be pulled just now without asking anybody.
    async fn pull_by_digest(
        &self,
        digest: &str,
        handler: &Handler,
        config: &HandlerConfig,
        request: PullRequest,
    ) -> Result<Image, Arc<PullError>> {
        for key in self.content.names_of(digest, handler) {
            let order = order(key, self.handlers.name_of(handler), config, request.clone(), self.layers);
            let known = match request.offline.unwrap_or(self.offline) {
                Offline::Always => self.puller.clone().pull_offline(order).await.ok(),
                Offline::Never | Offline::Auto => self.puller.clone().pull_granted(order).await.ok().flatten(),
            };
            if let Some(known) = known {
                return Ok(Image { stale: false, ..known });
            }
        }
        Err(Arc::new(PullError::OnlyDigest { digest: digest.to_owned() }))
    }

    /// How far a pull of that name is. `None` if none is under way.
    #[must_use]
    pub fn pull_progress(&self, name: &str, handler: &str) -> Option<Progress> {
        self.watch_pull(name, handler).map(|progress| *progress.borrow())
    }

    /// The progress of a pull of that name as it goes on. Watching keeps no pull alive.
    #[must_use]
    pub fn watch_pull(&self, name: &str, handler: &str) -> Option<watch::Receiver<Progress>> {
        let image: ImageRef = name.parse().ok()?;
        let (handler, _) = self.handlers.find(handler)?;
        let key = Key::new(handler, &image);
        self.flights.progress(|ticket| ticket.key == key)
    }

    /// The listed image of that id, beginning of an id (8 characters at least, of one image only), tag or digest, under
    /// a handler. A name without a tag means `latest`. By `name@digest` only if the name has these bytes.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn get(&self, name: &str, handler: &str) -> Result<Option<Image>, StoreError> {
        Ok(self.content.get(name, self.handler(handler)?))
    }

    /// The files that an image stands on, from the top down; none if it is no layer.
    ///
    /// # Errors
    /// If one is missing.
    pub fn below(&self, id: &ImageId) -> Result<Vec<Layer>, StoreError> {
        self.content.below(id).map_err(|missing| StoreError::Incomplete { id: id.clone(), missing })
    }

    /// Whether an image of the store was converted from another format here, so that its id may be another one on other nodes.
    #[must_use]
    pub fn is_converted(&self, id: &ImageId) -> bool {
        self.content.is_converted(id)
    }

    /// What copies images to devices.
    #[must_use]
    pub fn converter(&self) -> &Converter {
        &self.converter
    }

    /// All images that have a name, by id and handler; those of one handler, if one is named.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn list(&self, handler: &str) -> Result<Vec<Arc<Image>>, StoreError> {
        let only = if handler.is_empty() { None } else { Some(self.handler(handler)?) };
        Ok(self.content.list(only))
    }

    /// What `name` means under each handler, or the one that is named.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn named(&self, name: &str, handler: &str) -> Result<Vec<Arc<Image>>, StoreError> {
        let handlers = if handler.is_empty() { self.handlers.all() } else { vec![self.handler(handler)?] };
        Ok(handlers.into_iter().filter_map(|handler| self.content.get(name, handler)).map(Arc::new).collect())
    }

    /// Takes all names that are a handler's from the image that `name` means there (as in [`Store::get`]), or those of
    /// all handlers if none is named, and removes it, at once or when nothing needs it any more. Fine if there is none.
    /// Says what became of each image.
    ///
    /// # Errors
    /// If `name` is no name, there is no such handler, or the disk fails.
    pub async fn remove(&self, name: &str, handler: &str) -> Result<Vec<Removed>, StoreError> {
        self.take_names(name, handler, Losing::All).await
    }

    /// As [`Store::remove`], but an image that is called by a name, and not by its id, keeps its other names.
    ///
    /// # Errors
    /// As there.
    pub async fn remove_name(&self, name: &str, handler: &str) -> Result<Vec<Removed>, StoreError> {
        self.take_names(name, handler, Losing::Called).await
    }

    async fn take_names(&self, name: &str, handler: &str, losing: Losing) -> Result<Vec<Removed>, StoreError> {
        let only = if handler.is_empty() { None } else { Some(self.handler(handler)?.clone()) };
        let is_prefix = name.trim_start_matches("sha256:").bytes().all(|byte| byte.is_ascii_hexdigit());
        if let (false, Err(cause)) = (is_prefix, name.parse::<Query>()) {
            return Err(StoreError::Name { name: printable(name), cause });
        }
        let name = name.to_owned();
        self.change(move |content| content.remove(&name, only.as_ref(), losing)).await
    }

    /// Keeps an image's file until `holder` releases it, also over a restart. A holder may have several.
    ///
    /// # Errors
    /// If the image is not here, the holder's name cannot be one of a file, or the disk fails.
    pub async fn lease(&self, id: &ImageId, holder: &str) -> Result<(), StoreError> {
        if !is_holder(holder) {
            return Err(StoreError::Holder { holder: printable(holder) });
        }
        let (wanted, holder) = (id.clone(), holder.to_owned());
        match self.change(move |content| content.lease(&wanted, &holder)).await? {
            true => Ok(()),
            false => Err(StoreError::NotFound { id: id.clone() }),
        }
    }

    /// Gives up all leases of a holder. Fine if it has none.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn release(&self, holder: &str) -> Result<(), StoreError> {
        let holder = holder.to_owned();
        self.change(move |content| content.release(&holder)).await
    }

    /// Who has leases, for comparing with who still should after a restart.
    #[must_use]
    pub fn holders(&self) -> Vec<String> {
        self.content.holders()
    }

    /// Lets the members of a group open the files of images whose names they know, and no other user any more: the
    /// group that QEMU runs as. It stays so over a restart; a fresh store is served to nobody.
    ///
    /// # Errors
    /// If the disk fails, or the group cannot be given.
    pub async fn serve_to(&self, gid: u32) -> Result<(), StoreError> {
        self.change(move |content| content.disk().data.serve_to(gid)).await
    }

    /// What the images take of their file system.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn usage(&self) -> Result<FsUsage, StoreError> {
        self.change(|content| usage(content.disk())).await
    }

    /// What the start came across: leftovers that it removed, and strange things that it left alone.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.content.findings()
    }

    /// The handlers' own names, the default one's first.
    #[must_use]
    pub fn handler_names(&self) -> Vec<String> {
        self.handlers.names()
    }

    /// What is wrong with the translation rules as they are now.
    ///
    /// # Errors
    /// If their directory cannot be read.
    pub async fn translation_problems(&self) -> Result<Vec<Problem>, StoreError> {
        let puller = self.puller.clone();
        Ok(off_reactor(move || puller.translator().current_problems()).await?)
    }

    /// Sources of [`Config::virt_builder_repos`] that are no providers, and why.
    #[must_use]
    pub fn sources_left_out(&self) -> &[ReposError] {
        self.puller.registry().left_out()
    }

    fn handler(&self, name: &str) -> Result<&Handler, StoreError> {
        self.handlers.find(name).map(|(handler, _)| handler).ok_or_else(|| self.unknown(name))
    }

    fn handler_config(&self, name: &str) -> Result<&HandlerConfig, StoreError> {
        self.handlers.find(name).map(|(_, config)| config).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, handler: &str) -> StoreError {
        StoreError::Handler { handler: printable(handler), known: self.handlers.names() }
    }

    /// Works on the disk, off the reactor; once begun, it is done even if the caller goes.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<ContentStore>) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let content = self.content.clone();
        Ok(off_reactor(move || work(&content)).await?)
    }
}

/// What translates names: by what is pushed, then by files.
pub(crate) fn translator(config: &Config) -> Translator {
    let pushed: Arc<dyn RuleSource> = Arc::new(config.mappings.clone());
    let files = config.translations_dir.iter().map(|dir| Arc::new(RuleDir::new(dir.clone())) as Arc<dyn RuleSource>);
    let catalogue = config
        .catalogue_dir
        .iter()
        .map(|dir| Arc::new(RuleDir::catalogue(dir.clone(), config.translations_dir.clone())) as Arc<dyn RuleSource>);
    let sources = std::iter::once(pushed).chain(files).collect();
    let settings = TranslateConfig {
        strip_prefixes: config.strip_prefixes.clone(),
        protocol: config.protocol,
        allow_untranslated: config.allow_untranslated,
        regexps: config.regexp_translations,
        platform: config.handlers.get(&config.default_handler).map(|of| of.platform.clone()).unwrap_or_default(),
    };
    Translator::new(settings, sources).with_catalogue(catalogue.collect())
}

/// The providers of a configuration, which remember in the directory `memory`.
fn registry(config: &Config, decompressor: &Decompressor, memory: Option<PathBuf>) -> Result<Registry, ProviderError> {
    let means = Means {
        client: Arc::new(Client::new(config.net.clone())),
        local_roots: config.local_roots.clone(),
        memory,
        decompressor: decompressor.clone(),
        // What denies names without a rule denies them here as well.
        any_registry: (config.registry_names && config.allow_untranslated)
            .then_some(AnyRegistry { plain_http: config.protocol == Protocol::Http }),
    };
    Registry::of(&config.providers, &config.virt_builder_repos, config.fall_through, &means)
}

fn order(key: Key, handler: String, config: &HandlerConfig, request: PullRequest, layers: Layers) -> Order {
    Order {
        handler,
        want: Want {
            platform: config.platform.clone(),
            auth: request.auth,
            auth_server: request.auth_server,
            version: Some(key.image.version().clone()),
            anywhere: true,
        },
        url: request.url,
        provider: request.provider,
        translations: config.translations.clone(),
        providers: config.providers.clone(),
        formats: config.formats.clone(),
        force: request.force,
        layers: request.layers.unwrap_or(layers),
        key,
    }
}

/// Pulls. If the disk is full, makes room once and tries again.
async fn pull_with_room(
    puller: &Arc<Puller>,
    content: &Arc<ContentStore>,
    order: Order,
    progress: watch::Sender<Progress>,
) -> Result<Image, PullError> {
    let first = puller.clone().pull(order.clone(), progress.clone()).await;
    let Err(error) = &first else { return first };
    let Some(needed) = error.wants_room() else { return first };
    let content = content.clone();
    match off_reactor(move || content.make_room(needed)).await {
        Ok(true) => puller.clone().pull(order, progress).await,
        Ok(false) => first,
        Err(cause) => {
            tracing::warn!(error = %cause, "no room made in the image store");
            first
        }
    }
}
