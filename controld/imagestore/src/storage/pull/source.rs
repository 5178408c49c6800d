//! The bytes of a download in order, over as many connections as it takes.
//!
//! A connection that breaks is replaced by one that resumes at the same byte, if the source can tell that it still has
//! the same file. That is tried as long as bytes come in between, and [`BREAKS`] times in a row otherwise. Where one
//! connection is slow, several are tried ([`Lanes`]).

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::sources::net::{Artifact, Ask, Body, FetchError, Opened, Resume};
use crate::sources::provider::ProviderError;
use crate::storage::ingest::Block;

use super::Puller;
use super::error::DownloadError;
use super::job::Job;
use super::lanes::{Lanes, Pace};
use super::progress::Meter;

/// So often a connection may break in a row without anything to show for it.
const BREAKS: usize = 5;
/// Bytes that are something to show.
const STRETCH: u64 = 1 << 20;

/// Opens the source of a job, with leave of its host.
pub(super) struct Opener {
    job: Arc<Job>,
    puller: Arc<Puller>,
    /// Of the connection that was opened last.
    _leave: Option<OwnedSemaphorePermit>,
}

impl Opener {
    pub(super) fn new(job: &Arc<Job>, puller: &Arc<Puller>) -> Self {
        Self { job: job.clone(), puller: puller.clone(), _leave: None }
    }

    pub(super) async fn open(&mut self, ask: &Ask) -> Result<Opened, ProviderError> {
        let Job { provider, remote, .. } = &*self.job;
        if self._leave.is_none() {
            self._leave = self.puller.hosts.enter(&remote.source).await;
        }
        provider.open(remote, ask).await
    }
}

/// The bytes.
pub(super) struct Feed {
    opener: Opener,
    body: Box<dyn Body>,
    resume: Option<Resume>,
    strong: bool,
    limit: u64,
    at: u64,
    ended: bool,
    pace: Pace,
    /// In place of the body.
    lanes: Option<Lanes>,
    /// When the bytes before came.
    since: Instant,
    breaks: usize,
    /// Where the last break was.
    broke_at: u64,
}

impl Feed {
    /// The bytes of an artifact, and those that are missing if it breaks off and is `resumable`.
    pub(super) fn new(opener: Opener, artifact: Artifact, resumable: bool, limit: u64) -> Self {
        let Artifact { length, from, body, validators, resumable: strong, .. } = artifact;
        let resume = Resume { at: 0, etag: validators.etag.filter(|_| strong), total: length };
        let resume = resumable.then_some(resume);
        Self {
            opener,
            body,
            resume,
            strong,
            limit,
            at: from,
            ended: false,
            pace: Pace::new(),
            lanes: None,
            since: Instant::now(),
            breaks: 0,
            broke_at: from,
        }
    }

    /// Where the next byte is.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.ended
    }

    /// Whether the source has a strong validator.
    pub(super) fn is_strong(&self) -> bool {
        self.strong
    }

    /// Fills a block, unless the end comes before it is full.
    pub(super) async fn fill(&mut self, block: &mut Block, meter: &mut Meter) -> Result<(), DownloadError> {
        while !block.is_full() && !self.ended {
            let asked = Instant::now();
            let count = match &mut self.lanes {
                Some(lanes) => match lanes.read(block.room()).await {
                    Ok(count) => count,
                    // Whatever it was: one connection shows it, or does without.
                    Err(error) => {
                        tracing::info!(from = self.opener.job.remote.shown, at = self.at, %error, "one connection from now on");
                        self.lanes = None;
                        self.reopen().await?;
                        continue;
                    }
                },
                None => match self.body.read(block.room()).await {
                    Ok(count) => count,
                    Err(error) => {
                        self.go_on(error).await?;
                        continue;
                    }
                },
            };
            if count == 0 {
                self.ended = true;
                break;
            }
            block.advance(count);
            self.at += count as u64;
            if self.at > self.limit {
                return Err(DownloadError::TooLarge { limit: self.limit });
            }
            meter.note(self.at);
            self.adapt(count as u64, asked).await?;
        }
        Ok(())
    }

    /// Takes another number of connections, if that is better.
    async fn adapt(&mut self, count: u64, asked: Instant) -> Result<(), DownloadError> {
        let now = Instant::now();
        let (time, waited) = (now - self.since, now - asked);
        self.since = now;
        // Without a strong validator nobody knows whether segments are of the same file.
        let Some(Resume { etag: Some(etag), total: Some(total), .. }) = &self.resume else { return Ok(()) };
        let total = *total;
        match self.pace.note(count, time, waited, total - self.at.min(total)) {
            None => {}
            Some(1) => {
                self.lanes = None;
                self.reopen().await?;
            }
            Some(count) => {
                tracing::debug!(from = self.opener.job.remote.shown, at = self.at, count, "connections side by side");
                let Opener { job, puller, .. } = &self.opener;
                let etag = || Some(etag.clone());
                let lanes = self.lanes.get_or_insert_with(|| Lanes::new(job, &puller.hosts, etag(), self.at, total));
                lanes.set_count(count);
                // Its connection is of no more use.
                self.body = Box::new(Nothing);
            }
        }
        Ok(())
    }

    /// Replaces a connection that broke.
    async fn go_on(&mut self, error: FetchError) -> Result<(), DownloadError> {
        if self.resume.is_none() || !may_pass(&error) {
            return Err(error.into());
        }
        self.breaks = if self.at - self.broke_at >= STRETCH { 1 } else { self.breaks + 1 };
        self.broke_at = self.at;
        if self.breaks > BREAKS || self.at == 0 {
            return Err(error.into());
        }
        tracing::info!(from = self.opener.job.remote.shown, at = self.at, %error, "connection broke, going on");
        self.reopen().await
    }

    /// Goes on with one connection.
    async fn reopen(&mut self) -> Result<(), DownloadError> {
        let resume = self.resume.clone().unwrap_or_default();
        if resume.total == Some(self.at) {
            self.ended = true;
            return Ok(());
        }
        let ask = Ask { known: None, from: Some(Resume { at: self.at, ..resume }), until: None };
        match self.opener.open(&ask).await? {
            Opened::Artifact(artifact) if artifact.from == self.at => {
                self.body = artifact.body;
                Ok(())
            }
            Opened::Artifact(_) => Err(DownloadError::Changing),
            Opened::Unchanged => Err(DownloadError::Unchanged),
        }
    }
}

/// The body of a connection that was given up.
struct Nothing;

impl Body for Nothing {
    fn read<'a>(&'a mut self, _room: &'a mut [u8]) -> BoxFuture<'a, Result<usize, FetchError>> {
        std::future::ready(Ok(0)).boxed()
    }
}

/// Whether another connection at once may go better: one that was reset or ended. Silence is no such thing. It was waited
/// for as long as the operator allows ([`crate::sources::net::Timeouts::stall`]); a server that lets its clients wait, on purpose or
/// as it is overloaded, would get that time over again, and the caller an answer later than it was told. The bytes stay
/// as a partial, and the next pull, which kubelet makes by itself, goes on behind them.
fn may_pass(error: &FetchError) -> bool {
    matches!(error, FetchError::Interrupted { .. } | FetchError::Protocol(_))
}
