//! Where the default is, for those who wait until that changes.

use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::reach::{Away, Reach};

/// A [`Reach`] that is waited on.
#[derive(Debug)]
pub(in crate::proxy) struct Watched(watch::Sender<Reach>);

impl Watched {
    pub(super) fn new(reach: Reach) -> Self {
        Self(watch::Sender::new(reach))
    }

    pub(super) fn connected(&self, now: Instant) {
        self.0.send_modify(|reach| reach.connected(now));
    }

    pub(super) fn lost(&self, now: Instant, why: String) {
        self.0.send_modify(|reach| reach.lost(now, why));
    }

    pub(super) fn silent(&self, now: Instant) {
        self.0.send_modify(|reach| reach.silent(now));
    }

    pub(super) fn answered(&self) {
        self.0.send_modify(Reach::answered);
    }

    pub(super) fn deadline(&self, now: Instant) -> Duration {
        self.0.borrow().deadline(now)
    }

    pub(super) fn away(&self) -> Option<Away> {
        self.0.borrow().away()
    }

    /// Waits until it answers nothing although there is a connection. One that is lost ends its calls by itself.
    pub(super) fn silence(&self) -> impl Future<Output = Away> + Send + use<> {
        let mut reach = self.0.subscribe();
        async move {
            let away = reach.wait_for(Reach::is_silent).await.ok().and_then(|reach| reach.away());
            match away {
                Some(away) => away,
                // Nobody moves it any more.
                None => std::future::pending().await,
            }
        }
    }
}
