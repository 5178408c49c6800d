//! The store as callers have it: pulls, questions, leases.
//!
//! Names are checked here; what lies on the disk is the [`Shelf`]'s, and a pull the [`Puller`]'s.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::config::Config;
use crate::error::ErrorKind;
use crate::inspect::Policy;
use crate::name::{ImageId, ImageRef, NameError, Query, printable};
use crate::net::Client;
use crate::provider::{Means, ProviderError, Registry};
use crate::pull::{Flights, Progress, PullError, Puller, only_digest};
use crate::shelf::{self, Disk, DiskError, Finding, FsUsage, Image, MAX_HOLDER, Shelf, is_holder, usage};
use crate::translate::{Problem, Translator};

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No image name.
    #[error("`{name}` is no image name")]
    Name {
        /// The caller's text.
        name: String,
        /// Why not.
        #[source]
        cause: NameError,
    },
    /// No name of a holder.
    #[error("holder `{holder}` must be 1 to {MAX_HOLDER} letters, digits, `_`, `.` or `-`, and not begin with `.`")]
    Holder {
        /// The caller's text.
        holder: String,
    },
    /// The image to lease is not here.
    #[error("image `{id}` is not in the store")]
    NotFound {
        /// Its id.
        id: ImageId,
    },
    /// A provider.
    #[error("providers of images cannot be used")]
    Provider(#[from] ProviderError),
    /// The disk.
    #[error("image store failed")]
    Disk(#[from] DiskError),
    /// A thread panicked.
    #[error("work of the image store ended early")]
    Lost(#[source] tokio::task::JoinError),
}

impl StoreError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } | Self::Holder { .. } => ErrorKind::InvalidName,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Provider(error) => error.kind(),
            Self::Disk(error) => error.kind(),
            Self::Lost(_) => ErrorKind::Internal,
        }
    }
}

/// The image store. Clones are the same store.
#[derive(Debug, Clone)]
pub struct Store {
    shelf: Arc<Shelf>,
    puller: Arc<Puller>,
    flights: Arc<Flights>,
}

impl Store {
    /// Opens the store, making its directories and sweeping what a crash left. Blocks: a matter of start-up.
    ///
    /// # Errors
    /// If the directories cannot be had, or another process has them.
    pub fn open(config: Config) -> Result<Self, StoreError> {
        Self::open_with(config, Box::new(|_| Ok(())))
    }

    fn open_with(config: Config, after: shelf::Hook) -> Result<Self, StoreError> {
        let shelf = Arc::new(Shelf::open(Disk::open(&config.root)?, after)?);
        let translator = Translator::of(&config);
        let means = Means {
            client: Arc::new(Client::new(config.net)),
            local_roots: config.local_roots,
            memory: Some(config.root.join("providers")),
        };
        let registry = Registry::of(&config.providers, config.fall_through, &means)?;
        let puller = Puller {
            shelf: shelf.clone(),
            translator,
            registry,
            policy: Policy { allow_raw: config.allow_raw, max_virtual_size: config.limits.virtual_size },
            max_artifact: config.limits.artifact,
            slots: Semaphore::new(config.limits.downloads.clamp(1, Semaphore::MAX_PERMITS)),
        };
        Ok(Self { shelf, puller: Arc::new(puller), flights: Arc::default() })
    }

    /// Pulls an image by name, always anew unless the name has a digest that is here already. All who ask for the same
    /// name at the same time share one download; it stops when the last of them drops this future.
    ///
    /// # Errors
    /// See [`PullError`]; the same one goes to all who wait.
    pub async fn pull(&self, name: &str) -> Result<Image, Arc<PullError>> {
        let image = match name.parse::<Query>() {
            Ok(Query::Ref(image)) => image,
            // Whoever knows the id has what a pull would give.
            Ok(Query::Id(id)) => return self.get(name).ok_or_else(|| Arc::new(only_digest(Some(id), None))),
            Ok(Query::Digest(digest)) => {
                return self.get(name).ok_or_else(|| Arc::new(only_digest(None, Some(digest))));
            }
            Err(cause) => return Err(Arc::new(PullError::Name { name: printable(name), cause })),
        };
        let flight = self.flights.join(&image, |progress| {
            let pull = self.puller.clone().pull(image.clone(), progress);
            async move { pull.await.map_err(Arc::new) }
        });
        flight.outcome().await.unwrap_or_else(|| Err(Arc::new(PullError::Lost { image, cause: None })))
    }

    /// How far a pull of that name is. `None` if none is under way.
    #[must_use]
    pub fn pull_progress(&self, name: &str) -> Option<Progress> {
        self.watch_pull(name).map(|progress| *progress.borrow())
    }

    /// The progress of a pull of that name as it goes on. Watching keeps no pull alive.
    #[must_use]
    pub fn watch_pull(&self, name: &str) -> Option<watch::Receiver<Progress>> {
        let image: ImageRef = name.parse().ok()?;
        self.flights.progress(&image)
    }

    /// The listed image of that id, beginning of an id (8 characters at least, of one image only), tag or digest. A
    /// name without a tag means `latest`. By `name@digest` only if the name has these bytes.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Image> {
        self.shelf.get(name)
    }

    /// All images that have a name, by id.
    #[must_use]
    pub fn list(&self) -> Vec<Image> {
        self.shelf.list()
    }

    /// Takes all names from the image that `name` means (as in [`Store::get`]) and removes it, at once or when its
    /// last lease is released. Fine if there is none.
    ///
    /// # Errors
    /// If `name` is no name, or the disk fails.
    pub async fn remove(&self, name: &str) -> Result<(), StoreError> {
        let unknown = self.get(name).is_none();
        if let (true, Err(cause)) = (unknown, name.parse::<Query>()) {
            return Err(StoreError::Name { name: printable(name), cause });
        }
        let name = name.to_owned();
        self.change(move |shelf| shelf.remove(&name)).await
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
        match self.change(move |shelf| shelf.lease(&wanted, &holder)).await? {
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
        self.change(move |shelf| shelf.release(&holder)).await
    }

    /// Who has leases, for comparing with who still should after a restart.
    #[must_use]
    pub fn holders(&self) -> Vec<String> {
        self.shelf.holders()
    }

    /// What the images take of their file system.
    ///
    /// # Errors
    /// If the disk fails.
    pub async fn usage(&self) -> Result<FsUsage, StoreError> {
        self.change(|shelf| usage(shelf.disk())).await
    }

    /// What the start came across: leftovers that it removed, and strange things that it left alone.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        self.shelf.findings()
    }

    /// What is wrong with the translation files, as of the last pull.
    #[must_use]
    pub fn translation_problems(&self) -> Vec<Problem> {
        self.puller.translator.problems()
    }

    /// Works on the disk, off the reactor; once begun, it is done even if the caller goes.
    async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shelf) -> Result<T, DiskError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shelf = self.shelf.clone();
        let done = tokio::task::spawn_blocking(move || work(&shelf)).await;
        Ok(done.map_err(StoreError::Lost)??)
    }
}
