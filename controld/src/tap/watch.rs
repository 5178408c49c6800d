//! What state tapmanager is in, known before anybody asks.
//!
//! One connection is kept for this. tapmanager is asked over it every few seconds; between that it says nothing, so the end
//! of the connection is the end of tapmanager, and is seen at once. A tapmanager that is slow to answer is busy, not gone:
//! its last word holds for a while.
//!
//! It is started again within seconds, and that costs no pod anything. The node is not called unready for that: of one that
//! was ready the word holds over its end, and over what its next life says before it is ready ([`RETURNS`]). Whoever
//! waits for the new connection has it at once.

use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Client, ClientError, Reply, Request, ServerStatus, WireError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::line::Line;

/// How often a tapmanager that is ready is asked.
const CALM: Duration = Duration::from_secs(3);
/// How often one that is not ready is asked, or dialled when it is not there: no event tells when it is.
const KEEN: Duration = Duration::from_millis(500);
/// How long the last word of one that does not answer holds.
const HOLDS: Duration = Duration::from_secs(60);
/// How long one that was ready has to be ready again.
const RETURNS: Duration = Duration::from_secs(20);
/// How long somebody who wants to know waits for the first word after our start.
const FIRST: Duration = Duration::from_secs(5);

/// What is known of tapmanager.
#[derive(Debug, Clone)]
pub enum State {
    /// Nobody has asked it yet.
    Unknown,
    /// It answers.
    Up(ServerStatus),
    /// It does not, and why.
    Down(Arc<ClientError>),
}

#[derive(Debug)]
struct Known {
    state: State,
    /// Number of the connection, from 1.
    connection: u64,
    /// The last word of one that was ready, and since when it is gone; until it is ready again.
    was_ready: Option<(ServerStatus, Instant)>,
}

/// Keeps watch.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    known: watch::Sender<Known>,
}

impl Watch {
    pub(super) fn new(client: Client) -> Self {
        let known = watch::Sender::new(Known { state: State::Unknown, connection: 0, was_ready: None });
        Self { client, known }
    }

    /// What is known; waits for the first word.
    pub(super) async fn state(&self) -> State {
        let mut known = self.known.subscribe();
        let said = known.wait_for(|known| !matches!(known.state, State::Unknown));
        match timeout(FIRST, said).await {
            Ok(Ok(known)) => known.shown(Instant::now()),
            _ => State::Unknown,
        }
    }

    /// See [`super::Tap::connected`].
    pub(super) async fn connected(&self, before: u64) -> u64 {
        let mut known = self.known.subscribe();
        let other = known.wait_for(|known| matches!(known.state, State::Up(_)) && known.connection != before);
        match other.await {
            Ok(known) => known.connection,
            // The sender is ours.
            Err(_closed) => before,
        }
    }

    /// Keeps watch for ever, and calls `between` now and then.
    pub(super) async fn run(&self, between: impl Fn()) {
        let mut connection = 0;
        loop {
            if let Ok(line) = Line::dial(&self.client).await.map_err(|error| self.lost(error)) {
                connection += 1;
                self.listen(line, connection, &between).await;
            }
            between();
            sleep(KEEN).await;
        }
    }

    /// Asks again and again until the connection ends.
    async fn listen(&self, mut line: Line, connection: u64, between: &impl Fn()) {
        loop {
            let status = match line.ask(&self.client, &Request::Status, HOLDS).await {
                Ok(Reply::Status(status)) => status,
                Ok(_) => return self.lost(ClientError::WrongReply),
                Err(error) => return self.lost(error),
            };
            let pause = if status.ready { CALM } else { KEEN };
            self.known.send_modify(|known| known.heard(status, connection));
            between();
            if timeout(pause, line.closed()).await.is_ok() {
                let path = self.client.path().to_owned();
                return self.lost(ClientError::Wire { path, cause: WireError::Closed });
            }
        }
    }

    fn lost(&self, error: ClientError) {
        self.known.send_modify(|known| known.lost(error, Instant::now()));
    }
}

impl Known {
    fn heard(&mut self, status: ServerStatus, connection: u64) {
        if status.ready {
            self.was_ready = None;
        }
        (self.state, self.connection) = (State::Up(status), connection);
    }

    fn lost(&mut self, error: ClientError, now: Instant) {
        let before = std::mem::replace(&mut self.state, State::Down(Arc::new(error)));
        if let State::Up(status) = before
            && status.ready
        {
            self.was_ready = Some((status, now));
        }
    }

    fn shown(&self, now: Instant) -> State {
        match &self.was_ready {
            Some((status, gone)) if now.saturating_duration_since(*gone) < RETURNS => State::Up(status.clone()),
            _ => self.state.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(ready: bool) -> ServerStatus {
        let reason = if ready { "" } else { "pods are being recovered" };
        ServerStatus {
            server: "fake".into(),
            ready,
            reason: reason.into(),
            pods: 0,
            recovering: 0,
            tokens_refused: 0,
            plugin_micros: 0,
        }
    }

    fn is_ready(state: &State) -> bool {
        matches!(state, State::Up(status) if status.ready)
    }

    #[test]
    fn one_that_was_ready_counts_as_ready_while_it_is_started_again() {
        let mut known = Known { state: State::Unknown, connection: 0, was_ready: None };
        let gone = Instant::now();
        let at = |seconds| gone + Duration::from_secs(seconds);
        known.heard(status(true), 1);
        known.lost(ClientError::WrongReply, gone);
        assert!(is_ready(&known.shown(gone)));
        assert!(matches!(known.state, State::Down(_)), "whoever asks for a network hears why there is none");
        // Its next life, which fails, and the one after that, which recovers its pods.
        known.heard(status(false), 2);
        known.lost(ClientError::WrongReply, at(5));
        known.heard(status(false), 3);
        assert_eq!(known.connection, 3);
        assert!(is_ready(&known.shown(at(19))));
        assert!(!is_ready(&known.shown(at(20))), "from its first end on");

        known.heard(status(true), 3);
        known.heard(status(false), 3);
        assert!(!is_ready(&known.shown(at(6))), "its own word, of the same life");
        known.lost(ClientError::WrongReply, at(7));
        assert!(matches!(known.shown(at(7)), State::Down(_)), "it was not ready");
    }
}
