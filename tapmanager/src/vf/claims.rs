//! All claims of the node's virtual functions: takes them for pods, hands them out, gives them back, finds them again.
//!
//! Called by [`crate::pod`]. The steps of a claim are the crate `sriov`'s; here is who has which, in which order, and on
//! which thread. Each step may sleep in the kernel (an unbind waits for the device's users), and an operation's own
//! thread is in its pod's namespace. So every piece of work goes to a thread of the runtime's pool, one at a time for
//! each PF.
//!
//! The notes on disk are the truth; the table of who has what says which of them to read.
//!
//! [`by_hand`] has what a person may do about claims, [`survey`] lists what there is, [`explain`] tells all of one VF.

mod by_hand;
mod explain;
mod survey;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Chain, KeyedMutex, Reason};
use proto::tap::PodId;
use sriov::claim::{self, Claim, Ending, Guest, Node, Notes as _, Now, Outcome, Repair, Request, Why};
use sriov::policy::Arrival;
use sriov::settings::VfSettings;
use sriov::vfio::VfioFiles;
use sriov::{PciAddr, Sysfs};
use tokio::time::timeout;
use tracing::{error, info, warn};

use super::device::Grant;
use super::host::HostNet;
use super::notes::ClaimNotes;
use super::problem::VfError;
use crate::blocking::{aside, off_reactor};
use crate::faults::Faults;
pub(crate) use by_hand::Done;
pub(crate) use survey::survey;

/// How long a VF's own driver has to make its netdev when it gets the VF back. 0.1 s on quiet nodes; a driver may wait
/// for its PF and the card for a reset.
const NETDEV_WITHIN: Duration = Duration::from_secs(20);

/// How long one VF is waited for by who only reads of it.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The claims.
#[derive(Debug, Clone)]
pub(crate) struct Claims(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sysfs: Sysfs,
    notes: ClaimNotes,
    /// Of the node.
    boot: String,
    /// By PF.
    lanes: KeyedMutex,
    faults: Arc<Faults>,
    held: Mutex<BTreeMap<PciAddr, Held>>,
    /// How many claims failed, by PF.
    failed: Mutex<BTreeMap<PciAddr, u64>>,
    /// By PF: who reads of one that the kernel holds is alone in waiting for it.
    readers: KeyedMutex,
}

/// Who has a VF.
#[derive(Debug, Clone)]
struct Held {
    owner: String,
    pf: PciAddr,
    /// Whether the machine that is being started gets it by descriptor, as [`Claims::hand_out`] decided.
    by_descriptor: bool,
}

/// A VF that a pod is to have.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) vf: PciAddr,
    pub(crate) arrival: Arrival,
    /// Settings that the pod's network asks for by name.
    pub(crate) asked: VfSettings,
}

/// What is not as it was when a pod's VF was claimed.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// For people.
    pub(crate) line: String,
    /// Whether no machine of the pod can have the VF any more.
    pub(crate) breaks: bool,
}

type World = Node<HostNet>;

// === impl Claims ===

impl Claims {
    /// The claims that are noted in `notes`. Nothing is done about them yet.
    ///
    /// # Errors
    /// If the notes cannot be read.
    pub(crate) fn load(sysfs: Sysfs, notes: ClaimNotes, boot: String, faults: Arc<Faults>) -> Result<Self, Reason> {
        let (claims, unreadable) = notes.all()?;
        for note in &unreadable {
            error!(error = %Chain(note), "a virtual function's note is not understood; the function is left alone");
        }
        let held = claims.iter().map(|claim| (claim.vf(), Held::of(claim))).collect();
        let (held, failed) = (Mutex::new(held), Mutex::default());
        let (lanes, readers) = (KeyedMutex::default(), KeyedMutex::default());
        Ok(Self(Arc::new(Inner { sysfs, notes, boot, lanes, faults, held, failed, readers })))
    }

