//! Which PFs and VFs there are, and who has them: for `tapmanager sriov list` and metrics.
//!
//! Called by the daemon, and by the tool itself where no daemon runs. Changes nothing. A PF whose VFs are being taken away
//! while a guest has one cannot be read until that guest has ended: the kernel holds whoever reads `sriov_numvfs`. Such a PF
//! is named as trouble, hides no other, and costs one thread however often it is asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use common::{Chain, Reason};
use futures_util::future::join_all;
use proto::tap::{MAX_PFS, MAX_VF_PAGE, PciAddress, PfSummary, VfHolder, VfPage, VfStep, VfSummary};
use sriov::claim::{Claim, Step};
use sriov::device::DiscoverError;
use sriov::{PciAddr, Sysfs};
use tokio::time::timeout;

use super::Claims;
use crate::blocking::aside;
use crate::vf::address::{local, wire};
use crate::vf::notes::ClaimNotes;
use crate::vf::problem::VfError;

/// How long one PF is waited for. Its files are read in some milliseconds, also with 256 VFs.
const READ_WITHIN: Duration = Duration::from_secs(2);
/// Netdevs of a device that are told, and characters of a driver's name.
const NETDEVS: usize = 2;
const DRIVER: usize = 64;

/// A PF with its VFs.
type OfPf = (PfSummary, Vec<VfSummary>);

#[derive(Debug, Default)]
struct Survey {
    pfs: Vec<PfSummary>,
    vfs: BTreeMap<PciAddr, VfSummary>,
    trouble: Vec<String>,
}

impl Claims {
    /// PFs, and the VFs after `after`.
    pub(crate) async fn list(&self, after: Option<PciAddress>) -> Result<VfPage, VfError> {
        let inner = Arc::clone(&self.0);
        let (pfs, (claims, unreadable)) = aside(move || {
            let pfs = inner.sysfs.physical_addresses().map_err(VfError::List)?;
            Ok::<_, VfError>((pfs, inner.notes.all()?))
        })
        .await?;
        let mut survey = Survey::default();
        survey.trouble.extend(unreadable.iter().map(|note| Chain(note).to_string()));
        let claims: Arc<BTreeMap<_, _>> = Arc::new(claims.into_iter().map(|claim| (claim.vf(), claim)).collect());
        let read = pfs.into_iter().map(|pf| {
            let claims = Arc::clone(&claims);
            async move { (pf, self.read_pf(pf, claims).await) }
        });
        for (pf, read) in join_all(read).await {
            survey.add(pf, read.map_err(|error| Chain(&error).to_string()));
        }
        let failed = self.0.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for pf in &mut survey.pfs {
            pf.failed = failed.get(&local(pf.pf)).copied().unwrap_or_default();
        }
        Ok(survey.page(&claims, after))
    }

    async fn read_pf(&self, pf: PciAddr, claims: Arc<BTreeMap<PciAddr, Claim>>) -> Result<Option<OfPf>, VfError> {
        let read = async {
            let reader = self.0.readers.lock(pf.to_string()).await;
            let inner = Arc::clone(&self.0);
            aside(move || {
                let _reader = reader;
                of_pf(&inner.sysfs, pf, &claims)
            })
            .await
        };
        match timeout(READ_WITHIN, read).await {
            Ok(read) => Ok(read?),
            Err(_late) => Err(VfError::Waits { device: pf, within: READ_WITHIN }),
        }
    }
}

/// All PFs and VFs, as sysfs and the notes have them. For when no daemon runs; waits as long as the kernel does.
///
/// # Errors
/// If PFs or notes cannot be listed.
pub(crate) fn survey(sysfs: &Sysfs, notes: &ClaimNotes) -> Result<VfPage, Reason> {
    let failed = Reason::because("failed to list the physical functions");
    let (claims, unreadable) = notes.all()?;
    let claims: BTreeMap<PciAddr, Claim> = claims.into_iter().map(|claim| (claim.vf(), claim)).collect();
    let mut survey = Survey::default();
    survey.trouble.extend(unreadable.iter().map(|note| Chain(note).to_string()));
    for pf in sysfs.physical_addresses().map_err(failed)? {
        survey.add(pf, of_pf(sysfs, pf, &claims).map_err(|error| Chain(&error).to_string()));
    }
    Ok(VfPage { more: false, vfs: survey.vfs.values().cloned().collect(), ..survey.page(&claims, None) })
}

