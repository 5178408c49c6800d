//! What state tapmanager is in, known before anybody asks.
//!
//! One connection is kept for this. tapmanager is asked over it every few seconds; between that it says nothing, so the end
//! of the connection is the end of tapmanager, and is seen at once. A tapmanager that is slow to answer is busy, not gone:
//! its last word holds for a while.

use std::sync::Arc;
use std::time::Duration;

use proto::tap::{Client, ClientError, Reply, Request, ServerStatus, WireError};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::line::Line;

/// How often a tapmanager that is ready is asked.
const CALM: Duration = Duration::from_secs(3);
/// How often one that is not ready is asked, or dialled when it is not there: no event tells when it is.
const KEEN: Duration = Duration::from_millis(500);
/// How long the last word of one that does not answer holds.
const HOLDS: Duration = Duration::from_secs(60);
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
}

/// Keeps watch.
#[derive(Debug)]
pub(super) struct Watch {
    client: Client,
    known: watch::Sender<Known>,
}

impl Watch {
    pub(super) fn new(client: Client) -> Self {
        let known = watch::Sender::new(Known { state: State::Unknown, connection: 0 });
        Self { client, known }
    }

    /// What is known; waits for the first word.
    pub(super) async fn state(&self) -> State {
        let mut known = self.known.subscribe();
        let said = known.wait_for(|known| !matches!(known.state, State::Unknown));
        match timeout(FIRST, said).await {
            Ok(Ok(known)) => known.state.clone(),
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
            self.known.send_replace(Known { state: State::Up(status), connection });
            between();
            if timeout(pause, line.closed()).await.is_ok() {
                let path = self.client.path().to_owned();
                return self.lost(ClientError::Wire { path, cause: WireError::Closed });
            }
        }
    }

    fn lost(&self, error: ClientError) {
        self.known.send_modify(|known| known.state = State::Down(Arc::new(error)));
    }
}
