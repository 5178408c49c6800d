//! Router advertisements of one NIC. Skeleton.

use std::time::Duration;

use proto::tap::{Dns, Nic};

use crate::sys::bpf::Program;

/// How often [`Server::unsolicited`] is sent.
pub(crate) const INTERVAL: Duration = Duration::from_secs(600);

/// What comes of a guest's frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    /// Frames to the guest, out of the tap.
    pub(crate) to_guest: Vec<Vec<u8>>,
    /// Frames to the network, out of the CNI's link.
    pub(crate) to_link: Vec<Vec<u8>>,
}

/// Advertises the routers of one NIC.
#[derive(Debug)]
pub(crate) struct Server {}

impl Server {
    /// `None` if the NIC has no IPv6 address.
    pub(crate) fn new(_nic: &Nic, _dns: &Dns) -> Option<Self> {
        None
    }

    /// Whether [`Self::handle_link_frame`] is to be given the network's neighbour advertisements ([`link_filter`]).
    pub(crate) fn needs_link(&self) -> bool {
        false
    }

    /// Takes an Ethernet frame of the guest, heard on the tap.
    pub(crate) fn handle_frame(&mut self, _frame: &[u8]) -> Answers {
        Answers::default()
    }

    /// Takes an Ethernet frame of the network, heard on the CNI's link; gives frames to the guest.
    pub(crate) fn handle_link_frame(&mut self, _frame: &[u8]) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// The advertisements, to be sent at the start and each [`INTERVAL`].
    pub(crate) fn unsolicited(&self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// The filter of the packet socket on the CNI's link: neighbour advertisements without a VLAN tag.
pub(crate) fn link_filter() -> Program {
    Program::always(0)
}