fn of_pf(sysfs: &Sysfs, addr: PciAddr, claims: &BTreeMap<PciAddr, Claim>) -> Result<Option<OfPf>, DiscoverError> {
    let Some(pf) = sysfs.physical_function(addr)? else { return Ok(None) };
    let mut vfs = Vec::new();
    for (number, vf) in pf.vfs {
        vfs.push(of_vf(sysfs, addr, number, vf, claims.get(&vf))?);
    }
    let used = vfs.iter().filter(|vf| vf.claim.is_some()).count();
    let summary = PfSummary {
        pf: wire(addr),
        netdevs: pf.netdevs.into_iter().take(NETDEVS).collect(),
        driver: pf.driver.map(short),
        total: pf.total,
        enabled: pf.enabled,
        used: used.try_into().unwrap_or(u32::MAX),
        failed: 0,
        autoprobe: pf.autoprobe,
    };
    Ok(Some((summary, vfs)))
}

/// A VF as sysfs has it, and whose it is by its note.
pub(super) fn of_vf(
    sysfs: &Sysfs,
    pf: PciAddr,
    number: u32,
    vf: PciAddr,
    claim: Option<&Claim>,
) -> Result<VfSummary, DiscoverError> {
    Ok(VfSummary {
        vf: wire(vf),
        pf: wire(pf),
        number,
        driver: sysfs.driver(vf)?.map(short),
        netdevs: sysfs.netdevs(vf)?.into_iter().take(NETDEVS).collect(),
        // Why there is none is told of the one VF that is asked for.
        group: sysfs.group(vf).ok().map(|group| group.number),
        vfio: sysfs.vfio_files(vf).is_ok(),
        claim: claim.map(holder),
    })
}

/// A VF that is noted and not there.
pub(super) fn of_note(claim: &Claim) -> VfSummary {
    let (vf, (pf, number)) = (wire(claim.vf()), claim.pf());
    let (driver, netdevs, claim) = (None, Vec::new(), Some(holder(claim)));
    VfSummary { vf, pf: wire(pf), number, driver, netdevs, group: None, vfio: false, claim }
}

fn holder(claim: &Claim) -> VfHolder {
    VfHolder { owner: claim.owner().to_owned(), pod: None, step: step(claim.step()) }
}

const fn step(step: Step) -> VfStep {
    match step {
        Step::Observed => VfStep::Observed,
        Step::Saved => VfStep::Saved,
        Step::Taken => VfStep::Taken,
        Step::Bound => VfStep::Bound,
        Step::InUse => VfStep::InUse,
        Step::Rebinding => VfStep::Rebinding,
        Step::Restored => VfStep::Restored,
    }
}

fn short(name: String) -> String {
    name.chars().take(DRIVER).collect()
}

// === impl Survey ===

impl Survey {
    fn add(&mut self, pf: PciAddr, read: Result<Option<OfPf>, String>) {
        match read {
            // Gone since it was listed.
            Ok(None) => {}
            Ok(Some((pf, vfs))) => {
                self.pfs.push(pf);
                self.vfs.extend(vfs.into_iter().map(|vf| (local(vf.vf), vf)));
            }
            Err(why) => self.trouble.push(format!("PF `{pf}`: {why}")),
        }
    }

    fn page(mut self, claims: &BTreeMap<PciAddr, Claim>, after: Option<PciAddress>) -> VfPage {
        let mut rest = self.vfs.values().filter(|vf| after.is_none_or(|after| local(vf.vf) > local(after)));
        let vfs = rest.by_ref().take(MAX_VF_PAGE).cloned().collect();
        let more = rest.next().is_some();
        if after.is_some() {
            return VfPage { vfs, more, ..VfPage::default() };
        }
        for (vf, claim) in claims.iter().filter(|(vf, _)| !self.vfs.contains_key(vf)) {
            let owner = claim.owner();
            self.trouble.push(format!(
                "`{vf}` is claimed by `{owner}` and is not shown by its PF; `tapmanager sriov explain {vf}` says more"
            ));
        }
        let others = self.pfs.len().saturating_sub(MAX_PFS);
        if others > 0 {
            self.pfs.truncate(MAX_PFS);
            self.trouble.push(format!("{others} more PFs are not shown"));
        }
        VfPage { pfs: self.pfs, vfs, trouble: self.trouble, more }
    }
}
