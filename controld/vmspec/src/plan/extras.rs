//! What a runtime handler's machines have beside the usual devices.

use serde::{Deserialize, Serialize};

use crate::words::words;

/// All of them, for the whole life of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Extras {
    #[serde(skip_serializing_if = "Clock::is_utc")]
    pub clock: Clock,
    /// What Windows asks a hypervisor for, to run well. KVM only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub hyperv: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Watchdog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub graphics: Option<Graphics>,
}

words! {
    /// What the guest finds in its clock when it starts.
    #[derive(Default)]
    Clock or NoClock "use `utc` or `localtime`" {
        /// For all guests but Windows.
        #[default]
        Utc = "utc",
        /// The node's local time.
        Localtime = "localtime",
    }
}

words! {
    /// A device that the guest has to write to again and again; if it does not, it is reset, as by its own reboot.
    Watchdog or NoWatchdog "use `itco` or `i6300esb`" {
        /// Of the chipset `q35`.
        Itco = "itco",
        /// A PCI card.
        I6300esb = "i6300esb",
    }
}

words! {
    /// How the guest's screen is seen.
    Graphics or NoGraphics "use `vnc` or `none`" {
        /// By a UNIX socket on the node, never by the network.
        Vnc = "vnc",
        /// There is no screen.
        None = "none",
    }
}

words! {
    /// What guests may see of the node's own files, beside the volumes that kubelet makes.
    HostPath or NoHostPath "use `allow`, `readonly` or `deny`" {
        Allow = "allow",
        /// Nothing that the guest could write to.
        Readonly = "readonly",
        Deny = "deny",
    }
}

impl Clock {
    fn is_utc(&self) -> bool {
        *self == Self::Utc
    }
}

impl Graphics {
    /// Whether there is a screen.
    #[must_use]
    pub fn is_vnc(self) -> bool {
        self == Self::Vnc
    }
}
