//! Step 5: one download. Asks the source, ingests the bytes, and resumes where a connection or an earlier attempt broke
//! off.
//!
//! A download can be resumed if the bytes are stored as they come, and the source can tell whether the file is still
//! the same: by a strong validator, or by a strong hash that was promised. It is recorded as a partial.

use std::sync::Arc;

use common::off_reactor;
use vmimage::decode::Compression;
use vmimage::digest::ImageId;
use vmimage::inspect;

use crate::sources::net::{Artifact, Ask, FetchError, Opened, Validators};
use crate::storage::content::{Part, PartialFile, Partials, Received, Resumable, free, reserve};
use crate::storage::ingest::{Ingest, OutputLimits, Plan};

use super::Puller;
use super::error::DownloadError;
use super::job::Job;
use super::progress::{Meter, Phase};
use super::source::{Feed, Opener};

/// Smaller files are fetched anew.
const LEAST_PARTIAL: u64 = 4 << 20;
/// So often a download may begin anew because the server has another file by now.
const BEGINNINGS: usize = 3;

/// What came of it.
#[derive(Debug)]
pub(super) enum Arrived {
    Unchanged(ImageId),
    New(Received, Validators),
}

impl Puller {
    pub(super) async fn download(
        self: &Arc<Self>,
        job: &Arc<Job>,
        meter: &mut Meter,
    ) -> Result<Arrived, DownloadError> {
        for _ in 0..BEGINNINGS {
            match self.attempt(job, meter).await {
                Err(DownloadError::Changing) => tracing::info!(from = job.remote.shown, "image changed, pulled anew"),
                done => {
                    if done.as_ref().is_err_and(DownloadError::is_of_range) {
                        self.forget_partial(job).await?;
                    }
                    return done;
                }
            }
        }
        Err(DownloadError::Changing)
    }

    /// Removes what came of a download so far: its server does not go on with it as it must, and so never will.
    async fn forget_partial(self: &Arc<Self>, job: &Arc<Job>) -> Result<(), DownloadError> {
        let (partials, key) = (Partials::new(self.content.disk()), job.key.clone());
        let forgotten = off_reactor(move || match partials.find(&key)? {
            Some(partial) => partial.discard(),
            // Or somebody else is at it.
            None => Ok(()),
        });
        Ok(forgotten.await?)
    }

    async fn attempt(self: &Arc<Self>, job: &Arc<Job>, meter: &mut Meter) -> Result<Arrived, DownloadError> {
        let partial = {
            let (partials, key) = (Partials::new(self.content.disk()), job.key.clone());
            off_reactor(move || partials.find(&key)).await?
        };
        let known = job.known.as_ref().map(|(_, validators)| validators.clone());
        let ask = Ask { known, from: partial.as_ref().and_then(|partial| job.resume(partial)), until: None };
        let mut opener = Opener::new(job, self);
        let artifact = match (opener.open(&ask).await?, &job.known) {
            (Opened::Artifact(artifact), _) => artifact,
            (Opened::Unchanged, Some((id, _))) => return Ok(Arrived::Unchanged(id.clone())),
            (Opened::Unchanged, None) => return Err(DownloadError::Unchanged),
        };
        self.check(job, &artifact)?;
        let Artifact { length, from, web_page, .. } = artifact;
        let reserve = {
            let (this, needed) = (self.clone(), length.unwrap_or(0).saturating_sub(from));
            off_reactor(move || this.check_room(needed)).await?
        };
        meter.begin(from, length);
        let resumable =
            artifact.resumable || (length.is_some() && job.has_strong_promise() && job.provider.caps().range);
        let validators = artifact.validators.clone();
        let mut feed = Feed::new(opener, artifact, resumable, self.limits.artifact);
        let mut first = (from == 0).then(Ingest::first_block);
        if let Some(first) = &mut first {
            feed.fill(first, meter).await?;
            if first.is_empty() {
                return Err(FetchError::Empty.into());
            }
        }
        let compression = first.as_ref().and_then(|first| Compression::of(first.bytes()));
        let plain = compression.is_none() && job.remote.unpack.is_none();
        let record = length.filter(|length| resumable && plain && *length >= LEAST_PARTIAL).map(|total| Resumable {
            source: job.remote.shown.clone(),
            etag: validators.etag.clone().filter(|_| feed.is_strong()),
            total,
        });
        let mut ingest = {
            let (this, job) = (self.clone(), job.clone());
            let length = length.filter(|_| plain);
            off_reactor(move || {
                let part = this.part(&job, partial, from, record, reserve)?;
                let (expected, foreign) = (job.expected, job.foreign);
                let plan = Plan {
                    compression,
                    decompressor: this.programs.decompressor.clone(),
                    unpack: job.remote.unpack.clone(),
                    promises: job.promises.clone(),
                    limits: this.output_limits(&job),
                    judge: Box::new(move |head, whole| match foreign {
                        // Judged when it is whole, by the parser of its format.
                        Some(_) => Ok(()),
                        None => inspect::check_head(head, length, whole, web_page, expected),
                    }),
                };
                Ok::<_, DownloadError>(Ingest::start(part, plan)?)
            })
            .await?
        };
        if let Some(first) = first {
            ingest.push(first).await?;
        }
        while !feed.is_at_end() {
            let mut block = ingest.room().await?;
            tokio::select! {
                filled = feed.fill(&mut block, meter) => filled?,
                // Junk, or a full disk: nothing that comes makes it better.
                error = ingest.failure() => return Err(error.into()),
            }
            if !block.is_empty() {
                ingest.push(block).await?;
            }
        }
        if let Some(wanted) = job.remote.size.filter(|wanted| *wanted != feed.at()) {
            return Err(DownloadError::Length { wanted, got: feed.at() });
        }
        drop(feed);
        meter.phase(Phase::Storing);
        Ok(Arrived::New(ingest.finish().await?, validators))
    }

