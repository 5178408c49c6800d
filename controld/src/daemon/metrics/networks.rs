//! Pods' networks, and how tapmanager is, as it told last.
//!
//! A scrape waits for nobody, so tapmanager is asked from time to time while metrics are served, as for [physical
//! functions](super::functions). While it does not answer there are no figures of networks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::Chain;
use proto::tap::{PodPhase, PodSummary, ServerStatus};

use crate::tap::{State, Tap};

/// What is known. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Networks(Arc<Mutex<Known>>);

/// As of one answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Known {
    /// It answers, and a pod could be given a network.
    pub(super) ready: bool,
    /// Seconds that CNI plugins have run since its start.
    pub(super) plugins: Option<f64>,
    /// How many there are, by phase, of all phases.
    pub(super) phases: BTreeMap<&'static str, u64>,
    /// Those of them that are in trouble.
    pub(super) troubled: BTreeMap<&'static str, u64>,
}

impl Networks {
    /// Asks for ever.
    pub(super) async fn keep(self, tap: Tap) {
        let mut turns = super::turns();
        loop {
            turns.tick().await;
            self.ask(&tap).await;
        }
    }

    /// Asks once.
    pub(super) async fn ask(&self, tap: &Tap) {
        let known = match tap.state().await {
            State::Up(status) => match tap.pods(None).await {
                Ok(pods) => Known::of(&status, &pods),
                Err(error) => {
                    tracing::debug!(error = %Chain(&error), "no figures of pods' networks");
                    Known { ready: status.ready, ..Known::default() }
                }
            },
            State::Down(_) | State::Unknown => Known::default(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// As of the last answer.
    pub(super) fn known(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Known {
    fn of(status: &ServerStatus, pods: &[PodSummary]) -> Self {
        let tally = |wanted: &dyn Fn(&PodSummary) -> bool| {
            let of = |phase| pods.iter().filter(|pod| pod.phase == phase && wanted(pod)).count() as u64;
            BTreeMap::from([
                ("attaching", of(PodPhase::Attaching)),
                ("attached", of(PodPhase::Attached)),
                ("detaching", of(PodPhase::Detaching)),
            ])
        };
        Self {
            ready: status.ready,
            plugins: Some(Duration::from_micros(status.plugin_micros).as_secs_f64()),
            phases: tally(&|_| true),
            troubled: tally(&|pod| pod.trouble.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::tap::{PodId, PodPage, Reply, Request};

    use super::*;
    use crate::tap::tests::Fake;

    fn pod(id: &str, phase: PodPhase, trouble: Option<&str>) -> PodSummary {
        PodSummary {
            pod: id.parse::<PodId>().expect("an id"),
            namespace: "default".into(),
            name: id.into(),
            owner: None,
            phase,
            recovering: false,
            ip: None,
            trouble: trouble.map(Into::into),
        }
    }

    fn status(ready: bool) -> ServerStatus {
        ServerStatus {
            server: "fake".into(),
            ready,
            reason: String::new(),
            pods: 3,
            recovering: 0,
            tokens_refused: 0,
            plugin_micros: 1_500_000,
        }
    }

    #[tokio::test]
    async fn networks_are_known_as_long_as_tapmanager_answers() {
        let dir = tempfile::tempdir().expect("tempdir");
        let pods = [
            pod("a", PodPhase::Attached, None),
            pod("b", PodPhase::Attached, Some("its tap is gone")),
            pod("c", PodPhase::Detaching, Some("DEL failed")),
        ];
        let fake = Fake::told(&dir, move |request| match request {
            Request::Status => Some(Reply::Status(status(true))),
            Request::List(_) => Some(Reply::Pods(PodPage { pods: pods.to_vec(), more: false })),
            _ => None,
        });
        let (networks, tap) = (Networks::default(), fake.tap());
        assert_eq!(networks.known(), Known::default(), "nobody was asked");
        let watch = tokio::spawn(tap.clone().keep_watch());
        networks.ask(&tap).await;
        let known = networks.known();
        watch.abort();

        assert!(known.ready);
        assert_eq!(known.plugins, Some(1.5));
        assert_eq!(known.phases, [("attaching", 0), ("attached", 2), ("detaching", 1)].into());
        assert_eq!(known.troubled, [("attaching", 0), ("attached", 1), ("detaching", 1)].into());

        let nobody = Tap::new(dir.path().join("no.sock"), Duration::from_secs(1));
        let watch = tokio::spawn(nobody.clone().keep_watch());
        networks.ask(&nobody).await;
        watch.abort();
        assert_eq!(networks.known(), Known::default());
    }
}
