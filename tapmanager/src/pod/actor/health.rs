//! Looks after an attached pod: compares it with what it was given, and takes it up again when it is in trouble.
//!
//! Part of the pod's actor ([`super`]), so that nothing of the pod changes meanwhile. A pod is in trouble if its guest
//! is cut off or has no filters, or if its servers do not run. Lists show the trouble, and no descriptors are handed
//! out meanwhile. A check that finds the pod well ends the trouble. What plugins say at CHECK, and addresses and routes
//! that a link lost, are reported but are no trouble: the guest still reaches its link.
//!
//! From time to time each attached pod is looked after without a request: the daemon makes again what it had made, and
//! serves the guest again; anything else that is missing is trouble from then on. No plugins run for that.

use std::sync::Arc;

use common::Chain;
use proto::tap::{CheckReport, PodNet, PodPhase};
use tracing::{error, info, warn};

use super::Actor;
use crate::journal::Record;
use crate::net::Finding;
use crate::pod::command::bounded;
use crate::pod::error::PodError;
use crate::pod::machine::NETNS_GONE;
use crate::pod::world::{Checked, NetnsState, World, WorldError};

impl<W: World> Actor<W> {
    /// Compares the pod with what it was given.
    pub(super) async fn check(&mut self) -> Result<CheckReport, PodError> {
        let world = &self.shared.operations.world;
        let state = self.state.as_ref().ok_or_else(|| self.not_here())?;
        let (PodPhase::Attached, Some(net)) = (state.record.phase, &state.net) else {
            return Err(PodError::NotAttached { pod: self.pod.clone(), phase: state.record.phase });
        };
        let mut checked = vec!["its namespace".to_owned()];
        let mut troubles = Vec::new();
        let mut findings = Vec::new();
        let mut unseen = None;
        match world.look(&net.netns).await {
            Ok(NetnsState::Present) => {
                checked.push("links, taps and filters".to_owned());
                match self.findings(&state.record, net).await {
                    Ok(found) => {
                        let (breaks, others): (Vec<_>, _) = found.into_iter().partition(|found| found.breaks);
                        troubles.extend(breaks.into_iter().map(|found| found.line));
                        findings.extend(others.into_iter().map(|found| found.line));
                    }
                    Err(error) => unseen = Some(Chain(&error).to_string()),
                }
                checked.push("servers of its guest".to_owned());
                if state.serving.as_ref().is_none_or(|serving| serving.broken().is_cancelled()) {
                    troubles.push("its guest is not served; recover the pod".to_owned());
                }
                for attachment in &state.record.attachments {
                    let name = format!("network `{}` on `{}`", attachment.network.name(), attachment.ifname);
                    match world.check_network(&state.record, attachment).await {
                        Ok(Checked::Well) => checked.push(format!("{name}, by its plugins")),
                        Ok(Checked::NotAsked(why)) => {
                            checked.push(format!("{name}: its plugins were not asked: {why}"))
                        }
                        Err(error) => findings.push(format!("{name}: {}", Chain(&error))),
                    }
                }
            }
            Ok(NetnsState::Absent | NetnsState::OtherFile) => troubles.push(NETNS_GONE.to_owned()),
            Err(error) => unseen = Some(Chain(&error).to_string()),
        }
        if unseen.is_none() || !troubles.is_empty() {
            self.conclude(troubles.first().map(String::as_str));
        }
        troubles.extend(unseen);
        troubles.append(&mut findings);
        Ok(CheckReport { findings: bounded(troubles), checked: bounded(checked) })
    }

    /// What is not as it was made: of the join, and of virtual functions.
    async fn findings(&self, record: &Record, net: &PodNet) -> Result<Vec<Finding>, WorldError> {
        let world = &self.shared.operations.world;
        let mut found = world.check_join(record, net).await?;
        let vfs = world.check_vfs(&self.pod, net).await;
        found.extend(vfs);
        Ok(found)
    }

    /// Notes what the pod's trouble is now.
    fn conclude(&mut self, trouble: Option<&str>) {
        let Some(state) = &mut self.state else { return };
        if state.trouble.as_deref() == trouble {
            return;
        }
        match trouble {
            Some(trouble) => warn!(trouble, "pod is in trouble"),
            None => info!("pod is well again"),
        }
        state.trouble = trouble.map(Arc::from);
        state.show(&self.publish);
    }