    /// Takes VFs for a pod. What was taken stays taken if it fails: [`Self::give_back`] takes care of all.
    pub(crate) async fn take(&self, pod: &PodId, wanted: Vec<Wanted>) -> Result<(), VfError> {
        let all: BTreeSet<PciAddr> = wanted.iter().map(|wanted| wanted.vf).collect();
        for Wanted { vf, arrival, asked } in wanted {
            let pf = self.lane_of(vf).await?;
            let together = all.iter().copied().filter(|other| *other != vf).collect();
            let (owner, boot) = (pod.to_string(), self.0.boot.clone());
            let request = Request { vf, arrival, owner, boot, together, asked };
            self.on_lane(pf, move |inner| inner.take(pf, request)).await?;
        }
        Ok(())
    }

    /// Notes that the pod's machine may have `vfs` from now on, and says how they get to its QEMU.
    pub(crate) async fn hand_out(&self, pod: &PodId, vfs: &[PciAddr], by_descriptor: bool) -> Result<Grant, VfError> {
        let mut files = Vec::with_capacity(vfs.len());
        for vf in vfs {
            let (vf, pf) = (*vf, self.held_by(pod, *vf)?.pf);
            files.push(self.on_lane(pf, move |inner| inner.hand_out(vf)).await?);
        }
        let grant = Grant::of(&files, by_descriptor);
        let mut held = self.0.held();
        for vf in vfs {
            if let Some(held) = held.get_mut(vf) {
                held.by_descriptor = grant != Grant::Hostdevs;
            }
        }
        drop(held);
        Ok(grant)
    }

    /// How the pod's VFs get to its QEMU, as [`Self::hand_out`] said. Blocks.
    pub(crate) fn grant(&self, pod: &PodId, vfs: &[PciAddr]) -> Result<Grant, VfError> {
        let by_descriptor = vfs.iter().map(|vf| Ok(self.held_by(pod, *vf)?.by_descriptor));
        let by_descriptor = by_descriptor.collect::<Result<Vec<_>, VfError>>()?;
        self.0.grant(vfs, by_descriptor.into_iter().all(|by_descriptor| by_descriptor))
    }