    /// What can be said before a byte came.
    fn check(&self, job: &Job, artifact: &Artifact) -> Result<(), DownloadError> {
        if !artifact.delimited && !job.has_strong_promise() {
            return Err(DownloadError::Undelimited);
        }
        let Some(got) = artifact.length else { return Ok(()) };
        if let Some(wanted) = job.remote.size.filter(|wanted| *wanted != got) {
            return Err(DownloadError::Length { wanted, got });
        }
        if got > self.limits.artifact {
            return Err(DownloadError::TooLarge { limit: self.limits.artifact });
        }
        Ok(())
    }

    /// Whether there is room for so many bytes, and how many are to stay free. Blocks.
    fn check_room(&self, needed: u64) -> Result<u64, DownloadError> {
        let disk = self.content.disk();
        let reserve = reserve(disk, self.limits.reserve);
        match free(disk)?.map(|free| free.saturating_sub(reserve)) {
            // A raw image may be mostly holes.
            Some(free) if needed > free && !self.policy.allow_raw => Err(DownloadError::NoSpace { needed, free }),
            _ => Ok(reserve),
        }
    }

    /// The file to write to. Blocks.
    fn part(
        &self,
        job: &Job,
        partial: Option<PartialFile>,
        from: u64,
        record: Option<Resumable>,
        reserve: u64,
    ) -> Result<Part, DownloadError> {
        let disk = self.content.disk();
        let Some(record) = record else {
            // It was one that could be gone on with, and is no more.
            partial.map_or(Ok(()), |partial| partial.discard())?;
            return Ok(Part::create(disk, reserve)?);
        };
        let partial = match partial {
            Some(partial) => Some(partial),
            None => Partials::new(disk).open(&job.key)?,
        };
        match partial {
            Some(partial) => Ok(Part::of_partial(partial, from, record, reserve)?),
            // Somebody else is at it.
            None => Ok(Part::create(disk, reserve)?),
        }
    }

    fn output_limits(&self, job: &Job) -> OutputLimits {
        // The file of a full disk is larger than the disk: by its tables, and, of some foreign formats, by what is
        // left of a last block, which has 256 MiB at most.
        let more: u64 = if job.foreign.is_some() { (256 << 20) + (64 << 20) } else { 64 << 20 };
        let declared = job.remote.metadata.virtual_size.map(|size| size.saturating_add(size / 8).saturating_add(more));
        OutputLimits {
            bytes: self.limits.unpacked.min(declared.unwrap_or(u64::MAX)),
            ratio: self.limits.ratio,
            ratio_from: self.limits.ratio_from,
        }
    }
}
