//! The flight of an artifact: downloads what is not here, judges it and puts it into the content store, under no name yet.

use std::sync::Arc;

use super::download::Arrived;
use super::job::Job;
use super::progress::Meter;
use super::{DownloadError, Puller, off_reactor, sought};
use crate::digest::ImageId;
use crate::formats::inspect;
use crate::sources::net::Validators;
use crate::sources::provider::Covers;
use crate::storage::content::{Alias, Facts, Hold, Parent, Received, Sought};

/// An image in the content store that has no name yet, or was there before.
#[derive(Debug, Clone)]
pub(super) struct Landed {
    pub(super) hold: Arc<Hold>,
    pub(super) validators: Validators,
}

impl Puller {
    /// Downloads what is not here, and puts it into the content store.
    pub(super) async fn land(self: &Arc<Self>, job: &Arc<Job>, mut meter: Meter) -> Result<Landed, DownloadError> {
        // Never closed; without a slot the download would only be less polite.
        let _slot = self.slots.acquire().await.ok();
        let arrived = match self.download(job, &mut meter).await? {
            // What was here went in the meantime.
            Arrived::Unchanged(id) => match self.hold(id).await? {
                Some(hold) => return Ok(Landed { hold: Arc::new(hold), validators: job.validators() }),
                None => {
                    let job = Arc::new(job.anew());
                    self.download(&job, &mut meter).await?
                }
            },
            arrived => arrived,
        };
        let Arrived::New(mut received, validators) = arrived else { return Err(DownloadError::Unchanged) };
        if let Some(format) = job.foreign {
            received = self.converted(format, received).await?;
        }
        let (this, job) = (self.clone(), job.clone());
        let hold = off_reactor(move || this.judge_and_keep(&job, received)).await??;
        Ok(Landed { hold: Arc::new(hold), validators })
    }

    async fn hold(self: &Arc<Self>, id: ImageId) -> Result<Option<Hold>, DownloadError> {
        let this = self.clone();
        Ok(off_reactor(move || this.content.hold_sound(&id)).await??)
    }

    /// Judges what came, and puts it into the content store.
    fn judge_and_keep(&self, job: &Job, received: Received) -> Result<Hold, DownloadError> {
        let verdict = inspect::examine(received.part.file(), received.length, job.expected);
        let summary = verdict.map_err(DownloadError::Reread)??;
        let parent = summary.parent().map(|parent| Parent {
            named: parent.reference.to_string(),
            format: parent.format,
            id: None,
        });
        // What a rule demands is the digest of what is stored, and is known by that, unless it was converted.
        let promises = if job.foreign.is_some() { &job.promises } else { &job.remote.promises };
        let aliases = promises.iter().map(|promise| {
            let Sought { hash, covers, foreign } = sought(promise, job.foreign);
            // What comes out of an archive is its provider's word, as weak hashes are.
            let unpacked = job.remote.unpack.is_some() && promise.covers != Covers::Content;
            let own = unpacked || !promise.hash.alg().is_strong();
            Alias { hash, covers, provider: own.then(|| job.provider.id().to_owned()), foreign }
        });
        let facts = Facts { aliases: aliases.collect(), parent, ..Facts::from(summary.info()) };
        Ok(self.content.keep(received, facts)?)
    }
}
