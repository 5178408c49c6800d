//! What differs in a pod's namespace from what was made in it, and how bad that is.

use std::fmt;
use std::net::IpAddr;

use proto::tap::{IfName, MacAddr};

use super::Finding;

/// Something that is not as it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Drift {
    /// The plugin's link is gone.
    LinkGone { link: IfName },
    /// The plugin's link has another MAC address than the guest.
    MacChanged { link: IfName, mac: MacAddr },
    /// The least MTU of the plugin's link and its routes is another one than the guest was told.
    MtuChanged { link: IfName, was: u32, is: u32 },
    /// A link is administratively down.
    Down { link: IfName },
    /// A link of ours is gone.
    OursGone { link: IfName },
    /// A link that is not ours has the name of ours.
    NameTaken { link: IfName, kind: Option<String> },
    /// Filters of ours are lost, or other ones, and what is not ours stands in their place.
    InTheWay { link: IfName, what: String, breaks: bool },
    /// Frames do not go from one link to another.
    NotJoined { from: IfName, to: IfName },
    /// A guard is gone.
    Unguarded { link: IfName },
    /// A guard is not the one that it should be.
    OtherGuard { link: IfName },
    /// The guest has an address that the link does not have any more.
    AddressGone { link: IfName, address: IpAddr },
    /// The link has an address that the guest was not given.
    AddressNew { link: IfName, address: IpAddr },
    /// The link has other routes than the guest was given.
    RoutesChanged { link: IfName },
}

impl Drift {
    /// Whether what it tells is not ours to make again.
    pub(crate) fn is_beyond_us(&self) -> bool {
        matches!(self, Self::LinkGone { .. } | Self::MacChanged { .. } | Self::NameTaken { .. } | Self::InTheWay { .. })
    }

    /// The link that it is about.
    pub(crate) fn link(&self) -> &IfName {
        match self {
            Self::LinkGone { link }
            | Self::MacChanged { link, .. }
            | Self::MtuChanged { link, .. }
            | Self::Down { link }
            | Self::OursGone { link }
            | Self::NameTaken { link, .. }
            | Self::InTheWay { link, .. }
            | Self::NotJoined { from: link, .. }
            | Self::Unguarded { link }
            | Self::OtherGuard { link }
            | Self::AddressGone { link, .. }
            | Self::AddressNew { link, .. }
            | Self::RoutesChanged { link } => link,
        }
    }

    /// For whoever asked.
    pub(crate) fn found(&self) -> Finding {
        let breaks = self.is_break();
        Finding { line: self.to_string(), breaks, ours: !self.is_beyond_us() && (breaks || self.is_guard()) }
    }

    fn is_guard(&self) -> bool {
        matches!(self, Self::Unguarded { .. } | Self::OtherGuard { .. })
    }

    /// Whether the guest is cut off by it, or not guarded. What an earlier release guarded is guarded.
    pub(crate) fn is_break(&self) -> bool {
        match self {
            Self::LinkGone { .. }
            | Self::MacChanged { .. }
            | Self::Down { .. }
            | Self::OursGone { .. }
            | Self::NameTaken { .. }
            | Self::NotJoined { .. }
            | Self::Unguarded { .. } => true,
            Self::InTheWay { breaks, .. } => *breaks,
            Self::MtuChanged { .. }
            | Self::OtherGuard { .. }
            | Self::AddressGone { .. }
            | Self::AddressNew { .. }
            | Self::RoutesChanged { .. } => false,
        }
    }
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkGone { link } => write!(f, "link `{link}`, which a CNI plugin made, is gone"),
            Self::MacChanged { link, mac } => write!(f, "link `{link}` no longer has the guest's MAC address `{mac}`"),
            Self::MtuChanged { link, was, is } => {
                write!(
                    f,
                    "link `{link}` and its routes have an MTU of {is}, the guest was told {was}; restart the machine"
                )
            }
            Self::Down { link } => write!(f, "link `{link}` is down"),
            Self::OursGone { link } => {
                write!(f, "link `{link}` is gone; a running machine that held it has to be started anew")
            }
            Self::NameTaken { link, kind } => {
                let kind = kind.as_deref().unwrap_or("hardware");
                write!(f, "link `{link}` is another one, of kind `{kind}`, where ours was; remove it")
            }
            Self::InTheWay { link, what, .. } => {
                write!(f, "link `{link}` has lost filters, and {what} is in the way of making them anew; remove it")
            }
            Self::NotJoined { from, to } => write!(f, "link `{from}` does not lead to `{to}` any more"),
            Self::Unguarded { link } => write!(f, "link `{link}` has lost its filter"),
            Self::OtherGuard { link } => write!(f, "link `{link}` has another filter than it should have"),
            Self::AddressGone { link, address } => write!(f, "link `{link}` has lost the address `{address}`"),
            Self::AddressNew { link, address } => {
                write!(f, "link `{link}` has the address `{address}`, which the guest was not given")
            }
            Self::RoutesChanged { link } => write!(f, "link `{link}` has other routes than the guest was given"),
        }
    }
}
