//! SR-IOV virtual functions (VFs) of the node: which there are, who has them, and what a person does about them.

use serde::{Deserialize, Serialize};

use super::super::{MacAddr, PciAddress};

/// What is asked about VFs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum VfRequest {
    /// Lists physical functions (PFs) and their VFs in the order of their addresses. Answered by
    /// [`Reply::Vfs`](super::Reply::Vfs).
    List {
        /// Only VFs after this one; `None` starts at the first, and tells of PFs.
        after: Option<PciAddress>,
    },
    /// All that is known of one VF. Answered by [`Reply::Vf`](super::Reply::Vf).
    Explain {
        /// The VF.
        vf: PciAddress,
    },
    /// Claims a VF that is bound to vfio-pci for a person. Answered by [`Reply::Vf`](super::Reply::Vf).
    Claim(VfClaim),
    /// Gives back a claim; fine if there is none. Answered by [`Reply::Collected`](super::Reply::Collected).
    Release {
        /// The VF.
        vf: PciAddress,
        /// Also a pod's. Its machine must have ended: the kernel waits for that.
        force: bool,
    },
    /// Goes through all claims: forgets what is over, gives back what belongs to no pod on record, tells of the rest.
    /// Answered by [`Reply::Collected`](super::Reply::Collected).
    Repair,
}

/// A claim by hand. The words are those of `ip link set PF vf NUMBER`; what is not there is not asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfClaim {
    /// The VF.
    pub vf: PciAddress,
    /// Who claims it: a name for people, with the characters of a pod's id.
    pub by: String,
    /// Its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// Its VLAN, 0 to 4094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u32>,
    /// Priority of its frames in the VLAN, 0 to 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan_qos: Option<u32>,
    /// `on` or `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoofchk: Option<String>,
    /// `on` or `off`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<String>,
    /// `auto`, `enable` or `disable`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_state: Option<String>,
    /// Mbit/s that it gets at most; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tx_rate: Option<u32>,
}

/// The PFs of the node and one page of VFs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfPage {
    /// At most [`MAX_PFS`](super::super::MAX_PFS), in the order of their addresses; on the first page alone.
    pub pfs: Vec<PfSummary>,
    /// At most [`MAX_VF_PAGE`](super::super::MAX_VF_PAGE), in the order of their addresses.
    pub vfs: Vec<VfSummary>,
    /// What cannot be read and why: lines for people; on the first page alone.
    pub trouble: Vec<String>,
    /// Whether there are VFs after the last of these.
    pub more: bool,
}

/// A PF of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PfSummary {
    /// Its address.
    pub pf: PciAddress,
    /// Its netdevs in the host's namespace.
    pub netdevs: Vec<String>,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
    /// How many VFs it can have.
    pub total: u32,
    /// How many it has (`sriov_numvfs`).
    pub enabled: u32,
    /// How many of them are claimed.
    pub used: u32,
    /// Claims of its VFs that failed since the start of the daemon.
    pub failed: u64,
    /// Whether the kernel looks for a driver for new VFs (`sriov_drivers_autoprobe`), if it says so.
    pub autoprobe: Option<bool>,
}

/// A VF of a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfSummary {
    /// Its address.
    pub vf: PciAddress,
    /// Its PF.
    pub pf: PciAddress,
    /// Its number there, as in `ip link set PF vf NUMBER`.
    pub number: u32,
    /// The driver that is bound to it, if any.
    pub driver: Option<String>,
    /// Its netdevs in the host's namespace.
    pub netdevs: Vec<String>,
    /// Its IOMMU group, if it has one.
    pub group: Option<u32>,
    /// Whether there is a file in `/dev/vfio` by which a process could have it.
    pub vfio: bool,
    /// Whose it is.
    pub claim: Option<VfHolder>,
}

/// Whose a VF is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfHolder {
    /// A pod's id; or `by-hand:` and who claimed it.
    pub owner: String,
    /// Kubernetes namespace and name of the pod, if it is on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<(String, String)>,
    /// How far the claim is.
    pub step: VfStep,
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VfStep {
    /// The VF was looked at and may be taken.
    Observed,
    /// What it was like is known.
    Saved,
    /// It has the guest's settings.
    Taken,
    /// vfio-pci has it.
    Bound,
    /// The guest has it, or may have.
    InUse,
    /// It is being given back.
    Rebinding,
    /// It is as it was.
    Restored,
}

impl VfStep {
    /// The step as text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Observed => "observed",
            Self::Saved => "saved",
            Self::Taken => "taken",
            Self::Bound => "bound",
            Self::InUse => "in use",
            Self::Rebinding => "rebinding",
            Self::Restored => "restored",
        }
    }
}

/// All that is known of one VF.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VfDetail {
    /// As in a list.
    pub summary: VfSummary,
    /// Group, settings, claim, and whether it may be handed out: lines for people.
    pub explanation: Vec<String>,
}
