//! Pods' networks at tapmanager, compared with the records.
//!
//! A network is made before its sandbox is on record, so a kill may leave one. While the records are in doubt nobody knows
//! which these are: all are kept, and remembered by a fact of the database, since later lives have no doubt. With that, and with
//! the disks marked, all that was without a record is.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use common::Chain;
use proto::tap::{PodId, PodSummary};
use vmspec::error::Result;

use super::Orphans;

/// Ids of networks that are kept.
const FACT: &str = "kept_networks";

impl Orphans {
    /// Of networks of ours that are on no record, those that a kill has left. The others are kept: also all of them, if it cannot
    /// be remembered which.
    pub async fn left_by_a_kill(&self, unrecorded: Vec<PodSummary>) -> Vec<PodSummary> {
        let known: BTreeSet<PodId> = self.uses.store.fact(FACT).unwrap_or_default();
        let in_doubt = self.uses.instance.doubt().is_some();
        let Judged { mut kept, mut left, remembered: now } =
            judge(unrecorded, &known, in_doubt, !self.uses.store.unread().is_empty());
        for network in kept.iter().filter(|network| !known.contains(&network.pod)) {
            tracing::error!(pod = %network.pod, name = network.name, "network of unknown owner is kept");
        }
        let remembered = if now == known { Ok(()) } else { self.uses.store.put_fact(FACT, &now).await };
        match remembered {
            Ok(()) => self.settle_doubt(),
            Err(error) => {
                tracing::error!(error = %Chain(&error), "kept networks not remembered; none is taken down");
                kept.append(&mut left);
            }
        }
        self.seen().networks = kept;
        self.refresh().await;
        left
    }
}

/// What is to become of them.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    kept: Vec<PodSummary>,
    left: Vec<PodSummary>,
    /// To be kept in later lives too.
    remembered: BTreeSet<PodId>,
}

/// Decides. Pure.
fn judge(unrecorded: Vec<PodSummary>, known: &BTreeSet<PodId>, in_doubt: bool, unread: bool) -> Judged {
    let forever = |network: &PodSummary| in_doubt || known.contains(&network.pod);
    let (kept, left): (Vec<_>, Vec<_>) = unrecorded.into_iter().partition(|network| unread || forever(network));
    let found = kept.iter().filter(|network| forever(network)).map(|network| network.pod.clone());
    // Also those that tapmanager does not show at the moment.
    let remembered = known.iter().cloned().chain(found).collect();
    Judged { kept, left, remembered }
}

impl Orphans {
    fn settle_doubt(&self) {
        if self.known.swept.load(Ordering::Relaxed)
            && let Err(error) = self.uses.instance.settle()
        {
            tracing::warn!(error = %Chain(&error), "the next start is in doubt of the records again");
        }
    }

    /// Remembers that all networks of ours that are on no record now are kept, whatever becomes of the records.
    ///
    /// # Errors
    /// When tapmanager does not say which there are, or it cannot be written.
    pub(super) async fn keep_all_networks(&self) -> Result<()> {
        let known: BTreeSet<PodId> = self.uses.store.fact(FACT).unwrap_or_default();
        let ours = Some(self.uses.instance.id().to_string());
        let there = self.uses.tap.pods(None).await?.into_iter().filter(|pod| {
            pod.owner.as_ref().map(ToString::to_string) == ours && self.uses.store.sandbox(&pod.pod).is_none()
        });
        let Judged { remembered, .. } = judge(there.collect(), &known, true, false);
        if remembered != known {
            self.uses.store.put_fact(FACT, &remembered).await?;
        }
        Ok(())
    }

    /// One that was kept is gone.
    pub(super) async fn network_forgotten(&self, pod: &PodId) -> Result<()> {
        self.seen().networks.retain(|network| network.pod != *pod);
        let mut known: BTreeSet<PodId> = self.uses.store.fact(FACT).unwrap_or_default();
        if known.remove(pod) {
            self.uses.store.put_fact(FACT, &known).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::tap::PodPhase;

    use super::*;

    fn network(pod: &str) -> PodSummary {
        PodSummary {
            pod: pod.parse().expect("id"),
            namespace: "default".into(),
            name: "web".into(),
            owner: None,
            phase: PodPhase::Attached,
            recovering: false,
            ip: None,
            trouble: None,
        }
    }

    #[test]
    fn a_network_goes_only_if_no_record_can_be_missing() {
        let a = || vec![network("a")];
        let ids = |ids: &[&str]| ids.iter().map(|id| id.parse().expect("id")).collect::<BTreeSet<PodId>>();
        for (case, known, in_doubt, unread, goes, remembered) in [
            ("a kill's", &[][..], false, false, true, &[][..]),
            ("a kill's beside a kept one", &["b"], false, false, true, &["b"]),
            ("records are lost", &["b"], true, false, false, &["a", "b"]),
            ("records were lost", &["a", "b"], false, false, false, &["a", "b"]),
            // The record may be read again by another release, and the network is not on record for another reason then.
            ("a record is unread", &[], false, true, false, &[]),
        ] {
            let judged = judge(a(), &ids(known), in_doubt, unread);
            let (kept, left) = if goes { (vec![], a()) } else { (a(), vec![]) };
            assert_eq!(judged, Judged { kept, left, remembered: ids(remembered) }, "{case}");
        }
    }
}
