//! DHCPv6 server of one NIC. Skeleton.

use std::time::Duration;

use proto::tap::{Dns, Nic};

/// Answers the one client of a NIC.
#[derive(Debug)]
pub(crate) struct Server {}

impl Server {
    /// `None` if the NIC has no IPv6 address.
    pub(crate) fn new(_nic: &Nic, _dns: &Dns, _hostname: &str, _lease: Duration) -> Option<Self> {
        None
    }

    /// Takes an Ethernet frame of the guest; the answer is one to the guest, if it is to have any.
    pub(crate) fn handle_frame(&mut self, _frame: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
