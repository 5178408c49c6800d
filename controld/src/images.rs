//! The image store as this crate's services want it: their errors, and configuration turned into the store's.

use std::sync::Arc;
use std::time::Duration;

use imagestore::{ErrorKind, FsUsage, Image, ImageId, PullError, Store, StoreError};

use crate::config::{Config, Protocol};
use crate::error::{Error, Kind, Result};

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Images {
    store: Store,
}

impl Images {
    /// Opens the store, which sweeps what a crash left.
    ///
    /// # Errors
    /// When its directory cannot be had, or another process has it.
    pub fn open(config: &Config) -> Result<Self> {
        let images = &config.images;
        let mut wanted = imagestore::Config::new(config.images_dir());
        wanted.protocol = match images.protocol {
            Protocol::Https => imagestore::Protocol::Https,
            Protocol::Http => imagestore::Protocol::Http,
        };
        wanted.translations_dir = Some(images.translations_dir.clone());
        wanted.allow_raw = images.allow_raw;
        wanted.limits.virtual_size = images.max_virtual_size_gib.saturating_mul(1 << 30);
        wanted.net.timeouts.stall = Duration::from_secs(images.stall_deadline_s);
        wanted.net.policy.allow_loopback = true;
        let store = Store::open(wanted).map_err(|cause| store_failed("image store not opened", cause))?;
        for finding in store.findings() {
            tracing::warn!(path = %finding.path.display(), removed = finding.removed, what = finding.what, "in the image store");
        }
        Ok(Self { store })
    }

    /// The image of a name or id.
    ///
    /// # Errors
    /// When it is not here.
    pub fn find(&self, name: &str) -> Result<Image> {
        self.look_up(name).ok_or_else(|| {
            let shown: String = name.chars().take(256).map(|c| if c.is_control() { '?' } else { c }).collect();
            Error::new(Kind::NotFound, format!("image `{shown}` is not on this node; pull it first"))
        })
    }

    /// The image of a name or id, if it is here.
    #[must_use]
    pub fn look_up(&self, name: &str) -> Option<Image> {
        self.store.get(name)
    }

    /// All images.
    #[must_use]
    pub fn list(&self) -> Vec<Image> {
        self.store.list()
    }

    /// How a registry would name an image.
    #[must_use]
    pub fn repo_digest(&self, id: &str) -> Option<String> {
        self.look_up(id)?.repo_digests.into_iter().next()
    }

    /// How far a pull is, as JSON, if one is under way.
    #[must_use]
    pub fn progress(&self, name: &str) -> Option<String> {
        let progress = self.store.pull_progress(name)?;
        Some(serde_json::json!({ "bytes": progress.bytes, "total": progress.total }).to_string())
    }

    /// Fetches an image. Dropping this stops the download if nobody else waits for it.
    ///
    /// # Errors
    /// When it cannot be had, or is refused; nothing of it is left.
    pub async fn pull(&self, name: &str) -> Result<Image> {
        self.store.pull(name).await.map_err(pull_failed)
    }

    /// Forgets an image; its file stays while a machine needs it.
    ///
    /// # Errors
    /// When the name is none, or the disk fails.
    pub async fn remove(&self, name: &str) -> Result<()> {
        self.store.remove(name).await.map_err(|cause| store_failed("image not removed", cause))
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

/// An error that all who waited for a pull share.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<PullError>);

fn pull_failed(cause: Arc<PullError>) -> Error {
    Error::because(kind_of(cause.kind()), "image not pulled", Shared(cause))
}

fn store_failed(what: &'static str, cause: StoreError) -> Error {
    Error::because(kind_of(cause.kind()), what, cause)
}

fn kind_of(kind: ErrorKind) -> Kind {
    match kind {
        ErrorKind::InvalidName => Kind::Invalid,
        ErrorKind::NotFound => Kind::NotFound,
        ErrorKind::Denied => Kind::Denied,
        ErrorKind::Refused | ErrorKind::DigestMismatch => Kind::State,
        ErrorKind::Server => Kind::Unavailable,
        ErrorKind::Deadline => Kind::Deadline,
        ErrorKind::Exhausted => Kind::Exhausted,
        ErrorKind::Internal => Kind::Internal,
    }
}
