//! How far a pull is, as watchers see it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Over so much time the rate is taken.
const WINDOW: Duration = Duration::from_millis(500);

/// What a pull is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Finding out where the image is and whether it changed, or waiting for other downloads to end.
    #[default]
    Asking,
    /// Bytes come.
    Downloading,
    /// All bytes are here; they are judged and published.
    Storing,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// Bytes that are here, those of an earlier attempt included.
    pub bytes: u64,
    /// Those of an earlier attempt, with which this one began.
    pub resumed: u64,
    /// Bytes that there will be, if the server said.
    pub total: Option<u64>,
    /// Bytes per second of late; 0 as long as that is not known.
    pub rate: u64,
}

impl Progress {
    /// Bytes that came.
    #[must_use]
    pub fn came(&self) -> u64 {
        self.bytes.saturating_sub(self.resumed)
    }
}

/// Tells the progress.
#[derive(Debug)]
pub(super) struct Meter {
    told: watch::Sender<Progress>,
    since: Instant,
    from: u64,
}

impl Meter {
    pub(super) fn new(told: watch::Sender<Progress>) -> Self {
        Self { told, since: Instant::now(), from: 0 }
    }

    pub(super) fn begin(&mut self, bytes: u64, total: Option<u64>) {
        (self.since, self.from) = (Instant::now(), bytes);
        self.told.send_replace(Progress { phase: Phase::Downloading, bytes, resumed: bytes, total, rate: 0 });
    }

    pub(super) fn note(&mut self, bytes: u64) {
        let passed = self.since.elapsed();
        let rate = (passed >= WINDOW).then(|| {
            let rate = u128::from(bytes.saturating_sub(self.from)) * 1000 / passed.as_millis().max(1);
            (self.since, self.from) = (Instant::now(), bytes);
            u64::try_from(rate).unwrap_or(u64::MAX)
        });
        self.told.send_modify(|progress| {
            progress.bytes = bytes;
            progress.rate = rate.unwrap_or(progress.rate);
        });
    }

    pub(super) fn phase(&self, phase: Phase) {
        self.told.send_modify(|progress| progress.phase = phase);
    }
}
