//! One pull, in the order in which it happens. [`Store::pull`](super::store::Store::pull) has parsed the name; callers
//! that ask for the same thing at the same time share one task ([`flight`]), which runs [`Puller::pull`]:
//!
//! 1. Apply the translation rules to the name ([`way`]).
//! 2. If the name or its rule has a digest, and the source gave these bytes to the same login lately, take them from the
//!    content store and ask nobody ([`grant`], [`given`]).
//! 3. Ask providers where the image is, and which digests it must have ([`find`]).
//! 4. If its bytes are in the content store and the caller may have them, download nothing ([`here`]).
//! 5. Otherwise download it: one task for all that want the same bytes ([`job`]). Resume what broke off, decompress, hash
//!    and write in one pass, and compare with every promised digest ([`download`], [`ingest`](super::ingest)).
//! 6. Convert a foreign format to qcow2 ([`converted`]).
//! 7. Inspect the whole file, and publish it under its digest ([`keep`]).
//! 8. Do steps 3 to 7 for the images that it stands on ([`layers`]).
//! 9. Give it the name that was asked for ([`Puller::bind`]).
//!
//! A download waits for no other one, so pulls of images that stand on each other never wait in a circle.
//!
//! The task of a pull may be dropped at any await: the connection closes, and the part file is removed, or kept to be
//! resumed. Only a change of the content store is never cut in half: it runs on a thread of its own.

use std::collections::BTreeSet;
use std::sync::Arc;

use common::off_reactor;
use tokio::sync::watch;
use vmimage::convert::{Converter, ForeignFormat};
use vmimage::declared::Declared;
use vmimage::decode::Decompressor;
use vmimage::inspect::Policy;

use crate::sources::net::Validators;
use crate::sources::provider::{Choice, Promise, Registry};
use crate::sources::translate::Translator;
use crate::storage::config::Limits;
use crate::storage::content::{ContentStore, Hold, Image, Origin};

mod accept;
mod converted;
mod download;
mod error;
mod find;
mod flight;
mod given;
mod grant;
mod here;
mod hosts;
mod import;
mod job;
mod keep;
mod lanes;
mod layers;
mod login;
mod order;
mod origin;
mod progress;
mod slots;
mod source;
mod way;

use download::Arrived;
pub use error::{DownloadError, LayerError, PullError};
use find::Found;
pub(crate) use flight::Flights;
use grant::{Age, Claim};
use here::Here;
use hosts::Hosts;
use job::Job;
pub(crate) use order::{Order, Ticket};
pub(crate) use origin::sought;
use origin::{origin, place, promise_of};
use progress::Meter;
pub use progress::{Phase, Progress};
pub use slots::Downloads;
use slots::Slots;

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
    slots: Slots,
    hosts: Arc<Hosts>,
    flights: Arc<Flights<String, Result<Landed, Arc<DownloadError>>>>,
}

/// An image in the content store that may have no name yet.
#[derive(Debug, Clone)]
struct Landed {
    hold: Arc<Hold>,
    /// What its source said of it, to recognise it by the next time.
    validators: Validators,
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
        let slots = Slots::new(limits.downloads);
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

    /// Downloads at this moment.
    pub(crate) fn downloads(&self) -> Downloads {
        self.slots.count()
    }

    /// Providers in the order in which they are asked.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Pulls the image of an order, whoever else may want it.
    pub(crate) async fn pull(
        self: Arc<Self>,
        order: Order,
        progress: watch::Sender<Progress>,
    ) -> Result<Image, PullError> {
        let image = &order.key.image;
        // 1. Rules.
        let way = self.way(&order).await?;
        let claim = Arc::new(Claim::of(&order, &way, &self.registry));
        // 2. Given lately.
        let is_pinned = image.digest().is_some() || way.demanded().1.is_some();
        if !order.force && is_pinned {
            let fresh = Age::Within(self.limits.granted_for);
            if let Some(known) = self.granted(&order, way.demanded(), &claim, fresh).await? {
                tracing::debug!(%image, id = %known.id, "given to this login lately, source not asked");
                return Ok(known);
            }
        }
        // 3. Source.
        let found = self.find(&order, way).await?;
        // 4 to 9.
        self.fetch(&order, &found, &claim, &progress).await.map_err(|cause| PullError::Download {
            image: image.clone(),
            url: found.choice.image.shown.clone().into(),
            by: found.by.clone().into(),
            cause,
        })
    }

