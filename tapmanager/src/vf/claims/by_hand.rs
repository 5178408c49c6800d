//! What a person may do about claims: claim a VF by hand, give a claim back, and put in order what is left over.
//!
//! Called by the daemon for `tapmanager sriov claim`, `release` and `repair`. A claim by hand has an owner that is no pod's
//! id, so no collection takes it for a stray pod's.

use std::sync::Arc;

use common::Chain;
use proto::tap::PodId;
use sriov::PciAddr;
use sriov::claim::{self, Claim, End, Now, Outcome, Repair, Request, Step};
use sriov::policy::Arrival;
use sriov::settings::VfSettings;
use tracing::warn;

use super::{Claims, Inner};
use crate::blocking::aside;
use crate::vf::problem::VfError;

/// What the owner of a claim by hand begins with. No pod's id has a colon.
pub(super) const BY_HAND: &str = "by-hand:";

/// What was done: lines for people.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Done {
    /// What was given back or forgotten.
    pub(crate) removed: Vec<String>,
    /// What was left, and why.
    pub(crate) kept: Vec<String>,
}

impl Claims {
    /// Claims a VF that vfio-pci has for the person `by`. If it fails, nothing is left of it.
    pub(crate) async fn claim_by_hand(&self, vf: PciAddr, by: &str, asked: VfSettings) -> Result<(), VfError> {
        // As safe a text as a pod's id.
        let name: PodId = by.parse().map_err(|_| VfError::By { by: by.escape_debug().take(64).collect() })?;
        let pf = self.lane_of(vf).await?;
        let owner = format!("{BY_HAND}{}", name.as_str());
        let boot = self.0.boot.clone();
        let request = Request { vf, arrival: Arrival::Vfio, owner, boot, together: [].into(), asked };
        self.on_lane(pf, move |inner| inner.take_by_hand(pf, request)).await
    }

    /// Gives back the claim of a VF; fine if there is none. A pod's is only given back if that is forced: its machine
    /// must have ended, as the kernel waits for that.
    pub(crate) async fn release(&self, vf: PciAddr, force: bool) -> Result<Done, VfError> {
        let inner = Arc::clone(&self.0);
        let Some(claim) = aside(move || inner.claim(vf)).await? else { return Ok(Done::default()) };
        let owner = claim.owner().to_owned();
        if !owner.starts_with(BY_HAND) {
            if !force {
                return Err(VfError::NotByHand { vf, owner });
            }
            warn!(%vf, owner, "a pod's claim is given back as a person asks for it");
        }
        let line = self.on_lane(claim.pf().0, move |inner| inner.release(&claim)).await?;
        Ok(Done { removed: line.into_iter().collect(), ..Done::default() })
    }

    /// Goes through all notes. What belongs to a pod `on_record` is that pod's affair and only told.
    pub(crate) async fn repair(&self, on_record: impl Fn(&PodId) -> bool) -> Result<Done, VfError> {
        let inner = Arc::clone(&self.0);
        let (claims, unreadable) = aside(move || inner.notes.all()).await?;
        let mut done = Done::default();
        done.kept.extend(unreadable.iter().map(|note| Chain(note).to_string()));
        for claim in claims {
            let (vf, pf) = (claim.vf(), claim.pf().0);
            let pod: Option<PodId> = claim.owner().parse().ok();
            if let Some(pod) = pod.as_ref().filter(|pod| on_record(pod)) {
                let trouble = self.look(pod, &[vf]).await;
                let has = format!("`{vf}`: pod `{}` has it", pod.as_str());
                let trouble = trouble.into_iter().map(|found| format!("; {}", found.line));
                done.kept.push(std::iter::once(has).chain(trouble).collect());
                continue;
            }
            // Who is no pod is a person, or of another release: only they know.
            let alive = pod.is_none();
            match self.on_lane(pf, move |inner| inner.repair(&claim, alive)).await {
                Ok((line, true)) => done.removed.push(line),
                Ok((line, false)) => done.kept.push(line),
                Err(error) => done.kept.push(format!("`{vf}`: {}", Chain(&error))),
            }
        }
        Ok(done)
    }
}

impl Inner {
    fn take_by_hand(&self, pf: PciAddr, request: Request) -> Result<(), VfError> {
        let (vf, owner) = (request.vf, request.owner.clone());
        self.take(pf, request).inspect_err(|_| {
            let ours = |claim: &Claim| claim.owner() == owner && claim.step() < Step::Bound;
            if !matches!(self.claim(vf), Ok(Some(claim)) if ours(&claim)) {
                return;
            }
            if let Err(error) = self.give_back(vf) {
                warn!(%vf, error = %Chain(&error), "virtual function not given back after a claim that failed");
            }
        })
    }

    /// Gives back what is still claimed as in `noted`, and says how that ended.
    fn release(&self, noted: &Claim) -> Result<Option<String>, VfError> {
        let (vf, owner) = (noted.vf(), noted.owner());
        let still = self.claim(vf)?.is_some_and(|claim| claim.owner() == owner);
        if !still {
            return Ok(None);
        }
        Ok(self.give_back(vf)?.map(|outcome| ended(vf, owner, outcome)))
    }

    /// What is told, and whether the claim is gone.
    fn repair(&self, noted: &Claim, owner_lives: bool) -> Result<(String, bool), VfError> {
        let (vf, owner) = (noted.vf(), noted.owner());
        if self.claim(vf)?.as_ref() != Some(noted) {
            return Ok((format!("`{vf}` of `{owner}`: is being worked on"), false));
        }
        let now = Now { boot: &self.boot, owner_lives };
        match claim::repair(noted, &mut self.sysfs.clone(), now).map_err(Box::new)? {
            Repair::Adopt => {
                Ok((format!("`{vf}` of `{owner}`: stands; `tapmanager sriov release {vf}` gives it back"), false))
            }
            Repair::Forget => {
                self.notes.remove(vf)?;
                self.held().remove(&vf);
                Ok((format!("note of `{vf}` of `{owner}`, which is over or of an earlier boot"), true))
            }
            Repair::GiveBack(_) => {
                let outcome = self.give_back(vf)?;
                Ok((outcome.map_or_else(|| format!("`{vf}` of `{owner}`"), |outcome| ended(vf, owner, outcome)), true))
            }
        }
    }
}

fn ended(vf: PciAddr, owner: &str, Outcome { end, unreset }: Outcome) -> String {
    let how = match end {
        End::Untouched => "it was not changed yet",
        End::AsBefore => "it is as it was before",
        End::OnHost => "its netdev is in the host's namespace, as its pod's is gone",
        End::Vanished => "it is gone, so nothing was put back",
    };
    let unreset = if unreset { "; the kernel knows no way to reset it" } else { "" };
    format!("claim of `{vf}` by `{owner}`: {how}{unreset}")
}
