//! All that is known of one VF, in lines for people: for `tapmanager sriov explain`. Changes nothing.

use common::Chain;
use proto::tap::{VfDetail, VfSummary};
use sriov::bind::VFIO_PCI;
use sriov::claim::{self, Claim, ClaimError, Now, Repair, Why};
use sriov::device::{Function, Seen};
use sriov::group::{Group, GroupError};
use sriov::policy::{self, Arrival, Refusal};
use sriov::settings::{PfControl as _, VfSettings};
use sriov::vfio::VfioFiles;
use sriov::{DiscoverError, PciAddr};

use super::by_hand::BY_HAND;
use super::survey::{of_note, of_vf};
use super::{Claims, Inner};
use crate::vf::host::HostNet;
use crate::vf::problem::VfError;

impl Claims {
    /// All that is known of a VF.
    pub(crate) async fn explain(&self, vf: PciAddr) -> Result<VfDetail, VfError> {
        self.read(vf, move |inner| inner.explain(vf)).await
    }
}

impl Inner {
    fn explain(&self, vf: PciAddr) -> Result<VfDetail, VfError> {
        let noted = self.claim(vf);
        let claim = noted.as_ref().ok().and_then(Option::as_ref);
        let Some(seen) = self.sysfs.look(vf)? else {
            return match claim {
                Some(claim) => Ok(gone(claim, self.standing(claim))),
                None => Err(DiscoverError::NoDevice { addr: vf }.into()),
            };
        };
        let (pf, number) = match seen.function {
            Function::Virtual { pf, number } => (pf, number),
            Function::Physical => return Err(refused(vf, Refusal::Physical)),
            Function::Plain => return Err(refused(vf, Refusal::NotVirtual)),
        };
        let summary = of_vf(&self.sysfs, pf, number, vf, claim)?;
        let group = self.sysfs.group(vf);
        let mut lines = vec![self.place(pf, number), device(&seen, &summary), of_group(vf, group.as_ref())];
        lines.push(match self.sysfs.vfio_files(vf) {
            Ok(files) => by_files(&files),
            Err(_) if seen.driver.as_deref() != Some(VFIO_PCI) => {
                "no file of vfio, as vfio-pci does not have it".to_owned()
            }
            Err(error) => format!("no file of vfio: {}", Chain(&error)),
        });
        let settings = HostNet::open(self.sysfs.clone()).map_err(|error| Chain(&error).to_string());
        let settings = settings.and_then(|mut net| net.read(pf, number).map_err(|error| Chain(&error).to_string()));
        lines.push(match settings {
            Ok(settings) => format!("its PF has for it: {}", listed(&settings)),
            Err(why) => format!("its settings at the PF are not known: {why}"),
        });
        match &noted {
            Err(error) => lines.push(format!("cannot be claimed: {}", Chain(error))),
            Ok(None) => lines.push(verdict(vf, &seen, group)),
            Ok(Some(claim)) => lines.extend(of_claim(claim, self.standing(claim))),
        }
        Ok(VfDetail { summary, explanation: lines })
    }

    fn place(&self, pf: PciAddr, number: u32) -> String {
        let netdevs = self.sysfs.netdevs(pf).unwrap_or_default().join(", ");
        let driver = self.sysfs.driver(pf).ok().flatten();
        let (netdevs, driver) = (or_none(&netdevs), or_none(driver.as_deref().unwrap_or_default()));
        format!("VF {number} of PF `{pf}` (netdev `{netdevs}`, driver `{driver}`)")
    }

    /// How the claim stands.
    fn standing(&self, claim: &Claim) -> String {
        let vf = claim.vf();
        let now = Now { boot: &self.boot, owner_lives: true };
        match claim::repair(claim, &mut self.sysfs.clone(), now) {
            Ok(Repair::Adopt) => "the claim stands".to_owned(),
            Ok(Repair::Forget) => {
                "the claim is over, or of an earlier boot; `tapmanager sriov repair` forgets it".to_owned()
            }
            Ok(Repair::GiveBack(Why::Vanished)) => {
                "the VF that was claimed is gone (`sriov_numvfs`, or its PF's driver was unloaded); delete the pod"
                    .to_owned()
            }
            Ok(Repair::GiveBack(Why::Unbound)) => {
                format!("something took it from {VFIO_PCI}, which is not our doing (driverctl, udev); delete the pod")
            }
            Ok(Repair::GiveBack(_)) => {
                format!("the claim is on its way, or broke off; if it stays so, `tapmanager sriov release {vf}`")
            }
            Err(error) => Chain(&error).to_string(),
        }
    }
}

