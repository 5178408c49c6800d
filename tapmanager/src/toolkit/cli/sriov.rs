//! The command line of `tapmanager sriov`.

use clap::{Args, Subcommand};
use proto::tap::{MacAddr, PciAddress, VfClaim};

use super::Common;

/// About SR-IOV virtual functions.
#[derive(Debug, Subcommand)]
pub enum Sriov {
    /// List physical and virtual functions and who has them; without a daemon, as sysfs and the notes have it
    List(Common),
    /// Say all that is known of a virtual function, and whether it may be handed out
    Explain(OfVf),
    /// Claim a virtual function that vfio-pci has, by hand: for tests, or to keep it from pods
    Claim(Box<Claim>),
    /// Give back a claim that was made by hand
    Release(Release),
    /// Go through all claims: forget what is over, give back what is nobody's, tell of the rest
    Repair(Common),
}

/// Of `explain`.
#[derive(Debug, Args)]
pub struct OfVf {
    /// The virtual function, such as 0000:3b:02.1
    pub vf: PciAddress,
    #[command(flatten)]
    pub common: Common,
}

/// Of `release`.
#[derive(Debug, Args)]
pub struct Release {
    /// The virtual function, such as 0000:3b:02.1
    pub vf: PciAddress,
    /// Also if it is a pod's
    ///
    /// The pod's VM must have ended: if it runs, this waits in the kernel until it has. The pod is of no use afterwards.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub common: Common,
}

/// Of `claim`. Settings are those of `ip link set PF vf NUMBER`.
#[derive(Debug, Args)]
pub struct Claim {
    /// The virtual function, such as 0000:3b:02.1
    pub vf: PciAddress,
    /// Who claims it, for `list`
    #[arg(long, value_name = "NAME", default_value = "command-line")]
    pub by: String,
    /// Address
    #[arg(long)]
    pub mac: Option<MacAddr>,
    /// VLAN, 0 to 4094; 0 is none
    #[arg(long, value_name = "ID")]
    pub vlan: Option<u32>,
    /// Priority of frames in the VLAN, 0 to 7
    #[arg(long, value_name = "N", requires = "vlan")]
    pub vlan_qos: Option<u32>,
    /// Whether frames from other addresses are dropped: on or off [default: on if the card can]
    #[arg(long, value_name = "SWITCH")]
    pub spoofchk: Option<String>,
    /// Whether it may change its address and hear everything: on or off [default: off if the card can]
    #[arg(long, value_name = "SWITCH")]
    pub trust: Option<String>,
    /// What it is told of the link: auto, enable or disable
    #[arg(long, value_name = "STATE")]
    pub link_state: Option<String>,
    /// What it sends at most, in Mbit/s; 0 is no limit
    #[arg(long, value_name = "RATE")]
    pub max_tx_rate: Option<u32>,
    #[command(flatten)]
    pub common: Common,
}

impl Claim {
    /// What is asked of the daemon.
    pub(in crate::toolkit) fn request(self) -> (VfClaim, Common) {
        let Self { vf, by, mac, vlan, vlan_qos, spoofchk, trust, link_state, max_tx_rate, common } = self;
        (VfClaim { vf, by, mac, vlan, vlan_qos, spoofchk, trust, link_state, max_tx_rate }, common)
    }
}