    /// Steps 4 to 9, for an image that was found.
    async fn fetch(
        self: &Arc<Self>,
        order: &Order,
        found: &Found,
        claim: &Arc<Claim>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Image, Arc<DownloadError>> {
        let promises = promises(order, found);
        let origin = origin(order, found, &promises, &place(found));
        // 4 to 7.
        let landed = self.obtain(order, found, promises, progress).await?;
        // 8. Layers. They are held until the image has a name, which keeps them from then on.
        let below = self.pull_layers(order, &landed.hold, &found.choice, progress).await;
        let _below = below.map_err(|cause| Arc::new(cause.into()))?;
        // 9. Name.
        let Validators { etag, last_modified } = landed.validators;
        let origin = Origin { etag, last_modified, ..origin };
        let bound = self.bind(order, found.declared, landed.hold, origin, Some(claim)).await.map_err(Arc::new)?;
        tracing::debug!(image = %order.key.image, id = %bound.id, "pull done");
        Ok(bound)
    }

    /// Steps 4 to 7: has the bytes of an image in the content store, whatever they stand on.
    async fn obtain(
        self: &Arc<Self>,
        order: &Order,
        found: &Found,
        promises: Vec<Promise>,
        progress: &watch::Sender<Progress>,
    ) -> Result<Landed, Arc<DownloadError>> {
        // 4. Here already.
        let known = match self.here(order, found, &promises).await? {
            Here::Usable(hold) => return Ok(Landed { hold: Arc::new(hold), validators: Validators::default() }),
            Here::Perhaps(id, validators) => Some((id, validators)),
            Here::No => None,
        };
        // 5 to 7, shared with all that want the same bytes.
        let job = Arc::new(Job::new(order, found, promises, known, self.policy));
        let flight = self.flights.join(&job.flight, |told| {
            let (this, job) = (self.clone(), job.clone());
            tracing::info!(image = %order.key.image, from = job.remote.shown, by = found.by, "pull started");
            async move { this.land(&job, Meter::new(told)).await.map_err(Arc::new) }
        });
        flight.outcome_with(progress).await.unwrap_or(Err(Arc::new(DownloadError::Ended)))
    }

    /// Steps 5 to 7: downloads an image, and puts it into the content store.
    async fn land(self: &Arc<Self>, job: &Arc<Job>, meter: Meter) -> Result<Landed, DownloadError> {
        let _slot = self.slots.enter().await;
        self.receive(job, meter).await
    }

    /// The same without waiting for a turn.
    async fn receive(self: &Arc<Self>, job: &Arc<Job>, mut meter: Meter) -> Result<Landed, DownloadError> {
        // 5. Download.
        let mut arrived = self.download(job, &mut meter).await?;
        if let Arrived::Unchanged(id) = arrived {
            let this = self.clone();
            if let Some(hold) = off_reactor(move || this.content.hold_sound(&id)).await? {
                return Ok(Landed { hold: Arc::new(hold), validators: job.validators() });
            }
            // It was removed in the meantime.
            arrived = self.download(&Arc::new(job.anew()), &mut meter).await?;
        }
        let Arrived::New(mut received, validators) = arrived else { return Err(DownloadError::Unchanged) };
        // 6. Conversion.
        if let Some(format) = job.foreign {
            received = self.converted(format, received).await?;
        }
        // 7. Inspection, publication.
        let (this, job) = (self.clone(), job.clone());
        let hold = off_reactor(move || this.judge_and_keep(&job, received)).await?;
        Ok(Landed { hold: Arc::new(hold), validators })
    }

    /// Step 9: gives the image of a download the name that was asked for. Without a claim no source has given it to anybody.
    async fn bind(
        self: &Arc<Self>,
        order: &Order,
        declared: Option<Declared>,
        hold: Arc<Hold>,
        origin: Origin,
        claim: Option<&Arc<Claim>>,
    ) -> Result<Image, DownloadError> {
        let (this, order, claim) = (self.clone(), order.clone(), claim.cloned());
        off_reactor(move || {
            this.check_format(&order, declared, hold.id())?;
            let before = this.content.remembered(&order.key).filter(|(image, _)| image.id == *hold.id());
            let is_bound = before.is_some();
            let granted = before.and_then(|(_, before)| before.granted).unwrap_or_default();
            let granted = Some(claim.map_or_else(Vec::new, |claim| claim.granted(granted, this.limits.granted_for)));
            let origin = Origin { granted, ..origin };
            let bound = match is_bound {
                true => this.content.confirm(&order.key, origin)?,
                false => this.content.reuse(&order.key, hold.id(), origin)?,
            };
            bound.ok_or(DownloadError::Gone)
        })
        .await
    }
}

/// The digests that an image must have: those that its source promises, and those that its name and its rule demand.
fn promises(order: &Order, found: &Found) -> Vec<Promise> {
    let Found { choice: Choice { image: remote, .. }, digest, .. } = found;
    // What the provider found by a digest is what that digest means; otherwise it is that of the bytes.
    let found_by = |promise: &Promise| {
        remote.registered.as_ref().is_some_and(|registered| registered.digests.contains(&promise.hash))
    };
    let demanded = order.key.image.digest().into_iter().chain(digest).map(promise_of);
    let demanded = demanded.filter(|promise| !found_by(promise));
    remote.promises.iter().cloned().chain(demanded).collect()
}
