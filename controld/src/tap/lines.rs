//! Connections of one sort: so many at a time, kept while they are used.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proto::tap::{Client, ClientError, Reply, Request};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::line::Line;

/// A connection that was not used for so long is closed.
const IDLE: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// All places were taken.
    #[error("`{request}` waited {} s for one of {places} places; tapmanager works on others", waited.as_secs())]
    Queue {
        /// What was to be asked.
        request: &'static str,
        /// How many requests there may be.
        places: usize,
        /// How long.
        waited: Duration,
    },
    /// It was asked.
    #[error(transparent)]
    Call(#[from] ClientError),
}

/// The connections.
#[derive(Debug)]
pub(super) struct Lines {
    client: Client,
    deadline: Duration,
    places: usize,
    free: Semaphore,
    /// The one used last is the last one.
    idle: Mutex<Vec<(Line, Instant)>>,
}

impl Lines {
    /// Up to `places` connections, where an answer, and a place before it, may take until `deadline`.
    pub(super) fn new(client: Client, places: usize, deadline: Duration) -> Self {
        Self { client, deadline, places, free: Semaphore::new(places), idle: Mutex::default() }
    }

    /// Asks over a kept connection or a new one. All requests may be repeated, and this one is if its connection turns out
    /// to be one of a tapmanager that is gone.
    pub(super) async fn ask(&self, request: &Request) -> Result<Reply, LineError> {
        let queue = || LineError::Queue { request: request.name(), places: self.places, waited: self.deadline };
        let place = timeout(self.deadline, self.free.acquire()).await;
        // The semaphore is never closed.
        let _place = place.ok().and_then(Result::ok).ok_or_else(queue)?;
        let kept = self.idle().pop();
        if let Some((line, _)) = kept {
            match self.ask_over(line, request).await {
                Err(ClientError::Wire { .. }) => {}
                answered => return Ok(answered?),
            }
        }
        let line = Line::dial(&self.client).await?;
        Ok(self.ask_over(line, request).await?)
    }

    /// How many requests are under way.
    pub(super) fn running(&self) -> u64 {
        self.places.saturating_sub(self.free.available_permits()) as u64
    }

    /// Closes what was not used lately.
    pub(super) fn close_idle(&self) {
        self.idle().retain(|(_, used)| used.elapsed() < IDLE);
    }

    async fn ask_over(&self, mut line: Line, request: &Request) -> Result<Reply, ClientError> {
        let answered = line.ask(&self.client, request, self.deadline).await;
        if matches!(answered, Ok(_) | Err(ClientError::Refused(_))) {
            self.idle().push((line, Instant::now()));
        }
        answered
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Line, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