    /// Gives back all VFs of a pod, the last first; fine if it has none. Its machine must have ended. Each is tried,
    /// whatever comes of the others.
    pub(crate) async fn give_back(&self, pod: &PodId) -> Result<(), VfError> {
        let mut failed = None;
        for (vf, pf) in self.of(pod).into_iter().rev() {
            if let Err(error) = self.on_lane(pf, move |inner| inner.give_back(vf)).await {
                match &failed {
                    None => failed = Some(error),
                    Some(_) => error!(%vf, error = %Chain(&error), "virtual function not given back"),
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// What is not as it was when the pod's VFs were claimed; nothing when all is well.
    pub(crate) async fn look(&self, pod: &PodId, vfs: &[PciAddr]) -> Vec<Trouble> {
        let mut found = Vec::new();
        for vf in vfs.iter().copied() {
            let owner = pod.clone();
            let looked = self.read(vf, move |inner| Ok(inner.look(&owner, vf))).await;
            let of_vf = |trouble, breaks| Trouble { line: format!("virtual function `{vf}`: {trouble}"), breaks };
            match looked {
                Ok(trouble) => found.extend(trouble.map(|trouble| of_vf(trouble, true))),
                // Its machine has it as long as it runs.
                Err(late) => found.push(of_vf(Chain(&late).to_string(), false)),
            }
        }
        found
    }

    /// Reads of one VF, for a while: the kernel holds whoever reads of a VF that is being unbound.
    async fn read<T: Send + 'static>(
        &self,
        vf: PciAddr,
        work: impl FnOnce(&Inner) -> Result<T, VfError> + Send + 'static,
    ) -> Result<T, VfError> {
        let read = async {
            let reader = self.0.readers.lock(vf.to_string()).await;
            let inner = Arc::clone(&self.0);
            aside(move || {
                let _reader = reader;
                work(&inner)
            })
            .await
        };
        let within = READ_WITHIN;
        timeout(within, read).await.unwrap_or(Err(VfError::Waits { device: vf, within }))
    }

    /// All that have VFs, as far as they can be pods.
    pub(crate) fn owners(&self) -> BTreeSet<PodId> {
        self.0.held().values().filter_map(|held| held.owner.parse().ok()).collect()
    }

    /// The pod's VFs and their PFs.
    fn of(&self, pod: &PodId) -> Vec<(PciAddr, PciAddr)> {
        let held = self.0.held();
        let own = held.iter().filter(|(_, held)| held.owner == pod.as_str());
        own.map(|(vf, held)| (*vf, held.pf)).collect()
    }

    fn held_by(&self, pod: &PodId, vf: PciAddr) -> Result<Held, VfError> {
        let held = self.0.held().get(&vf).cloned();
        held.filter(|held| held.owner == pod.as_str()).ok_or(VfError::NotClaimed { vf })
    }

    /// The PF of a VF, by which its work is put in order. One that has none is refused by its claim, in words that fit.
    async fn lane_of(&self, vf: PciAddr) -> Result<PciAddr, VfError> {
        let sysfs = self.0.sysfs.clone();
        // Only a link is read, for which the kernel holds nobody up.
        Ok(off_reactor(move || sysfs.physfn(vf)).await?.unwrap_or(vf))
    }

    /// Does `work` on a thread of the pool, when nobody else works on a VF of `pf`.
    async fn on_lane<T: Send + 'static>(
        &self,
        pf: PciAddr,
        work: impl FnOnce(&Inner) -> Result<T, VfError> + Send + 'static,
    ) -> Result<T, VfError> {
        let lane = self.0.lanes.lock(pf.to_string()).await;
        let inner = Arc::clone(&self.0);
        // Whoever waits may give up; the lane is held until the work is done.
        aside(move || {
            let _lane = lane;
            work(&inner)
        })
        .await
    }
}

// === impl Inner ===

impl Inner {
    fn held(&self) -> MutexGuard<'_, BTreeMap<PciAddr, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self) -> Result<World, VfError> {
        Ok(Node { sysfs: self.sysfs.clone(), net: HostNet::open(self.sysfs.clone())? })
    }

    /// The notes, each of whose writes is a step for whoever wants a failure there.
    fn notes(&self) -> Counted {
        Counted { notes: self.notes.clone(), faults: Arc::clone(&self.faults) }
    }

    fn claim(&self, vf: PciAddr) -> Result<Option<Claim>, VfError> {
        self.notes.clone().noted(vf).map_err(|cause| VfError::Note { vf, cause })
    }

    fn take(&self, pf: PciAddr, request: Request) -> Result<(), VfError> {
        self.take_it(request).inspect_err(|_| {
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            *failed.entry(pf).or_default() += 1;
        })
    }

    fn take_it(&self, request: Request) -> Result<(), VfError> {
        let (mut world, mut notes) = (self.world()?, self.notes());
        let mut claim = claim::begin(request, &mut world, &mut notes).map_err(Box::new)?;
        self.held().insert(claim.vf(), Held::of(&claim));
        claim::take(&mut claim, &mut world, &mut notes).map_err(Box::new)?;
        let (pf, number) = claim.pf();
        info!(vf = %claim.vf(), %pf, number, "virtual function taken");
        for setting in claim.unsupported() {
            warn!(vf = %claim.vf(), %pf, %setting, "the PF's driver does not have this setting; its guest is not held to it");
        }
        Ok(())
    }

    /// The files by which the VF is reached from now on: those of the VF that was claimed, as it has just been looked at.
    fn hand_out(&self, vf: PciAddr) -> Result<VfioFiles, VfError> {
        let mut notes = self.notes();
        let noted = notes.noted(vf).map_err(|cause| VfError::Note { vf, cause })?;
        let mut claim = noted.ok_or(VfError::Lost { vf })?;
        claim::hand_out(&mut claim, &mut self.sysfs.clone(), &mut notes).map_err(Box::new)?;
        self.files(vf)
    }

    fn files(&self, vf: PciAddr) -> Result<VfioFiles, VfError> {
        self.sysfs.vfio_files(vf).map_err(|cause| VfError::Files { vf, cause })
    }

    fn grant(&self, vfs: &[PciAddr], by_descriptor: bool) -> Result<Grant, VfError> {
        // Its files are those of whichever VF is at its address.
        for vf in vfs.iter().copied() {
            let claim = self.claim(vf)?.ok_or(VfError::Lost { vf })?;
            claim::expect_bound(&claim, &mut self.sysfs.clone()).map_err(Box::new)?;
        }
        let files = vfs.iter().map(|vf| self.files(*vf)).collect::<Result<Vec<_>, _>>()?;
        Ok(Grant::of(&files, by_descriptor))
    }

    /// How the claim ended, if there was one.
    fn give_back(&self, vf: PciAddr) -> Result<Option<Outcome>, VfError> {
        let mut ended = None;
        if let Some(mut claim) = self.claim(vf)? {
            // How the guest ended is not known here, and a reset does a VF no harm.
            let ending = Ending { boot: &self.boot, guest: Guest::Died, netdev_within: NETDEV_WITHIN };
            let outcome =
                claim::release(&mut claim, &mut self.world()?, &mut self.notes(), ending).map_err(Box::new)?;
            ended = Some(outcome);
            let Outcome { end, unreset } = outcome;
            info!(%vf, ?end, "virtual function given back");
            if unreset {
                warn!(%vf, "the kernel knows no way to reset the virtual function");
            }
            self.notes.remove(vf)?;
            self.faults.passed();
        }
        self.held().remove(&vf);
        Ok(ended)
    }

    fn look(&self, pod: &PodId, vf: PciAddr) -> Option<String> {
        let said = |trouble: &dyn std::fmt::Display| Some(trouble.to_string());
        let claim = match self.claim(vf) {
            Ok(Some(claim)) if claim.owner() == pod.as_str() => claim,
            Ok(_) => return said(&"it is not claimed for the pod any more; detach the pod and attach it again"),
            Err(error) => return said(&Chain(&error)),
        };
        let now = Now { boot: &self.boot, owner_lives: true };
        match claim::repair(&claim, &mut self.sysfs.clone(), now) {
            Ok(Repair::Adopt) => None,
            Ok(Repair::GiveBack(Why::Vanished) | Repair::Forget) => {
                said(&"it is gone: its PF was told to have other VFs (`sriov_numvfs`), or its driver was unloaded")
            }
            Ok(Repair::GiveBack(Why::Unbound)) => said(&"it was taken from vfio-pci, which is not our doing"),
            Ok(Repair::GiveBack(why)) => said(&format_args!("it is on its way back ({why:?})")),
            Err(error) => said(&Chain(&error)),
        }
    }
}

impl Held {
    fn of(claim: &Claim) -> Self {
        Self { owner: claim.owner().to_owned(), pf: claim.pf().0, by_descriptor: false }
    }
}

/// Notes that report each write as a step.
#[derive(Debug)]
struct Counted {
    notes: ClaimNotes,
    faults: Arc<Faults>,
}

impl claim::Notes for Counted {
    fn noted(&mut self, vf: PciAddr) -> Result<Option<Claim>, claim::Cause> {
        self.notes.noted(vf)
    }

    fn flush(&mut self, claim: &Claim) -> Result<(), claim::Cause> {
        self.notes.flush(claim)?;
        Ok(self.faults.after("virtual function's step noted")?)
    }
}

#[cfg(test)]
mod tests;
