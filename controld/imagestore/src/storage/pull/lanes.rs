//! Downloads over several connections side by side, for servers that give each connection only a part of the bandwidth.
//!
//! The file is fetched in segments, several at a time, and handed out in order. The number of lanes bounds how many
//! segments wait. A download begins with one connection; more are tried, and kept if they are faster ([`Pace`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use crate::sources::net::{Ask, FetchError, Opened, Resume};

use super::error::DownloadError;
use super::hosts::Hosts;
use super::job::Job;

#[cfg(test)]
mod tests;

/// What one lane fetches at a time. With [`MAX`] lanes and what is on its way to the disk, a download stays below 64 MiB
/// of memory.
pub(super) const SEGMENT: u64 = 6 << 20;
/// Most lanes.
const MAX: usize = 4;
/// Bytes per second that are as many as disks and hashes take.
const FAST: f64 = 400e6;
/// Less than this is not worth another connection.
const LEAST: u64 = 64 << 20;

/// How fast it goes, and what that says of the number of lanes.
#[derive(Debug)]
pub(super) struct Pace {
    lanes: usize,
    /// Bytes per second with half as many lanes.
    before: f64,
    /// So many bytes are let pass before it is tried again: servers may be faster with a connection's first bytes than
    /// with the others, which makes more of them look useless.
    rest: u64,
    failures: u32,
    bytes: u64,
    time: Duration,
    waited: Duration,
}

impl Pace {
    pub(super) fn new() -> Self {
        let (time, waited) = (Duration::ZERO, Duration::ZERO);
        Self { lanes: 1, before: 0.0, rest: 0, failures: 0, bytes: 0, time, waited }
    }

    /// Takes note of bytes that came within `time`, of which `waited` was spent waiting for them. Says how many lanes
    /// it should be, if that changes; `left` is what is still to come.
    pub(super) fn note(&mut self, bytes: u64, time: Duration, waited: Duration, left: u64) -> Option<usize> {
        if self.rest > 0 {
            self.rest = self.rest.saturating_sub(bytes);
            return None;
        }
        self.bytes += bytes;
        self.time += time;
        self.waited += waited;
        // Each lane twice: the first segments are slowed down by the beginning of their connections.
        if self.bytes < 2 * SEGMENT * self.lanes as u64 {
            return None;
        }
        let rate = self.bytes as f64 / self.time.as_secs_f64().max(1e-6);
        let hungry = self.waited * 2 > self.time && rate < FAST;
        let helped = rate > self.before * 1.25;
        (self.bytes, self.time, self.waited) = (0, Duration::ZERO, Duration::ZERO);
        let next = match () {
            // The last step was of no use.
            () if !helped => self.lanes / 2,
            // It is not the server that is waited for, or not for long any more.
            () if !hungry || left < LEAST || self.lanes == MAX => self.lanes,
            () => self.lanes * 2,
        };
        if !helped {
            self.rest = LEAST << self.failures.min(16);
            self.failures += 1;
        } else if self.lanes == MAX {
            self.rest = u64::MAX;
        }
        self.before = if next > self.lanes { rate } else { 0.0 };
        let changed = next != self.lanes;
        self.lanes = next;
        changed.then_some(next)
    }
}

/// The rest of a file, fetched in segments.
pub(super) struct Lanes {
    job: Arc<Job>,
    hosts: Arc<Hosts>,
    etag: Option<String>,
    total: u64,
    count: usize,
    /// Where the first segment begins that nobody fetches yet.
    next: u64,
    fetching: VecDeque<Segment>,
    /// What came and is handed out.
    ready: Vec<u8>,
    taken: usize,
    /// Memory to fetch into: there is never more of it than one segment for each lane and one that is handed out.
    spare: Vec<Vec<u8>>,
}

/// Fetches a segment as long as it is held.
struct Segment(JoinHandle<Result<Vec<u8>, DownloadError>>);

impl Drop for Segment {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Lanes {
    /// Everything from byte `at` on.
    pub(super) fn new(job: &Arc<Job>, hosts: &Arc<Hosts>, etag: Option<String>, at: u64, total: u64) -> Self {
        let (job, hosts, fetching) = (job.clone(), hosts.clone(), VecDeque::new());
        Self { job, hosts, etag, total, count: 1, next: at, fetching, ready: Vec::new(), taken: 0, spare: Vec::new() }
    }

    pub(super) fn set_count(&mut self, count: usize) {
        self.count = count;
    }

    /// The next bytes, in their order; 0 at the end.
    pub(super) async fn read(&mut self, room: &mut [u8]) -> Result<usize, DownloadError> {
        if self.taken == self.ready.len() {
            self.fetch_more();
            let Some(segment) = self.fetching.front_mut() else { return Ok(0) };
            self.spare.push(std::mem::take(&mut self.ready));
            let fetched = (&mut segment.0).await;
            self.fetching.pop_front();
            (self.ready, self.taken) = (fetched.unwrap_or(Err(DownloadError::Ended))?, 0);
            self.fetch_more();
        }
        let rest = &self.ready[self.taken..];
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }

    fn fetch_more(&mut self) {
        while self.fetching.len() < self.count && self.next < self.total {
            let leave = self.hosts.try_enter(&self.job.remote.source);
            // The download itself has leave for one.
            if leave.is_none() && !self.fetching.is_empty() {
                return;
            }
            let end = (self.next + SEGMENT).min(self.total);
            let from = Resume { at: self.next, etag: self.etag.clone(), total: Some(self.total) };
            let fetched = fetch(self.job.clone(), from, end, self.spare.pop().unwrap_or_default(), leave);
            self.fetching.push_back(Segment(tokio::spawn(fetched)));
            self.next = end;
        }
    }
}

async fn fetch(
    job: Arc<Job>,
    from: Resume,
    end: u64,
    mut bytes: Vec<u8>,
    _leave: Option<OwnedSemaphorePermit>,
) -> Result<Vec<u8>, DownloadError> {
    let at = from.at;
    let ask = Ask { known: None, from: Some(from), until: Some(end) };
    let artifact = match job.provider.open(&job.remote, &ask).await? {
        Opened::Artifact(artifact) if artifact.from == at => artifact,
        _ => return Err(DownloadError::Changing),
    };
    let mut body = artifact.body;
    // No segment is larger than memory.
    bytes.resize(usize::try_from(end - at).unwrap_or(0), 0);
    let mut filled = 0;
    while filled < bytes.len() {
        match body.read(&mut bytes[filled..]).await? {
            0 => {
                return Err(FetchError::Interrupted {
                    received: at + filled as u64,
                    announced: Some(end),
                    cause: None,
                }
                .into());
            }
            count => filled += count,
        }
    }
    Ok(bytes)
}
