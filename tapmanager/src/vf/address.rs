//! Addresses of virtual functions, between the crate that claims them and the wire.

use proto::tap::PciAddress;
use sriov::PciAddr;

/// As the wire has it.
pub(crate) fn wire(addr: PciAddr) -> PciAddress {
    addr.to_string().parse().expect("both are written as the kernel writes them")
}

/// As the claims have it.
pub(crate) fn local(address: PciAddress) -> PciAddr {
    address.to_string().parse().expect("both are written as the kernel writes them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_on_both_sides() {
        for text in ["0000:01:10.0", "ffff:ff:1f.7", "0001:00:00.1", "10000:e1:00.0"] {
            let addr: PciAddr = text.parse().expect("address");
            assert_eq!((wire(addr).to_string().as_str(), local(wire(addr))), (text, addr));
        }
    }
}
