//! One pull, step by step: translate, find, ask whether it changed, take in, judge, publish, bind.
//!
//! ```text
//! Store::pull -> flight of the order -> rule or name -> was it given to this login lately? ([`grant`])
//!                                                            | no
//!                                                         provider -> what is here already?
//!                                                                     | no
//!                              bind under the name <- flight of the artifact: download, judge, keep
//! ```
//!
//! A layer has its name once all that it stands on is below it ([`layers`]). The flight of an artifact waits for no other,
//! so pulls of images that stand on each other never wait in a circle.
//!
//! Runs as the task of a flight and may be dropped at any await: the connection closes, the part file goes, or stays to
//! be gone on with. Only what changes the content store cannot be cut in half, as it runs on a thread of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinError;

use crate::digest::ImageId;
use crate::formats::convert::{Converter, ForeignFormat};
use crate::formats::declared::Declared;
use crate::formats::decode::Decompressor;
use crate::formats::inspect::{DiskFormat, Expected, Policy};
use crate::sources::net::{Ask, Validators};
use crate::sources::provider::{Choice, Promise, Registry, Want};
use crate::sources::translate::{Translated, Translator};
use crate::storage::config::{Layers, Limits};
use crate::storage::content::{ContentStore, DiskError, Hold, Image, Key, Origin};

mod converted;
mod download;
mod error;
mod find;
mod flight;
mod given;
mod grant;
mod hosts;
mod job;
mod land;
mod lanes;
mod layers;
mod login;
mod origin;
mod progress;
mod source;

pub use error::{DownloadError, LayerError, PullError};
use find::Found;
pub(crate) use flight::Flights;
use grant::{Age, Claim};
use hosts::Hosts;
use job::Job;
use land::Landed;
use login::fingerprint;
pub(crate) use origin::sought;
use origin::{origin, place, promise_of, site};
use progress::Meter;
pub use progress::{Phase, Progress};

/// What is to be pulled, and how.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// The name, and for which handler.
    pub(crate) key: Key,
    /// The handler's own name.
    pub(crate) handler: String,
    /// The handler's platform, and the credentials of the one who asks.
    pub(crate) want: Want,
    /// The only provider that may be asked, if one is named.
    pub(crate) provider: Option<String>,
    /// Translation files that hold for the handler; all if none are named.
    pub(crate) translations: Option<BTreeSet<String>>,
    /// Providers that may be asked for the handler; all if none are named.
    pub(crate) providers: Option<BTreeSet<String>>,
    /// Formats that the handler takes; all if none are named.
    pub(crate) formats: Option<BTreeSet<DiskFormat>>,
    /// Whether to download also what did not change.
    pub(crate) force: bool,
    /// What to do about what an image stands on.
    pub(crate) layers: Layers,
}

/// Tells apart what may come out differently: the flight that an order shares with others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    pub(crate) key: Key,
    /// Digest of the login, and all else.
    how: String,
}

impl Order {
    pub(crate) fn ticket(&self) -> Ticket {
        let Self { key, want, provider, force, layers, .. } = self;
        Ticket { key: key.clone(), how: format!("{} {provider:?} {force} {layers:?}", fingerprint(want)) }
    }
}

/// What works on hostile bytes in processes of their own.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) decompressor: Decompressor,
    /// Formats that are converted.
    pub(crate) convert: BTreeSet<ForeignFormat>,
    pub(crate) converter: Converter,
}

/// Puts image files into the content store, and names to them.
#[derive(Debug)]
pub(crate) struct Puller {
    content: Arc<ContentStore>,
    translator: Translator,
    registry: Registry,
    policy: Policy,
    limits: Limits,
    programs: Programs,
    slots: Semaphore,
    hosts: Arc<Hosts>,
    flights: Arc<Flights<String, Result<Landed, Arc<DownloadError>>>>,
}

impl Puller {
    pub(crate) fn new(
        content: Arc<ContentStore>,
        translator: Translator,
        registry: Registry,
        policy: Policy,
        limits: Limits,
        programs: Programs,
    ) -> Self {
        let slots = Semaphore::new(limits.downloads.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            content,
            translator,
            registry,
            policy,
            limits,
            programs,
            slots,
            hosts: Arc::default(),
            flights: Arc::default(),
        }
    }

    pub(crate) fn translator(&self) -> &Translator {
        &self.translator
    }

