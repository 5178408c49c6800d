//! The two guards of a NIC.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use proto::tap::Nic;

use super::{Guard, Identity, Served, TooManyAddresses};

/// The guards of a NIC.
#[derive(Debug, Clone)]
pub(crate) struct Guards {
    /// On what its guest sends.
    pub(crate) from_guest: Guard,
    /// On what it is sent.
    pub(crate) to_guest: Guard,
}

impl Guards {
    /// Of a NIC whose guest is held to its identity, or may be anybody.
    pub(crate) fn of(nic: &Nic, anti_spoof: bool) -> Result<Self, TooManyAddresses> {
        if !anti_spoof {
            // As `addressing` serves it.
            let served = Served {
                v4: nic.addresses.iter().any(IpNetwork::is_ipv4),
                v6: nic.addresses.iter().any(IpNetwork::is_ipv6),
            };
            return Ok(Self { from_guest: Guard::FromGuest(served), to_guest: Guard::ToGuest(nic.mac, served) });
        }
        let addresses: Vec<IpAddr> = nic.addresses.iter().map(IpNetwork::ip).collect();
        let gateways: Vec<IpAddr> = nic.routes.iter().filter_map(|route| route.gateway).collect();
        let identity = Identity::new(nic.mac, &addresses, &gateways)?;
        Ok(Self { from_guest: Guard::FromGuestAntiSpoof(identity), to_guest: Guard::ToGuestAntiSpoof(nic.mac) })
    }
}
