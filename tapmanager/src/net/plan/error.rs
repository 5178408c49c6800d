//! Why a pod cannot be joined: by [`super::plan`], before anything is done.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::IfName;

use crate::net::MAX_NICS;
use crate::net::filter::TooManyAddresses;

/// Why a pod cannot be joined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    /// Nothing to join.
    #[error("the plugins of network `{network}` made no link in the pod's namespace; is this a network for pods?")]
    NoLinks {
        /// The network.
        network: String,
    },
    /// Nothing but loopback.
    #[error("network `{network}` is nothing but a loopback link; it needs a plugin that connects pods")]
    OnlyLoopback {
        /// The network.
        network: String,
    },
    /// Not there.
    #[error("link `{name}`, which a CNI plugin reported, is not in the pod's namespace")]
    Missing {
        /// As reported.
        name: IfName,
    },
    /// Too many.
    #[error("the CNI plugins made {count} links, a virtual machine takes {MAX_NICS}")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// A link of another sort.
    #[error("link `{name}` carries no Ethernet frames, which a virtual machine's NIC needs")]
    NotEthernet {
        /// The link.
        name: IfName,
    },
    /// No station's address.
    #[error("link `{name}` has no MAC address that a virtual machine could take")]
    NoMac {
        /// The link.
        name: IfName,
    },
    /// A kind that would not work.
    #[error("link `{name}` is of kind `{kind}`, which cannot be given to a virtual machine; {advice}")]
    Kind {
        /// The link.
        name: IfName,
        /// Its kind.
        kind: String,
        /// What to use instead.
        advice: &'static str,
    },
    /// The virtual function is not the one that was named.
    #[error(
        "link `{name}` is the virtual function `{is}`, and {by} names `{named}`; have the device plugin and the network \
         agree"
    )]
    OtherDevice {
        /// The link.
        name: IfName,
        /// What it is.
        is: sriov::PciAddr,
        /// What it was said to be.
        named: sriov::PciAddr,
        /// By whom.
        by: String,
    },
    /// Nobody says its address, and the guest's network configuration goes by it.
    #[error(
        "the network's result says no MAC address of `{name}`, the virtual function `{device}` on vfio-pci; set `mac` in \
         the network's configuration"
    )]
    DeviceWithoutMac {
        /// The name that its link would have.
        name: IfName,
        /// The virtual function.
        device: sriov::PciAddr,
    },
    /// Down, so its routes are not there to be read.
    #[error("link `{name}` has addresses but is down; the CNI plugin that made it must bring it up")]
    Down {
        /// The link.
        name: IfName,
    },
    /// A name of ours is taken.
    #[error("a link `{name}` is in the pod's namespace already; a CNI plugin must not use this name")]
    NameTaken {
        /// The name.
        name: IfName,
    },
    /// The kernel does not have what was reported.
    #[error("address `{address}`, which a CNI plugin reported, is on no link that network `{network}` made")]
    AddressMissing {
        /// As reported.
        address: IpAddr,
        /// By this network.
        network: String,
    },
    /// More addresses than the guest can be held to.
    #[error("link `{name}` has too many addresses")]
    Identity {
        /// The link.
        name: IfName,
        /// How many.
        #[source]
        cause: TooManyAddresses,
    },
    /// A data path that the link does not allow.
    #[error("link `{name}` cannot be joined by the data path `{data_path}`: {why}; use `tc` for this pod")]
    DataPath {
        /// The link.
        name: IfName,
        /// As wished.
        data_path: &'static str,
        /// What stands against it.
        why: &'static str,
    },
    /// Nowhere an address.
    #[error("no link of the pod has an IP address; does the network's configuration lack `ipam`?")]
    NoAddress,
    /// A route that DHCP cannot say.
    #[error(
        "route to `{dst}` on link `{name}` goes by another address family or a tunnel, which a guest cannot be told"
    )]
    Route {
        /// The link.
        name: IfName,
        /// The destination.
        dst: IpNetwork,
    },
    /// A route that leads nowhere, inside of one that the guest has.
    #[error(
        "route to `{dst}` leads nowhere (it is a blackhole, unreachable, prohibit or throw), which a guest cannot be told: \
         it would go by `{instead}` on link `{name}`"
    )]
    Nowhere {
        /// The link.
        name: IfName,
        /// The destination.
        dst: IpNetwork,
        /// What the guest would use.
        instead: IpNetwork,
    },
    /// A gateway that nobody on the link answers for.
    #[error(
        "gateway `{gateway}` on link `{name}` is a permanent neighbour, which the guest of a macvtap cannot be told; use \
         another data path for this pod, such as `tc`"
    )]
    Neighbour {
        /// The link.
        name: IfName,
        /// The gateway.
        gateway: IpAddr,
    },
}