    /// Providers in the order in which they are asked.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) async fn pull(
        self: Arc<Self>,
        order: Order,
        progress: watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        let image = order.key.image.clone();
        let lost = |cause| PullError::Lost { image: image.clone(), cause: Some(cause) };
        let (way, claim) = {
            let (this, order) = (self.clone(), order.clone());
            off_reactor(move || this.way(&order)).await.map_err(lost)??
        };
        let is_pinned = image.digest().is_some() || way.demanded().1.is_some();
        if !order.force && is_pinned {
            let fresh = Age::Within(self.limits.granted_for);
            if let Some(known) = self.granted(&order, way.demanded(), &claim, fresh).await? {
                tracing::debug!(image = %image, id = %known.id, "given to this login lately, source not asked");
                return Ok(known);
            }
        }
        let found = self.find(&order, way).await?;
        let failed = |cause: Arc<DownloadError>| PullError::Download {
            image: image.clone(),
            url: found.choice.image.shown.clone().into(),
            by: found.by.clone().into(),
            cause,
        };
        self.fetch(&order, &found, &claim, &progress).await.map_err(failed)
    }

    /// Has the image of an order in the content store and under its name.
    async fn fetch(
        self: &Arc<Self>,
        order: &Order,
        found: &Found,
        claim: &Arc<Claim>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Image, Arc<DownloadError>> {
        let Found { choice: Choice { image: remote, .. }, digest, .. } = found;
        // What the provider found by a digest is what that digest means; otherwise it is that of the bytes.
        let found_by = |promise: &Promise| {
            remote.registered.as_ref().is_some_and(|registered| registered.digests.contains(&promise.hash))
        };
        let demanded = order.key.image.digest().into_iter().chain(digest).map(promise_of);
        let demanded = demanded.filter(|promise| !found_by(promise));
        let promises: Vec<_> = remote.promises.iter().cloned().chain(demanded).collect();
        let origin = origin(order, found, &promises, &place(found));
        let landed = self.obtain(order, found, promises, progress).await?;
        let below =
            self.settle(order, &landed.hold, &found.choice, progress).await.map_err(|cause| Arc::new(cause.into()))?;
        let Validators { etag, last_modified } = landed.validators;
        let origin = Origin { etag, last_modified, ..origin };
        let bound = self.bind(order, found.declared, landed.hold, origin, claim).await.map_err(Arc::new)?;
        // From here on its name keeps them.
        drop(below);
        tracing::debug!(image = %order.key.image, id = %bound.id, "pull done");
        Ok(bound)
    }

    /// Has the bytes of an image in the content store, whatever they stand on.
    async fn obtain(
        self: &Arc<Self>,
        order: &Order,
        found: &Found,
        promises: Vec<Promise>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Landed, Arc<DownloadError>> {
        let Found { choice: Choice { provider, image: remote }, by, declared, .. } = found;
        let foreign = found.foreign();
        let here = match order.force {
            true => None,
            false => self.hold_promised(&promises, foreign, provider.id()).await?,
        };
        let place = place(found);
        let known = match here {
            // The source itself has said, to the one who asks, that it has these bytes.
            Some(hold) if !remote.promises.is_empty() => {
                tracing::info!(from = remote.shown, id = %hold.id(), "image is here already");
                return Ok(Landed { hold: Arc::new(hold), validators: Validators::default() });
            }
            // The operator says that it has them. Whether it has them for the one who asks is its own to say.
            Some(hold) if found.digest.is_some() => {
                self.ask_leave(found).await?;
                tracing::info!(from = remote.shown, id = %hold.id(), "image is here already, and may be had");
                return Ok(Landed { hold: Arc::new(hold), validators: Validators::default() });
            }
            // Only the name says so. If it came from there before, whoever asked, the source is asked whether it still has
            // it for this one; otherwise nothing but the bytes themselves shows that it has them at all.
            Some(hold) => {
                let (id, site) = (hold.id().clone(), site(found));
                self.known_at(move |of, origin| *of == id && origin.site.as_ref() == Some(&site)).await?
            }
            // What is promised and not here is not what is here, whatever the server says of that.
            None if order.force || !promises.is_empty() => None,
            None => {
                let place = place.clone();
                self.known_at(move |_, origin| origin.place.as_ref() == Some(&place)).await?
            }
        };
        let layered = order.layers != Layers::Refuse;
        let key = format!("{place} {} {promises:?} {declared:?}", order.want.platform);
        // What is converted is qcow2 by then, and stands on nothing.
        let expected = match *declared {
            Some(Declared::Foreign(_)) => Expected { declared: Some(DiskFormat::Qcow2), ..self.policy.into() },
            Some(Declared::Kept(format)) => Expected { declared: Some(format), layered, ..self.policy.into() },
            None => Expected { layered, ..self.policy.into() },
        };
        let flight = format!("{key} {} {layered} {}", order.force, fingerprint(&order.want));
        let (provider, remote) = (provider.clone(), remote.clone());
        let job = Job { provider, remote, known, expected, foreign, key, promises };
        let flight = self.flights.join(&flight, |told| {
            let (this, job) = (self.clone(), Arc::new(job));
            tracing::info!(image = %order.key.image, from = job.remote.shown, by, "pull started");
            async move { this.land(&job, Meter::new(told)).await.map_err(Arc::new) }
        });
        flight.outcome_with(progress).await.unwrap_or(Err(Arc::new(DownloadError::Ended)))
    }

    /// Asks a source for an image as if it were to be downloaded: what it refuses, it refuses before the bytes.
    async fn ask_leave(&self, found: &Found) -> Result<(), DownloadError> {
        let Choice { provider, image } = &found.choice;
        let _polite = self.hosts.enter(&image.source).await;
        Ok(provider.open(image, &Ask::default()).await.map(drop)?)
    }

    /// What is here from a place, if the place can be asked whether it changed.
    async fn known_at(
        self: &Arc<Self>,
        is_it: impl Fn(&ImageId, &Origin) -> bool + Send + 'static,
    ) -> Result<Option<(ImageId, Validators)>, DownloadError> {
        let this = self.clone();
        let known = off_reactor(move || {
            let Some((id, Origin { etag, last_modified, .. })) = this.content.known_at(is_it) else { return Ok(None) };
            // Without a sound file, to hear that it did not change is of no use.
            Ok::<_, DiskError>(this.content.hold_sound(&id)?.map(|_| (id, Validators { etag, last_modified })))
        });
        Ok(known.await??.filter(|(_, validators)| !validators.is_empty()))
    }

    async fn hold_promised(
        self: &Arc<Self>,
        promises: &[Promise],
        foreign: Option<ForeignFormat>,
        provider: &str,
    ) -> Result<Option<Hold>, DownloadError> {
        let sought: Vec<_> = promises.iter().map(|promise| sought(promise, foreign)).collect();
        let (this, provider) = (self.clone(), provider.to_owned());
        Ok(off_reactor(move || this.content.hold_promised(&sought, &provider)).await??)
    }

    /// Gives the image of a download the name that was asked for.
    async fn bind(
        self: &Arc<Self>,
        order: &Order,
        declared: Option<Declared>,
        hold: Arc<Hold>,
        origin: Origin,
        claim: &Arc<Claim>,
    ) -> Result<Image, DownloadError> {
        let (this, order, claim) = (self.clone(), order.clone(), claim.clone());
        off_reactor(move || {
            this.check_format(&order, declared, hold.id())?;
            let before = this.content.remembered(&order.key).filter(|(image, _)| image.id == *hold.id());
            let is_bound = before.is_some();
            let granted = before.and_then(|(_, before)| before.granted).unwrap_or_default();
            let granted = Some(claim.granted(granted, this.limits.granted_for));
            let origin = Origin { granted, ..origin };
            let bound = match is_bound {
                true => this.content.confirm(&order.key, origin)?,
                false => this.content.reuse(&order.key, hold.id(), origin)?,
            };
            bound.ok_or(DownloadError::Gone)
        })
        .await?
    }

    /// Whether the handler takes images of its format, and whether it is the one that was declared: what was here
    /// already may have come under another name.
    fn check_format(&self, order: &Order, declared: Option<Declared>, id: &ImageId) -> Result<(), DownloadError> {
        let Some(format) = self.content.format(id) else { return Ok(()) };
        if let Some(Declared::Kept(declared)) = declared
            && declared != format
        {
            return Err(DownloadError::Other { format, declared });
        }
        match &order.formats {
            Some(taken) if !taken.contains(&format) => Err(DownloadError::Format { format }),
            _ => Ok(()),
        }
    }
}

async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    tokio::task::spawn_blocking(work).await
}
