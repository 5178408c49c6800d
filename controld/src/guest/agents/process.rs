//! A process in a guest. Dropping it kills it, with all that came of it.

use std::sync::Arc;

use proto::agent::{MAX_CHUNK, Message, Size, Stream};
use tokio::sync::Semaphore;
use vmspec::error::Result;

use super::events::{Event, Receiver};
use super::shared::{Shared, lost};

/// A process in a guest.
#[derive(Debug)]
pub struct Process {
    id: u32,
    link: Arc<Shared>,
    events: Receiver,
    stdin: Arc<Semaphore>,
    ended: bool,
}

/// Way to a process.
#[derive(Debug, Clone)]
pub struct Input {
    id: u32,
    link: Arc<Shared>,
    stdin: Arc<Semaphore>,
}

impl Process {
    pub(super) fn new(id: u32, link: Arc<Shared>, events: Receiver, stdin: Arc<Semaphore>) -> Self {
        Self { id, link, events, stdin, ended: false }
    }

    /// What comes next; `None` when the guest or its agent is gone.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        self.ended = matches!(event, Some(Event::Exited(_) | Event::Refused(_)) | None);
        event
    }

    /// Lets as much more output come.
    pub async fn taken(&self, stream: Stream, bytes: usize) {
        self.link.taken(self.id, stream, bytes).await;
    }

    /// The way to it.
    #[must_use]
    pub fn input(&self) -> Input {
        Input { id: self.id, link: self.link.clone(), stdin: self.stdin.clone() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended {
            self.link.end(self.id);
        } else {
            self.link.cancel(self.id);
        }
    }
}

impl Input {
    /// Sends input, as the process takes it.
    ///
    /// # Errors
    /// When the process has ended, or the guest or its agent is gone.
    pub async fn send(&self, bytes: &[u8]) -> Result<()> {
        for chunk in bytes.chunks(MAX_CHUNK) {
            let wanted = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            self.stdin.acquire_many(wanted).await.map_err(|_session_ended| lost())?.forget();
            self.link.say(self.id, Message::Stdin(chunk.to_vec())).await?;
        }
        Ok(())
    }

    /// Says that there is no more input.
    ///
    /// # Errors
    /// When the guest or its agent is gone.
    pub async fn end(&self) -> Result<()> {
        self.link.say(self.id, Message::StdinEnd).await
    }

    /// Gives its terminal another size.
    ///
    /// # Errors
    /// When the guest or its agent is gone.
    pub async fn resize(&self, width: u16, height: u16) -> Result<()> {
        self.link.say(self.id, Message::Resize(Size { width, height })).await
    }
}
