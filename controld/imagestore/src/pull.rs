//! One pull, step by step: translate, ask, take in, judge, publish.
//!
//! Runs as the task of a flight and may be dropped at any await: the connection closes, the part file goes. Only the
//! last step cannot be cut in half, as it runs on a thread of its own.

use std::io;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;

use crate::error::{ErrorKind, of_io};
use crate::inspect::{self, HEAD, Policy, Refusal};
use crate::intake::{Intake, IntakeError};
use crate::name::{Algorithm, Digest, ImageId, ImageRef, NameError};
use crate::net::{Artifact, Ask, FetchError, Opened};
use crate::provider::{Choice, Locator, Platform, ProviderError, Registry, Want};
use crate::shelf::{DiskError, Image, Origin, Received, Shelf, free};
use crate::translate::{TranslateError, Translator, Wanted};

mod flight;

pub(crate) use flight::Flights;
pub use flight::Progress;

/// What is read at once.
const ROOM: usize = 256 * 1024;

/// Why an image was not pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// The name is none.
    #[error("`{name}` is no image name")]
    Name {
        /// The caller's text.
        name: String,
        /// Why not.
        #[source]
        cause: NameError,
    },
    /// An id or a bare digest says where nothing is.
    #[error("image `{digest}` is not in the store, and an id does not say where to pull it from; use its name")]
    OnlyDigest {
        /// The digest.
        digest: String,
    },
    /// The name has no URL.
    #[error("failed to translate image `{image}`")]
    Translate {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        cause: TranslateError,
    },
    /// The download failed.
    #[error("failed to pull image `{image}` from `{url}` ({by})")]
    Download {
        /// The image.
        image: ImageRef,
        /// Where from, without credentials.
        url: String,
        /// The rule that said so.
        by: String,
        /// Why.
        #[source]
        cause: DownloadError,
    },
    /// The store failed.
    #[error("failed to store image `{image}`")]
    Store {
        /// The image.
        image: ImageRef,
        /// Why.
        #[source]
        cause: DiskError,
    },
    /// A thread or task panicked.
    #[error("pull of image `{image}` ended early")]
    Lost {
        /// The image.
        image: ImageRef,
        /// How, if that is known.
        #[source]
        cause: Option<JoinError>,
    },
}

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server or the way to it.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Who was to know where it is.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Our disk.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The image.
    #[error("image refused")]
    Refused(#[from] Refusal),
    /// Reading it back for the last verdict.
    #[error("failed to read the image back")]
    Reread(#[source] io::Error),
    /// Nothing came that was asked for without conditions.
    #[error("server says that nothing changed, though it was not asked")]
    Unchanged,
    /// Nobody could tell a whole image from a part of one.
    #[error("server gives no length, so a part would look like the whole; let it send one, or pull by digest")]
    Undelimited,
    /// Too large a file.
    #[error("image has more than the {limit} bytes that are allowed")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// It would not fit.
    #[error("image needs {needed} bytes, and the store's disk has {free} left")]
    NoSpace {
        /// What was announced.
        needed: u64,
        /// What is left.
        free: u64,
    },
    /// Other bytes than the name demands.
    #[error("digest mismatch: the name demands `{wanted}`, the server sent `{got}`")]
    Digest {
        /// As in the name.
        wanted: Digest,
        /// As it came.
        got: Digest,
    },
    /// The store.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A thread panicked.
    #[error("a thread of the download ended early")]
    Lost(#[source] JoinError),
}

impl PullError {
    /// The class of the failure.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name { .. } => ErrorKind::InvalidName,
            Self::OnlyDigest { .. } => ErrorKind::NotFound,
            Self::Translate { cause, .. } => match cause {
                TranslateError::Untranslated { .. } | TranslateError::Platform { .. } => ErrorKind::NotFound,
                TranslateError::Property { .. } => ErrorKind::InvalidName,
                TranslateError::Url { .. } => ErrorKind::InvalidName,
                TranslateError::Rules(_) => ErrorKind::Internal,
            },
            Self::Download { cause, .. } => cause.kind(),
            Self::Store { cause, .. } => cause.kind(),
            Self::Lost { .. } => ErrorKind::Internal,
        }
    }
}

impl DownloadError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Fetch(error) => error.kind(),
            Self::Provider(error) => error.kind(),
            Self::Intake(error) => error.kind(),
            Self::Disk(error) => error.kind(),
            Self::Reread(error) => of_io(error),
            Self::Refused(_) => ErrorKind::Refused,
            Self::Undelimited | Self::Unchanged => ErrorKind::Server,
            Self::TooLarge { .. } | Self::NoSpace { .. } => ErrorKind::Exhausted,
            Self::Digest { .. } => ErrorKind::DigestMismatch,
            Self::Lost(_) => ErrorKind::Internal,
        }
    }
}

/// What pulls need.
#[derive(Debug)]
pub(crate) struct Puller {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) translator: Translator,
    pub(crate) registry: Registry,
    pub(crate) policy: Policy,
    pub(crate) max_artifact: u64,
    pub(crate) slots: Semaphore,
}