/// A VF that is claimed and not there.
fn gone(claim: &Claim, standing: String) -> VfDetail {
    let (pf, number) = claim.pf();
    let mut explanation = vec![format!("there is no such device; it was VF {number} of PF `{pf}`")];
    explanation.extend(of_claim(claim, standing));
    VfDetail { summary: of_note(claim), explanation }
}

fn refused(vf: PciAddr, cause: Refusal) -> VfError {
    Box::new(ClaimError::Refused { vf, cause }).into()
}

fn device(seen: &Seen, summary: &VfSummary) -> String {
    let driver = or_none(seen.driver.as_deref().unwrap_or_default());
    let chosen = or_none(seen.driver_override.as_deref().unwrap_or_default());
    let netdevs = summary.netdevs.join(", ");
    format!("driver `{driver}`, driver_override `{chosen}`, netdev in the host's namespace `{}`", or_none(&netdevs))
}

fn of_group(vf: PciAddr, group: Result<&Group, &GroupError>) -> String {
    let Group { number, members } = match group {
        Ok(group) => group,
        Err(error) => return format!("no IOMMU group: {}", Chain(error)),
    };
    let others = members.iter().filter(|member| member.name.parse() != Ok(vf)).map(|member| {
        let driver = or_none(member.driver.as_deref().unwrap_or_default()).to_owned();
        format!("`{}` (driver `{driver}`{})", member.name, if member.bridge { ", a bridge" } else { "" })
    });
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        format!("IOMMU group {number}, which it has for itself")
    } else {
        format!("IOMMU group {number}, with {}", others.join(", "))
    }
}

fn by_files(VfioFiles { group, device, iommufd }: &VfioFiles) -> String {
    let files = [group, device, iommufd].into_iter().flatten();
    let files: Vec<String> = files.map(|path| format!("`{}`", path.display())).collect();
    let way = match (device, iommufd) {
        (Some(_), Some(_)) => "by descriptors, if QEMU takes them, else by libvirt",
        _ => "by libvirt",
    };
    format!("files {}; it goes to a machine {way}", files.join(", "))
}

fn listed(settings: &VfSettings) -> String {
    let all: Vec<String> = settings.attributes().map(|attribute| format!("{} {attribute}", attribute.kind())).collect();
    if all.is_empty() { "nothing that its driver reports".to_owned() } else { all.join(", ") }
}

fn of_claim(claim: &Claim, standing: String) -> Vec<String> {
    let came = match claim.arrival() {
        Arrival::Netdev { netns, name } => format!("came as `{name}` in `{netns}`"),
        Arrival::Vfio => format!("came on {VFIO_PCI}"),
    };
    let owner = claim.owner();
    let whose = if owner.starts_with(BY_HAND) { "" } else { "pod " };
    let mut lines = vec![format!("claimed by {whose}`{owner}`, which is at `{:?}`; {came}", claim.step())];
    if let Some(saved) = claim.saved() {
        lines.push(format!("it gets back: {}", listed(&saved.settings)));
    }
    lines.push(format!("asked for: {}", listed_or_nothing(&claim.wanted().asked)));
    lines.push(format!("else set where the driver can: {}", listed_or_nothing(&claim.wanted().otherwise)));
    if !claim.unsupported().is_empty() {
        let kinds: Vec<String> = claim.unsupported().iter().map(ToString::to_string).collect();
        lines.push(format!("the PF's driver has no {}: its guest is not held to it", kinds.join(", ")));
    }
    lines.push(standing);
    lines
}

fn listed_or_nothing(settings: &VfSettings) -> String {
    if *settings == VfSettings::default() { "nothing".to_owned() } else { listed(settings) }
}

/// Whether a VF that nobody has may be handed out.
fn verdict(vf: PciAddr, seen: &Seen, group: Result<Group, GroupError>) -> String {
    let shared = match group.map(|group| group.admit(&[vf].into())) {
        Ok(Ok(())) => None,
        Ok(Err(shared)) => Some(shared.to_string()),
        Err(error) => Some(Chain(&error).to_string()),
    };
    if let Some(why) = shared {
        return format!("would be refused: {why}");
    }
    match policy::admit(seen, &Arrival::Vfio) {
        Ok(_) => format!("nobody has claimed it; it may be handed out as it is, on {VFIO_PCI}"),
        Err(_) if seen.driver.is_some() => {
            "nobody has claimed it; it may be handed out once a CNI plugin has moved its netdev into a pod".to_owned()
        }
        Err(error) => format!("would be refused: {error}"),
    }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}
