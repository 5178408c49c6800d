//! What a runtime handler's machines have beside the usual devices.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

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

/// Declares an enum that settings name, with an error that says which there are.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $error:ident, $text:literal { $($(#[$of_one:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$of_one])* #[serde(rename = $word)] $variant,)*
        }

        #[doc = concat!("Why a text is no [`", stringify!($name), "`].")]
        #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
        #[error($text)]
        pub struct $error;

        impl $name {
            /// As settings and libvirt call it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, $error> {
                match text { $($word => Ok(Self::$variant),)* _ => Err($error) }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

named! {
    /// What the guest finds in its clock when it starts.
    #[derive(Default)]
    Clock, NoClock, "use `utc` or `localtime`" {
        /// For all guests but Windows.
        #[default]
        Utc = "utc",
        /// The node's local time.
        Localtime = "localtime",
    }
}

named! {
    /// A device that the guest has to write to again and again; if it does not, it is reset, as by its own reboot.
    Watchdog, NoWatchdog, "use `itco` or `i6300esb`" {
        /// Of the chipset `q35`.
        Itco = "itco",
        /// A PCI card.
        I6300esb = "i6300esb",
    }
}

named! {
    /// How the guest's screen is seen.
    Graphics, NoGraphics, "use `vnc` or `none`" {
        /// By a UNIX socket on the node, never by the network.
        Vnc = "vnc",
        /// There is no screen.
        None = "none",
    }
}

named! {
    /// What guests may see of the node's own files, beside the volumes that kubelet makes.
    HostPath, NoHostPath, "use `allow`, `readonly` or `deny`" {
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