impl Puller {
    pub(crate) async fn pull(
        self: Arc<Self>,
        image: ImageRef,
        progress: watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        // Bytes that the name demands and that are here need no server.
        let known = {
            let (this, image) = (self.clone(), image.clone());
            off_reactor(&image.clone(), move || this.shelf.adopt(&image)).await?
        };
        match known {
            Ok(Some(known)) => return Ok(known),
            Ok(None) => {}
            Err(cause) => return Err(PullError::Store { image, cause }),
        }
        // Never closed; without a slot the pull would only be less polite.
        let _slot = self.slots.acquire().await.ok();
        let translated = {
            let (this, name) = (self.clone(), image.name().clone());
            off_reactor(&image, move || {
                let platform = Platform::default();
                this.translator.translate(&name, &Wanted { handler: "", platform: &platform, configs: None })
            })
            .await?
        };
        let locator = translated.map_err(|cause| PullError::Translate { image: image.clone(), cause })?.locator;
        tracing::info!(%image, url = %locator, by = locator.by(), "pull started");
        let failed = |cause| PullError::Download {
            image: image.clone(),
            url: locator.to_string(),
            by: locator.by().to_owned(),
            cause,
        };
        let (received, origin) = self.download(&image, &locator, &progress).await.map_err(failed)?;
        let published = {
            let (this, image) = (self.clone(), image.clone());
            off_reactor(&image.clone(), move || this.publish(received, &image, origin)).await?
        };
        let published = published.map_err(failed)?;
        tracing::info!(%image, id = %published.id, "pull done");
        Ok(published)
    }

    async fn download(
        self: &Arc<Self>,
        image: &ImageRef,
        locator: &Locator,
        progress: &watch::Sender<Progress>,
    ) -> Result<(Received, Origin), DownloadError> {
        let Choice { provider, image: remote } = self.registry.resolve(locator, &Want::default()).await?;
        let Opened::Artifact(mut artifact) = provider.open(&remote, &Ask::default()).await? else {
            return Err(DownloadError::Unchanged);
        };
        if !artifact.delimited && image.digest().is_none() {
            return Err(DownloadError::Undelimited);
        }
        progress.send_replace(Progress { bytes: 0, total: artifact.length });
        let want = image.digest().map_or(Algorithm::Sha256, Digest::algorithm);
        let mut intake = {
            let (this, length) = (self.clone(), artifact.length);
            let started = tokio::task::spawn_blocking(move || this.start_intake(length, want)).await;
            started.map_err(DownloadError::Lost)??
        };
        self.receive(&mut artifact, &mut intake, progress).await?;
        let received = intake.finish().await?;
        let got = match want {
            Algorithm::Sha256 => Some(&received.sha256),
            Algorithm::Sha512 => received.sha512.as_ref(),
        };
        match (image.digest(), got) {
            (Some(wanted), Some(got)) if wanted != got => {
                return Err(DownloadError::Digest { wanted: wanted.clone(), got: got.clone() });
            }
            _ => {}
        }
        let origin = Origin {
            source: Some(locator.to_string()),
            by: Some(locator.by().to_owned()),
            etag: artifact.validators.etag,
            last_modified: artifact.validators.last_modified,
        };
        Ok((received, origin))
    }

    fn start_intake(&self, length: Option<u64>, want: Algorithm) -> Result<Intake, DownloadError> {
        let disk = self.shelf.disk();
        let needed = length.unwrap_or(0);
        if needed > self.max_artifact {
            return Err(DownloadError::TooLarge { limit: self.max_artifact });
        }
        match free(disk)? {
            // A raw image may be mostly holes.
            Some(free) if needed > free && !self.policy.allow_raw => Err(DownloadError::NoSpace { needed, free }),
            _ => Ok(Intake::start(disk, want)?),
        }
    }

    /// Takes the body in, and stops as soon as its beginning is no image.
    async fn receive(
        &self,
        artifact: &mut Artifact,
        intake: &mut Intake,
        progress: &watch::Sender<Progress>,
    ) -> Result<(), DownloadError> {
        let mut head = Some(Vec::with_capacity(HEAD));
        let mut bytes = 0;
        let web_page = artifact.web_page;
        let mut room = vec![0; ROOM];
        loop {
            let chunk = match artifact.body.read(&mut room).await? {
                0 => break,
                count => &room[..count],
            };
            bytes += chunk.len() as u64;
            if bytes > self.max_artifact {
                return Err(DownloadError::TooLarge { limit: self.max_artifact });
            }
            if let Some(beginning) = &mut head {
                beginning.extend_from_slice(&chunk[..chunk.len().min(HEAD - beginning.len())]);
                if beginning.len() == HEAD {
                    inspect::check_head(beginning, artifact.length, false, web_page, self.policy)?;
                    head = None;
                }
            }
            intake.push(chunk).await?;
            progress.send_replace(Progress { bytes, total: artifact.length });
        }
        if bytes == 0 {
            return Err(FetchError::Empty.into());
        }
        if let Some(all) = head {
            inspect::check_head(&all, None, true, web_page, self.policy)?;
        }
        Ok(())
    }

    fn publish(&self, received: Received, image: &ImageRef, origin: Origin) -> Result<Image, DownloadError> {
        let verdict = inspect::check_file(received.part.file(), received.length, self.policy);
        let info = verdict.map_err(DownloadError::Reread)??;
        Ok(self.shelf.publish(received, info, image, origin)?)
    }
}

/// Names that cannot be pulled, as an error.
pub(crate) fn only_digest(id: Option<ImageId>, digest: Option<Digest>) -> PullError {
    let digest = id.map(|id| id.to_string()).or_else(|| digest.map(|digest| digest.to_string()));
    PullError::OnlyDigest { digest: digest.unwrap_or_default() }
}

async fn off_reactor<T: Send + 'static>(
    image: &ImageRef,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, PullError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| PullError::Lost { image: image.clone(), cause: Some(cause) })
}