    /// Looks whether the pod, if it is attached, stands, and takes it up again if that is ours to do.
    pub(super) async fn look_after(&mut self) {
        let world = &self.shared.operations.world;
        let Some(state) = self.state.as_ref().filter(|state| state.record.phase == PodPhase::Attached) else { return };
        let Some(net) = &state.net else { return };
        match world.look(&net.netns).await {
            Ok(NetnsState::Present) => {}
            Ok(NetnsState::Absent | NetnsState::OtherFile) => return self.conclude(Some(NETNS_GONE)),
            Err(error) => return unseen(&error),
        }
        let found = match self.findings(&state.record, net).await {
            Ok(found) => found,
            Err(error) => return unseen(&error),
        };
        if let Some(beyond) = found.iter().find(|found| found.breaks && !found.ours) {
            return self.conclude(Some(&beyond.line));
        }
        let served = state.serving.as_ref().is_some_and(|serving| !serving.broken().is_cancelled());
        let lost: Vec<&str> = found.iter().filter(|found| found.ours).map(|found| found.line.as_str()).collect();
        if served && lost.is_empty() {
            return self.conclude(None);
        }
        // What is made again is seen in no list, and a machine that runs may have to be started anew.
        warn!(served, lost = lost.join("; "), "pod is not as it was left and is taken up again");
        let earlier = state.trouble.clone();
        if let Err(error) = self.recover().await {
            let trouble = self.state.as_ref().and_then(|state| state.trouble.clone());
            if trouble != earlier {
                error!(error = %Chain(&error), "pod was not taken up again");
            }
        }
    }

    /// Takes the pod up again: makes what our side lost, and serves its guest.
    pub(super) async fn recover(&mut self) -> Result<Arc<PodNet>, PodError> {
        let failed = |cause| PodError::Recover { pod: self.pod.clone(), cause };
        let world = &self.shared.operations.world;
        if self.state.is_none() {
            return Err(self.not_here());
        }
        let state = self.state.as_ref().ok_or_else(|| PodError::Unknown { pod: self.pod.clone() })?;
        let (PodPhase::Attached, Some(net)) = (state.record.phase, state.net.clone()) else {
            return Err(PodError::NotAttached { pod: self.pod.clone(), phase: state.record.phase });
        };
        match world.look(&net.netns).await.map_err(failed)? {
            NetnsState::Present => {}
            NetnsState::Absent | NetnsState::OtherFile => {
                self.trouble(NETNS_GONE);
                return Err(self.netns_gone());
            }
        }
        let served = state.serving.as_ref().is_some_and(|serving| !serving.broken().is_cancelled());
        let mut lost = self.findings(&state.record, &net).await.map_err(failed)?;
        lost.retain(|found| found.breaks || found.ours);
        let Some(state) = &mut self.state else { return Err(self.not_here()) };
        if served && lost.is_empty() {
            state.trouble = None;
            state.show(&self.publish);
            return Ok(net);
        }
        if let Some(serving) = state.serving.take() {
            serving.ended().await;
        }
        let repaired = if lost.is_empty() {
            Ok(())
        } else {
            world.repair(&net.netns, &net.nics, state.record.choices, &self.shared.operations.faults).await
        };
        let whole = match repaired {
            Ok(()) => self.expect_mended(&net).await,
            Err(error) => Err(error),
        };
        let again = match whole {
            Ok(()) => self.serve_again().await,
            Err(error) => Err(error),
        };
        match again {
            Ok(net) => {
                info!("pod is taken up again");
                Ok(net)
            }
            Err(cause) => {
                self.trouble(&Chain(&cause).to_string());
                Err(PodError::Recover { pod: self.pod.clone(), cause })
            }
        }
    }

    /// Succeeds if nothing is left that repairing cannot mend, as a virtual function that is gone.
    async fn expect_mended(&self, net: &PodNet) -> Result<(), WorldError> {
        let state = self.state.as_ref().ok_or(WorldError::NoNetns)?;
        let left = self.findings(&state.record, net).await?;
        match left.into_iter().find(|found| found.breaks && !found.ours) {
            None => Ok(()),
            Some(beyond) => Err(WorldError::Beyond(beyond.line)),
        }
    }

    /// Serves the guest of a pod whose join stands.
    pub(super) async fn serve_again(&mut self) -> Result<Arc<PodNet>, WorldError> {
        let world = &self.shared.operations.world;
        let state = self.state.as_mut().ok_or(WorldError::NoNetns)?;
        let net = state.net.clone().ok_or(WorldError::NoNetns)?;
        let sockets = world.rejoin(&net.netns, &net.nics).await?;
        state.serving = Some(world.serve(&net, &state.record.request, sockets));
        state.trouble = None;
        state.show(&self.publish);
        Ok(net)
    }
}

/// The pod counts as it did before.
fn unseen(error: &WorldError) {
    warn!(error = %Chain(error), "pod not looked at; the next look is as usual");
}
